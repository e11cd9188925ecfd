// SPDX-License-Identifier: Apache-2.0
#include "spank/container/driver_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "common/text.h"
#include "spank/container/mount_api.h"
#include "spank/container/root_files.h"
#include "spank/container/small_tree.h"

namespace bellows::container {
namespace {

/// CUDA, NVML, video. Not what draws on screens (libGLX_nvidia, libEGL_nvidia, libnvidia-glcore,
/// libnvoptix, libvdpau_nvidia, ...): that needs files of GLVND, Vulkan and X in an image's /usr
/// and /etc, which a directory on LD_LIBRARY_PATH cannot give. Not libOpenCL, which is no driver's.
constexpr std::string_view kLibraries[] = {
    "libcuda.so",
    "libcudadebugger.so",
    "libnvcuvid.so",
    "libnvidia-allocator.so",
    "libnvidia-cfg.so",
    "libnvidia-compiler.so",
    "libnvidia-encode.so",
    "libnvidia-fatbinaryloader.so",
    "libnvidia-fbc.so",
    "libnvidia-gpucomp.so",
    "libnvidia-ml.so",
    "libnvidia-nscq.so",
    "libnvidia-nvvm.so",
    "libnvidia-nvvm70.so",
    "libnvidia-opencl.so",
    "libnvidia-opticalflow.so",
    "libnvidia-pkcs11-openssl3.so",
    "libnvidia-pkcs11.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-sandboxutils.so",
    "libnvidia-tileiras.so",
};

/// Opened by their bare name, by programs and by NVIDIA's video SDK.
constexpr std::string_view kBareNames[] = {"libcuda.so", "libnvidia-opticalflow.so"};

constexpr const char* kTools[] = {"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced",
                                  "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"};
constexpr const char* kToolDirectories[] = {"/usr/bin",        "/usr/sbin", "/usr/local/bin",
                                            "/usr/local/sbin", "/bin",      "/sbin"};

constexpr const char* kSockets[] = {"/run/nvidia-persistenced/socket",
                                    "/run/nvidia-fabricmanager/socket"};

constexpr std::size_t kLongestCache = std::size_t{16} << 20;
constexpr std::size_t kLongestVersion = 65536;

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

template <typename List>
bool has(const List& list, std::string_view item) {
  return std::find(std::begin(list), std::end(list), item) != std::end(list);
}

/// What the name of a library says after "libcuda.so": "", "1" or "550.54.15"; nothing for another.
std::optional<std::string_view> suffix_of(std::string_view name, std::string_view library) {
  if (!name.starts_with(library)) return std::nullopt;
  name.remove_prefix(library.size());
  if (name.empty()) return name;
  if (!name.starts_with('.')) return std::nullopt;
  return name.substr(1);
}

/// Collects a plan. What the host has and can't be had is noted and left out.
class Planner {
 public:
  Planner(int root, DriverPlan& plan) : root_(root), plan_(plan) {}

  Status add_own(const OwnFile& own) {
    const auto real = find(own.source, S_IFREG);
    if (!real) return Error{ErrorKind::not_found, own.source + " is not there: install Bellows"};
    add(DriverFile::Kind::file, *real, own.target);
    if (own.target.ends_with(".so.0"))
      add(DriverFile::Kind::link, own.target, own.target.substr(0, own.target.size() - 2));
    return {};
  }

  void add_libraries(const std::vector<LdCacheEntry>& cache) {
    for (const LdCacheEntry& entry : cache) {
      const auto of = [&](std::string_view library) { return suffix_of(entry.name, library); };
      if (!std::any_of(std::begin(kLibraries), std::end(kLibraries), of)) continue;
      const auto real = find(entry.path, S_IFREG);
      if (!real) continue;  // ldconfig ran before the library was removed
      known_.push_back({entry.name, *real});
      directories_.insert(directory_of(entry.path));
      directories_.insert(directory_of(*real));
    }
    for (std::string_view library : kLibraries) add_library(library);
  }

  void add_tools() {
    bool none = true;
    for (const char* tool : kTools) {
      const auto found = find_tool(tool);
      if (!found) continue;
      add(DriverFile::Kind::file, *found, std::string("bin/") + tool);
      none = false;
    }
    if (none) plan_.notes.emplace_back("the host has none of the driver's tools (nvidia-smi)");
  }

  Status add_places() {
    for (const char* socket : kSockets) add_place(socket, S_IFSOCK);
    const std::string firmware = "/lib/firmware/nvidia/" + plan_.version;
    auto names = list_in_root(root_, firmware);
    if (!names) return names.error();
    for (const std::string& name : *names)
      if (name.starts_with("gsp") && name.ends_with(".bin"))
        add_place(firmware + "/" + name, S_IFREG);
    return {};
  }

 private:
  struct Known {
    std::string name;
    std::string real;
  };

  void note(std::string text) {
    if (!has(plan_.notes, text)) plan_.notes.push_back(std::move(text));
  }

  /// A file's path without links, if it is a file of that type.
  std::optional<std::string> find(const std::string& path, mode_t type) {
    auto fd = open_in_root(root_, path, O_PATH);
    struct stat info {};
    if (!fd && fd.error().kind != ErrorKind::not_found) note(fd.error().text);
    if (!fd || ::fstat(fd->get(), &info) != 0 || (info.st_mode & S_IFMT) != type)
      return std::nullopt;
    auto real = resolve_links(root_, path);
    if (!real) note(real.error().text);
    return real ? std::optional("/" + *real) : std::nullopt;
  }

  void add(DriverFile::Kind kind, const std::string& source, const std::string& target) {
    const auto same = [&target](const DriverFile& file) { return file.target == target; };
    if (std::any_of(plan_.files.begin(), plan_.files.end(), same)) return;
    plan_.files.push_back({kind, source, target});
  }

  void add_place(const std::string& path, mode_t type) {
    if (const auto real = find(path, type)) add(DriverFile::Kind::place, *real, path);
  }

  std::optional<std::string> find_tool(const std::string& name) {
    for (const char* directory : kToolDirectories)
      if (auto real = find(directory + ("/" + name), S_IFREG)) return real;
    return std::nullopt;
  }

  bool is_running(const std::string& path) const { return path.ends_with("." + plan_.version); }

  /// The one of the running version, wherever the cache knows driver's libraries to be: what it
  /// says of a name may be another version installed beside it. Else the only one there is.
  std::optional<std::string> choose(std::string_view library) {
    std::set<std::string> found;
    for (const Known& known : known_) {
      if (!suffix_of(known.name, library)) continue;
      if (is_running(known.real)) return known.real;
      found.insert(known.real);
    }
    for (const std::string& directory : directories_) {
      const std::string path = fmt::format("{}/{}.{}", directory, library, plan_.version);
      if (auto real = find(path, S_IFREG)) return real;
    }
    if (found.empty()) return std::nullopt;
    const bool only = found.size() == 1;
    note(fmt::format("{} is not of the running driver's version {}{}", *found.begin(),
                     plan_.version, only ? "" : ", nor another one: left out"));
    return only ? std::optional(*found.begin()) : std::nullopt;
  }

  void add_library(std::string_view library) {
    const auto chosen = choose(library);
    if (!chosen) return;
    const std::string name = name_of(*chosen);
    add(DriverFile::Kind::file, *chosen, name);
    for (const Known& known : known_) {
      const auto suffix = suffix_of(known.name, library);
      // Not the full versions: those are the names of other files.
      if (suffix && parse_uint(*suffix)) add(DriverFile::Kind::link, name, known.name);
    }
    if (has(kBareNames, library)) add(DriverFile::Kind::link, name, std::string(library));
  }

  int root_;
  DriverPlan& plan_;
  std::vector<Known> known_;
  std::set<std::string> directories_;
};

Status fill(SmallTree& tree, const DriverFile& file, int root) {
  if (file.kind == DriverFile::Kind::link) return tree.add_link(file.target, file.source);
  auto original = open_in_root(root, file.source, O_PATH | O_NOFOLLOW);
  if (!original) return original.error();
  auto clone = clone_mount(original->get(), file.source, false, {.read_only = true});
  if (!clone) return clone.error();
  return tree.add_clone(file.target, *std::move(clone), false);
}

/// Put together where it can be, since nothing can be mounted in a detached tree before Linux 6.15,
/// and then cloned with all that is in it. What is left there goes with the old root: an unmount of
/// its own would wait for the kernel's readers, for milliseconds.
Result<PlacedMount> open_directory(const DriverPlan& plan, int root, int scratch) {
  auto tree = SmallTree::create(kDriverDirectory);
  if (!tree) return tree.error();
  Status status = tree->add_directory("bin");
  for (const DriverFile& file : plan.files)
    if (status && file.kind != DriverFile::Kind::place) status = fill(*tree, file, root);
  if (status) status = tree->attach(scratch);
  if (!status) return status.error();
  auto clone = clone_mount(tree->descriptor(), kDriverDirectory, true, {.read_only = true});
  if (!clone) return clone.error();
  return PlacedMount{kDriverDirectory,
                     *std::move(clone),
                     true,
                     true,
                     "the driver's files",
                     option_words(MountFlags{.read_only = true})};
}

}  // namespace

std::optional<std::string> driver_version(std::string_view text) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ...", or
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (...)".
  const std::string_view line = split(text, '\n').front();
  if (!line.starts_with("NVRM version:")) return std::nullopt;
  for (std::string_view word : split(line, ' ')) {
    const auto numbers = split(word, '.');
    const auto number = [](std::string_view piece) { return parse_uint(piece).has_value(); };
    if (numbers.size() >= 2 && std::all_of(numbers.begin(), numbers.end(), number))
      return std::string(word);
  }
  return std::nullopt;
}

Result<DriverPlan> plan_driver_files(int root, const std::vector<OwnFile>& own, Machine machine) {
  DriverPlan plan;
  Planner planner(root, plan);
  for (const OwnFile& file : own)
    if (auto status = planner.add_own(file); !status) return status.error();
  auto text = read_in_root(root, "/proc/driver/nvidia/version", kLongestVersion);
  if (!text) return text.error();
  if (!*text) return plan;
  const auto version = driver_version(**text);
  if (!version)
    return Error{ErrorKind::invalid, "/proc/driver/nvidia/version does not name a driver version"};
  plan.version = *version;
  auto data = read_in_root(root, "/etc/ld.so.cache", kLongestCache);
  if (!data) return data.error();
  auto cache = parse_ld_cache(data->value_or(""), machine);
  if (!cache) return cache.error();
  planner.add_libraries(*cache);
  planner.add_tools();
  if (auto status = planner.add_places(); !status) return status.error();
  return plan;
}

Result<std::vector<PlacedMount>> open_driver_files(const DriverPlan& plan, int root, int scratch) {
  std::vector<PlacedMount> places;
  if (plan.files.empty()) return places;
  auto directory = open_directory(plan, root, scratch);
  if (!directory) return directory.error();
  places.push_back(*std::move(directory));
  const MountFlags flags{.read_only = true, .no_exec = true};
  for (const DriverFile& file : plan.files) {
    if (file.kind != DriverFile::Kind::place) continue;
    auto original = open_in_root(root, file.source, O_PATH | O_NOFOLLOW);
    if (!original) return original.error();
    auto clone = clone_mount(original->get(), file.source, false, flags);
    if (!clone) return clone.error();
    places.push_back(
        {file.target, *std::move(clone), false, true, file.source, option_words(flags)});
  }
  return places;
}

namespace {

std::string without(std::string_view list, std::string_view directory) {
  std::string text;
  for (std::string_view item : split(list, ':'))
    if (item != directory && !list.empty()) (text += ':') += item;
  return text;
}

}  // namespace

std::string with_first(std::string_view list, std::string_view directory) {
  return std::string(directory) + without(list, directory);
}

std::string with_last(std::string_view list, std::string_view directory) {
  const std::string others = without(list, directory);
  return others.empty() ? std::string(directory) : others.substr(1) + ":" + std::string(directory);
}

}  // namespace bellows::container
