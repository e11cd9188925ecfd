// SPDX-License-Identifier: Apache-2.0
#include "spank/container/rootfs.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/resolved.h"
#include "spank/container/capabilities.h"
#include "spank/container/idmap.h"
#include "spank/container/mount_api.h"
#include "spank/container/skeleton.h"
#include "spank/container/working_directory.h"

namespace bellows::container {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

/// A path in the container that the image lacks.
struct Missing {
  std::string path;
  bool directory;
};

/// A tmpfs of the caller's own.
Result<Fd> own_tmpfs(Options options) {
  options.emplace_back("mode", "0755");
  options.emplace_back("uid", std::to_string(::getuid()));
  options.emplace_back("gid", std::to_string(::getgid()));
  return new_filesystem("tmpfs", options, {});
}

/// With all that is mounted below: a mount may be there to hide something.
Result<Fd> clone_host(const char* path, MountFlags flags) {
  auto source = open_source(path);
  if (!source) return source;
  return clone_mount(source->get(), path, true, flags);
}

/// What each container has of the host's, in the job's view of it: /proc is the first and /dev the
/// last.
Result<std::vector<PlacedMount>> open_system() {
  MountFlags proc;
  proc.no_exec = true;
  MountFlags sys = proc;
  sys.read_only = true;
  const std::pair<const char*, MountFlags> wanted[] = {
      {"/proc", proc}, {"/sys", sys}, {"/tmp", {}}, {"/var/tmp", {}}};
  std::vector<PlacedMount> places;
  for (const auto& [path, flags] : wanted) {
    auto mount = clone_host(path, flags);
    if (!mount) return mount.error();
    places.push_back({path, std::move(*mount), true, true, path, option_words(flags)});
  }
  auto dev = new_dev();
  if (!dev) return dev.error();
  places.push_back({"/dev", std::move(*dev), true, true, "tmpfs", option_words({})});
  return places;
}

/// The host's files that tell of the network and which machine this is, where the image has an
/// /etc.
Status add_etc(const Spec& spec, int image, std::vector<PlacedMount>& places) {
  if (!open_in_root(image, "/etc", O_PATH | O_DIRECTORY)) return {};
  for (const char* path : {"/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/machine-id"}) {
    if (spec.unshare_uts && std::string_view(path) == "/etc/hostname") continue;
    auto placed = open_bind(path, path, false, {.read_only = true, .no_exec = true});
    if (placed)
      places.push_back(std::move(*placed));
    else if (placed.error().kind != ErrorKind::not_found)
      return placed.error();
  }
  return {};
}

/// A file of our own making, kept in `scratch`. `what` it is, for people.
Status add_file(int scratch, const AccountFile& file, const char* what,
                std::vector<PlacedMount>& places) {
  const std::string name = file.path.substr(file.path.rfind('/') + 1);
  const Fd fd(::openat(scratch, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return errno_error("create", file.path);
  if (auto status = write_all(fd.get(), file.text, file.path); !status) return status;
  MountFlags flags;
  flags.read_only = true;
  flags.no_exec = true;
  auto mount = clone_mount(fd.get(), file.path, false, flags);
  if (!mount) return mount.error();
  places.push_back({file.path, std::move(*mount), false, true, what, option_words(flags)});
  return {};
}

/// For root in a container, or apt would become a user who is nobody there. Not in a directory in
/// which the caller can create nothing.
Status add_apt_setting(int scratch, int image, bool overlaid, std::vector<PlacedMount>& places) {
  const std::string directory = "/etc/apt/apt.conf.d";
  const auto place = open_in_root(image, directory, O_PATH | O_DIRECTORY);
  if (!place || !(overlaid || may(place->get(), W_OK | X_OK))) return {};
  return add_file(scratch, {directory + "/bellows", "APT::Sandbox::User \"root\";\n"},
                  "apt's setting", places);
}

/// Those of the targets that are not in `image` and not in what will be mounted before them.
Result<std::vector<Missing>> missing_targets(int image,
                                             const std::vector<const PlacedMount*>& places) {
  std::vector<Missing> missing;
  std::vector<std::string> mounted;
  for (const PlacedMount* placed : places) {
    if (!placed->mount) continue;
    auto real = resolve_links(image, placed->target);
    if (!real) return real.error();
    const bool covered = std::any_of(mounted.begin(), mounted.end(), [&real](const auto& above) {
      return *real == above || real->starts_with(above + "/");
    });
    mounted.push_back(*real);
    if (covered || !placed->create || open_in_root(image, *real, O_PATH)) continue;
    missing.push_back({*real, placed->directory});
  }
  return missing;
}

Result<Fd> make_directory(int parent, const char* name) {
  return open_target(parent, name, true, true);
}

/// The user may have put anything in its place.
Result<Fd> own_directory(int parent, const char* name) {
  if (::mkdirat(parent, name, 0755) != 0 && errno != EEXIST) return errno_error("make", name);
  auto directory = open_child(parent, name);
  if (!directory || is_callers(directory->get())) return directory;
  return Error{ErrorKind::denied,
               fmt::format("the container's directory {} is not its user's", name)};
}

/// The image's file tree as a container's root: the image itself where that will do, and else an
/// overlay, which has what the image lacks, and takes what is written.
class RootMaker {
 public:
  /// `callers`: the image's files belong to the caller. `layer`: as RootfsInputs has it.
  RootMaker(int scratch, Fd image, bool callers, int layer)
      : scratch_(scratch), image_(std::move(image)), callers_(callers), layer_(layer) {}

  /// The descriptor of the root, mounted.
  Result<Fd> plain() {
    auto target = make_directory(scratch_, "root");
    if (!target) return target;
    if (auto status = attach(image_.get(), target->get(), "the root"); !status)
      return status.error();
    return std::move(image_);
  }

  Result<Fd> overlay(const std::vector<Missing>& missing, bool writable, std::uint64_t size_mib) {
    auto skeleton = make_skeleton(missing);
    if (!skeleton) return skeleton;
    if (writable && !callers_) {
      if (auto status = give_to_caller(skeleton->get()); !status) return status.error();
    }
    auto lower = make_directory(scratch_, "image");
    if (!lower) return lower;
    // An overlay takes only what is mounted in this namespace.
    if (auto status = attach(image_.get(), lower->get(), "the image"); !status)
      return status.error();
    // What a user's server says of a directory must not lead the kernel to another.
    Options options = {{"source", "overlay"},
                       {"redirect_dir", "nofollow"},
                       {"metacopy", "off"},
                       {"lowerdir", fmt::format("{}:{}", descriptor_path(skeleton->get()),
                                                descriptor_path(image_.get()))}};
    if (writable) {
      if (auto status = add_upper(size_mib, options); !status) return status.error();
    }
    auto root = mount_overlay(options, writable);
    if (!root) return root;
    auto target = make_directory(scratch_, "root");
    if (!target) return target;
    if (auto status = attach(root->get(), target->get(), "the root"); !status)
      return status.error();
    return root;
  }

 private:
  Result<Fd> make_skeleton(const std::vector<Missing>& missing) {
    auto skeleton = make_directory(scratch_, "skeleton");
    if (!skeleton) return skeleton;
    for (const auto& place : missing) {
      auto made = open_target(skeleton->get(), place.path, place.directory, true);
      if (!made) return made;
    }
    return skeleton;
  }

  /// An image's files usually belong to root, but it is the user who writes to them.
  Status give_to_caller(int skeleton) {
    auto status = map_root_to_caller(image_.get());
    if (status || status.error().kind != ErrorKind::invalid) return status;
    return is_callers(image_.get()) ? Status() : copy_directories(image_.get(), skeleton);
  }

  Status add_upper(std::uint64_t size_mib, Options& options) {
    Fd tmpfs;
    if (layer_ < 0) {
      auto made =
          own_tmpfs(size_mib > 0 ? Options{{"size", fmt::format("{}m", size_mib)}} : Options{});
      if (!made) return made.error();
      tmpfs = *std::move(made);
    }
    const int layer = layer_ < 0 ? tmpfs.get() : layer_;
    auto target = make_directory(scratch_, "written");
    if (!target) return target.error();
    if (auto status = attach(layer, target->get(), "the overlay"); !status) return status;
    for (const char* name : {"upper", "work"}) {
      auto dir = own_directory(layer, name);
      if (!dir) return dir.error();
      options.emplace_back(fmt::format("{}dir", name), descriptor_path(dir->get()));
      kept_.push_back(std::move(*dir));
    }
    return {};
  }

  /// An overlay's work directory is closed to all but those whom no mode stops, and it works in it
  /// with its maker's rights. The user's own rights are nevertheless checked.
  static Result<Fd> mount_overlay(const Options& options, bool writable) {
    MountFlags flags;
    flags.read_only = !writable;
    if (!writable) return new_filesystem("overlay", options, flags);
    const auto raised = Raised::raise(CAP_DAC_OVERRIDE);
    if (!raised) return raised.error();
    return new_filesystem("overlay", options, flags);
  }

  int scratch_;
  Fd image_;
  bool callers_;
  int layer_;
  std::vector<Fd> kept_;  ///< the overlay's options name them
};

/// Everything that belongs to a container while it is being built.
class Builder {
 public:
  Builder(const Spec& spec, const Site& site, const RootfsInputs& inputs, Phases& phases)
      : spec_(spec),
        site_(site),
        inputs_(inputs),
        phases_(phases),
        writable_(spec.writable.value_or(site.writable)),
        fake_root_(spec.remap_root.value_or(site.remap_root)) {}

  /// With the user's rights: everything is opened before anything is mounted.
  Status open() {
    if (!has_kept()) {
      auto image = inputs_.imported.empty() ? open_image(spec_.image, site_)
                                            : open_imported_image(inputs_.imported);
      if (!image) return image.error();
      image_ = std::move(*image);
    }
    auto system = open_system();
    if (!system) return system.error();
    system_ = std::move(*system);
    auto shm = clone_host("/dev/shm", {});
    if (!shm) return shm.error();
    shm_ = std::move(*shm);
    auto devices = open_devices(site_, inputs_.console);
    if (!devices) return devices.error();
    devices_ = std::move(*devices);
    const auto users = [this] { return open_users(); };
    return inputs_.at_sources ? inputs_.at_sources(users) : users();
  }

  Status mount_root() {
    if (has_kept()) return mount_kept();
    auto image =
        image_.own ? inputs_.mount_own(image_) : mount_image(image_, writable_ && !image_.shared);
    if (!image) return image.error();
    // A directory may be the user's own, whom such a map would take for nobody.
    if ((fake_root_ || site_.user_namespace) && image_.squashfs && !writable_ && !has_layer())
      if (auto status = map_root_to_caller(image->get());
          !status && status.error().kind != ErrorKind::invalid)
        return status;
    auto scratch = make_scratch();
    if (!scratch) return scratch.error();
    if (has_layer()) return mount_layered(scratch->get(), *std::move(image));
    if (auto status = fill_scratch(scratch->get(), image->get()); !status) return status;
    auto missing = missing_targets(image->get(), all_places());
    if (!missing) return missing.error();
    RootMaker maker(scratch->get(), std::move(*image), !image_.squashfs, -1);
    const bool overlay =
        image_.shared ? writable_ || !missing->empty() : !writable_ && !missing->empty();
    auto root = overlay ? maker.overlay(*missing, writable_, upper_mib()) : maker.plain();
    if (!root) return root.error();
    root_ = std::move(*root);
    note_root(overlay ? ",overlay" : "");
    return {};
  }

  Status mount_system() {
    const auto tmp = resolve_links(root_.get(), "/tmp");
    const auto var_tmp = resolve_links(root_.get(), "/var/tmp");
    const bool one_tmp = tmp && var_tmp && *tmp == *var_tmp;
    for (const auto* places : {&system_, &etc_}) {
      for (const auto& placed : *places) {
        if (one_tmp && placed.target == "/var/tmp") continue;
        if (auto status = place(root_.get(), placed); !status) return status;
        phases_.note(told(placed));
      }
    }
    return {};
  }

  Status make_dev() {
    if (auto status = fill_dev(dev(), devices_, shm_.get()); !status) return status;
    for (const auto& device : devices_) phases_.note(fmt::format("device /dev/{}", device.name));
    for (const auto& device : inputs_.devices)
      if (auto status = add_device(dev(), device.name, device.mount.get()); !status) return status;
    return {};
  }

  Status mount_users() {
    for (const auto& placed : inputs_.mounts) {
      if (auto status = place(root_.get(), placed); !status) return status;
      phases_.note(told(placed));
    }
    const auto own = own_mounts();
    for (const auto& placed : users_) {
      const auto status = place_user_mount(root_.get(), placed, own);
      if (auto failed = unless_optional(status, placed, phases_); !failed) return failed;
      if (status) phases_.note(told(placed));
    }
    if (auto status = check_own_seen(); !status.ok()) return status;
    if ((has_kept() || has_layer()) && !writable_)
      if (auto status = set_read_only(root_.get(), "/"); !status.ok()) return status;
    return set_read_only(dev(), "/dev");
  }

  Status enter() {
    if (::fchdir(root_.get()) != 0) return errno_error("enter", "the image's root");
    if (::syscall(SYS_pivot_root, ".", ".") != 0) return errno_error("change to", "the new root");
    if (::umount2(".", MNT_DETACH) != 0) return errno_error("unmount", "the host's tree");
    const auto remark = enter_working_directory(root_.get(), spec_);
    if (remark && !remark->empty()) phases_.note(*remark);
    return remark ? Status() : remark.error();
  }

  Result<BuiltRoot> built() const {
    const auto numbers = own();
    if (!numbers) return numbers.error();
    return BuiltRoot{*numbers, has_kept() || has_layer() || (image_.shared && writable_)};
  }

 private:
  Result<OwnMounts> own() const {
    const auto dev_number = mount_number(dev(), "/dev");
    const auto proc_number = mount_number(system_.front().mount.get(), "/proc");
    if (!dev_number || !proc_number) return dev_number ? proc_number.error() : dev_number.error();
    return OwnMounts{*dev_number, *proc_number};
  }

  bool has_kept() const { return inputs_.kept >= 0; }
  bool has_layer() const { return inputs_.layer >= 0 && image_.shared; }
  /// What is written to the root is not written to the image.
  bool is_over() const { return has_kept() || image_.shared; }

  /// The place in which the container is made.
  Result<Fd> make_scratch() {
    auto scratch = own_tmpfs({{"size", "16m"}});
    if (!scratch) return scratch;
    auto status = attach(scratch->get(), inputs_.scratch, "the place for containers");
    return status.ok() ? std::move(scratch) : Result<Fd>(status.error());
  }

  /// With the files that take the place of `root`'s.
  Status fill_scratch(int scratch, int root) {
    Status status = add_etc(spec_, root, etc_);
    if (status.ok() && !fake_root_)
      for (const auto& file : account_files(root, inputs_.account))
        if (status = add_file(scratch, file, "the user's line", etc_); !status.ok()) break;
    if (status.ok() && fake_root_ && writable_)
      status = add_apt_setting(scratch, root, is_over(), etc_);
    return status;
  }

  /// Places for mounts are made in it.
  Status mount_kept() {
    root_ = Fd(::fcntl(inputs_.kept, F_DUPFD_CLOEXEC, 0));
    if (!root_) return errno_error("take over", "the container's root");
    const auto scratch = make_scratch();
    if (!scratch) return scratch.error();
    const auto target = make_directory(scratch->get(), "root");
    if (!target) return target.error();
    if (auto status = attach(root_.get(), target->get(), "the root"); !status) return status;
    note_root(",kept");
    return fill_scratch(scratch->get(), root_.get());
  }

  /// And so here: what is in the layer may hide what the image has.
  Status mount_layered(int scratch, Fd image) {
    RootMaker maker(scratch, std::move(image), !image_.squashfs, inputs_.layer);
    auto root = maker.overlay({}, true, 0);
    if (!root) return root.error();
    root_ = *std::move(root);
    note_root(",layer");
    return fill_scratch(scratch, root_.get());
  }

  void note_root(const char* how) {
    phases_.note(fmt::format("{} on / ({}{})", spec_.image, writable_ ? "rw" : "ro", how));
  }

  int dev() const { return system_.back().mount.get(); }

  /// Else nobody could join.
  Status check_own_seen() const {
    const auto numbers = own();
    if (!numbers) return numbers.error();
    for (const auto& [name, number] : {std::pair("/dev", numbers->dev), {"/proc", numbers->proc}})
      if (!open_own(root_.get(), name, number))
        return Error{ErrorKind::denied,
                     fmt::format("a mount hides the container's own {}, which is a link in its "
                                 "image",
                                 name)};
    return {};
  }

  std::uint64_t upper_mib() const { return spec_.tmp_mib.value_or(site_.tmp_mib); }

  std::vector<const PlacedMount*> all_places() const {
    std::vector<const PlacedMount*> all;
    for (const auto* places : {&system_, &etc_, &inputs_.mounts, &users_})
      for (const auto& placed : *places) all.push_back(&placed);
    return all;
  }

  std::vector<int> own_mounts() const {
    std::vector<int> mounts = {shm_.get()};
    for (const PlacedMount* placed : all_places())
      if (placed->mount) mounts.push_back(placed->mount.get());
    return mounts;
  }

  Status open_users() {
    if (spec_.mount_home.value_or(site_.mount_home) && !inputs_.home.empty()) {
      auto home = open_bind(inputs_.home, fake_root_ ? kRootHome : inputs_.home, true, {});
      if (!home) return home.error();
      users_.push_back(std::move(*home));
    }
    auto mounts = open_user_mounts(spec_.mounts, phases_);
    if (!mounts) return mounts.error();
    std::move(mounts->begin(), mounts->end(), std::back_inserter(users_));
    return {};
  }

  const Spec& spec_;
  const Site& site_;
  const RootfsInputs& inputs_;
  Phases& phases_;
  bool writable_;
  bool fake_root_;  ///< of --container-remap-root
  Image image_;
  std::vector<PlacedMount> system_;
  std::vector<PlacedMount> etc_;
  std::vector<PlacedMount> users_;
  std::vector<Device> devices_;
  Fd shm_;
  Fd root_;
};

}  // namespace

Result<BuiltRoot> build_rootfs(const Spec& spec, const Site& site, const RootfsInputs& inputs,
                               Phases& phases) {
  const std::pair<const char*, Status (Builder::*)()> steps[] = {
      {"opening the image and the mounts", &Builder::open},
      {"mounting the image", &Builder::mount_root},
      {"mounting the system's directories", &Builder::mount_system},
      {"making /dev", &Builder::make_dev},
      {"mounting the user's directories", &Builder::mount_users},
      {"entering the container", &Builder::enter},
  };
  auto admin = Raised::raise(CAP_SYS_ADMIN);
  if (!admin) return admin.error();
  Builder builder(spec, site, inputs, phases);
  for (const auto& [name, step] : steps) {
    phases.begin(name);
    if (auto status = (builder.*step)(); !status) return status.error();
  }
  phases.end();
  return builder.built();
}

}  // namespace bellows::container
