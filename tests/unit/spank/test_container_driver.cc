// SPDX-License-Identifier: Apache-2.0
/// The host's driver as a container gets it, with hosts laid out as the driver's packages lay them.

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/fd.h"
#include "spank/container/driver_files.h"
#include "spank/container/ld_cache.h"
#include "spank/container/mount_api.h"
#include "tests/unit/spank/gpu_support.h"
#include "tests/unit/spank/ld_cache_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

namespace {

const std::string kRunning = "550.54.15";
const std::string kOther = "535.183.01";

/// A host of which ldconfig knows what add() says.
class Host {
 public:
  Host() { cr_assert(::chmod(root.c_str(), 0755) == 0); }

  void run_driver(const std::string& version) const {
    write(root + "/proc/driver/nvidia/version",
          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + version + "  Tue Mar  5 22:23:56\n");
  }
  void file(const std::string& path) const { write(root + path, "text of " + path); }
  void link(const std::string& path, const std::string& to) const {
    fs::create_directories(fs::path(root + path).parent_path());
    fs::create_symlink(to, root + path);
  }
  void known(const std::string& name, const std::string& directory, std::uint32_t flags = kX86_64) {
    cache_.push_back({flags, name, directory + "/" + name, 0});
    write(root + "/etc/ld.so.cache", new_cache(cache_));
  }
  void socket(const std::string& path) const {
    fs::create_directories(fs::path(root + path).parent_path());
    const Fd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (root + path).copy(address.sun_path, sizeof address.sun_path - 1);
    cr_assert(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }

  DriverPlan plan(const std::string& libbellows = "") const {
    const Fd fd = path_of(root);
    std::vector<OwnFile> own;
    if (!libbellows.empty()) own = {{libbellows, "libbellows.so.0"}};
    auto plan = plan_driver_files(fd.get(), own, Machine::x86_64);
    cr_assert(plan.ok(), "%s", plan.ok() ? "" : plan.error().text.c_str());
    return *std::move(plan);
  }
  std::string error() const {
    const Fd fd = path_of(root);
    auto plan = plan_driver_files(fd.get(), {}, Machine::x86_64);
    return plan ? "" : plan.error().text;
  }

 private:
  ScratchDir scratch_;
  std::vector<CacheEntry> cache_;

 public:
  std::string root = scratch_.path();
};

/// "TARGET = SOURCE", "TARGET -> TEXT" or "SOURCE at TARGET", a line each.
std::string describe(const DriverPlan& plan) {
  std::string text;
  for (const DriverFile& file : plan.files) {
    if (file.kind == DriverFile::Kind::file) text += file.target + " = " + file.source;
    if (file.kind == DriverFile::Kind::link) text += file.target + " -> " + file.source;
    if (file.kind == DriverFile::Kind::place) text += file.source + " at " + file.target;
    text += "\n";
  }
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

/// Debian's packages: the driver in a directory of its own, reached through alternatives.
void lay_out_as_debian(Host& host, const std::string& version) {
  const std::string lib = "/usr/lib/x86_64-linux-gnu";
  const std::string own = lib + "/nvidia/current";
  const std::pair<const char*, const char*> libraries[] = {{"libcuda.so", "1"},
                                                           {"libnvidia-ml.so", "1"},
                                                           {"libnvidia-ptxjitcompiler.so", "1"},
                                                           {"libnvidia-nvvm.so", "4"},
                                                           {"libnvcuvid.so", "1"}};
  for (const auto& [name, major] : libraries) {
    const std::string soname = std::string(name) + "." + major;
    host.file(own + "/" + name + "." + version);
    host.link(own + "/" + soname, std::string(name) + "." + version);
    const std::string alternative = "/etc/alternatives/nvidia--" + soname + "-x86_64-linux-gnu";
    host.link(alternative, own + "/" + soname);
    host.link(lib + "/" + soname, alternative);
    host.known(soname, lib);
  }
  host.file("/usr/lib/nvidia/current/nvidia-smi");
  host.link("/etc/alternatives/nvidia--nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi");
  host.link("/usr/bin/nvidia-smi", "/etc/alternatives/nvidia--nvidia-smi");
  host.file("/usr/bin/nvidia-persistenced");
  host.link("/bin", "usr/bin");
  // In the cache, and not a job's.
  host.file(lib + "/libGLX_nvidia.so." + version);
  host.known("libGLX_nvidia.so.0", lib);
  host.file(lib + "/libc.so.6");
  host.known("libc.so.6", lib);
}

/// The .run file's and RPM's way: all in one directory, sonames as links, 32-bit ones beside.
void lay_out_as_rhel(Host& host, const std::string& version, bool linked) {
  const std::pair<const char*, const char*> libraries[] = {
      {"libcuda.so", "1"},        {"libcudadebugger.so", "1"},       {"libnvidia-ml.so", "1"},
      {"libnvidia-cfg.so", "1"},  {"libnvidia-opticalflow.so", "1"}, {"libnvidia-encode.so", "1"},
      {"libnvidia-nvvm.so", "4"},
  };
  for (const auto& [name, major] : libraries) {
    const std::string file = std::string(name) + "." + version;
    host.file("/usr/lib64/" + file);
    if (!linked) continue;
    host.link("/usr/lib64/" + std::string(name) + "." + major, file);
    host.known(std::string(name) + "." + major, "/usr/lib64");
  }
  // Its soname is its whole name.
  host.file("/usr/lib64/libnvidia-gpucomp.so." + version);
  host.known("libnvidia-gpucomp.so." + version, "/usr/lib64");
  if (!linked) return;
  host.file("/usr/lib/libcuda.so." + version);
  host.link("/usr/lib/libcuda.so.1", "libcuda.so." + version);
  host.known("libcuda.so.1", "/usr/lib", kI386);
  host.file("/usr/bin/nvidia-cuda-mps-control");
}

const std::string kDebian =
    "libcuda.so.550.54.15 = /usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.54.15\n"
    "libcuda.so.1 -> libcuda.so.550.54.15\n"
    "libcuda.so -> libcuda.so.550.54.15\n"
    "libnvcuvid.so.550.54.15 = /usr/lib/x86_64-linux-gnu/nvidia/current/libnvcuvid.so.550.54.15\n"
    "libnvcuvid.so.1 -> libnvcuvid.so.550.54.15\n"
    "libnvidia-ml.so.550.54.15 = "
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.54.15\n"
    "libnvidia-ml.so.1 -> libnvidia-ml.so.550.54.15\n"
    "libnvidia-nvvm.so.550.54.15 = "
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-nvvm.so.550.54.15\n"
    "libnvidia-nvvm.so.4 -> libnvidia-nvvm.so.550.54.15\n"
    "libnvidia-ptxjitcompiler.so.550.54.15 = "
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ptxjitcompiler.so.550.54.15\n"
    "libnvidia-ptxjitcompiler.so.1 -> libnvidia-ptxjitcompiler.so.550.54.15\n"
    "bin/nvidia-smi = /usr/lib/nvidia/current/nvidia-smi\n"
    "bin/nvidia-persistenced = /usr/bin/nvidia-persistenced\n";

const std::string kRhel =
    "libcuda.so.550.54.15 = /usr/lib64/libcuda.so.550.54.15\n"
    "libcuda.so.1 -> libcuda.so.550.54.15\n"
    "libcuda.so -> libcuda.so.550.54.15\n"
    "libcudadebugger.so.550.54.15 = /usr/lib64/libcudadebugger.so.550.54.15\n"
    "libcudadebugger.so.1 -> libcudadebugger.so.550.54.15\n"
    "libnvidia-cfg.so.550.54.15 = /usr/lib64/libnvidia-cfg.so.550.54.15\n"
    "libnvidia-cfg.so.1 -> libnvidia-cfg.so.550.54.15\n"
    "libnvidia-encode.so.550.54.15 = /usr/lib64/libnvidia-encode.so.550.54.15\n"
    "libnvidia-encode.so.1 -> libnvidia-encode.so.550.54.15\n"
    "libnvidia-gpucomp.so.550.54.15 = /usr/lib64/libnvidia-gpucomp.so.550.54.15\n"
    "libnvidia-ml.so.550.54.15 = /usr/lib64/libnvidia-ml.so.550.54.15\n"
    "libnvidia-ml.so.1 -> libnvidia-ml.so.550.54.15\n"
    "libnvidia-nvvm.so.550.54.15 = /usr/lib64/libnvidia-nvvm.so.550.54.15\n"
    "libnvidia-nvvm.so.4 -> libnvidia-nvvm.so.550.54.15\n"
    "libnvidia-opticalflow.so.550.54.15 = /usr/lib64/libnvidia-opticalflow.so.550.54.15\n"
    "libnvidia-opticalflow.so.1 -> libnvidia-opticalflow.so.550.54.15\n"
    "libnvidia-opticalflow.so -> libnvidia-opticalflow.so.550.54.15\n"
    "bin/nvidia-cuda-mps-control = /usr/bin/nvidia-cuda-mps-control\n";

}  // namespace

TestSuite(driver_files, .timeout = 60);

Test(driver_files, versions) {
  const std::pair<const char*, const char*> cases[] = {
      {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
       "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
       "550.54.15"},
      {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  "
       "(dvs-builder@U22-I3-AE18-23-3)  Sun Jul 27 07:17:29 UTC 2025\n",
       "580.65.06"},
      {"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86", "570.86"},
      {"NVRM version: NVIDIA UNIX x86_64 Kernel Module\nGCC version: 12.2.0\n", ""},
      {"GCC version:  12.2.0\n", ""},
      {"", ""},
  };
  for (const auto& [text, wanted] : cases) expect_text(driver_version(text).value_or(""), wanted);
}

Test(driver_files, debian) {
  Host host;
  lay_out_as_debian(host, kRunning);
  host.run_driver(kRunning);
  const DriverPlan plan = host.plan();
  expect_text(plan.version, kRunning);
  expect_text(describe(plan), kDebian);
}

Test(driver_files, rhel) {
  Host host;
  lay_out_as_rhel(host, kRunning, true);
  host.run_driver(kRunning);
  expect_text(describe(host.plan()), kRhel);
}

/// The links and the cache name the version that isn't running.
Test(driver_files, two_versions_side_by_side) {
  Host host;
  lay_out_as_rhel(host, kOther, true);
  lay_out_as_rhel(host, kRunning, false);
  host.run_driver(kRunning);
  expect_text(describe(host.plan()), kRhel);
}

Test(driver_files, two_versions_and_the_right_one_linked) {
  Host host;
  lay_out_as_rhel(host, kRunning, true);
  lay_out_as_rhel(host, kOther, false);
  host.run_driver(kRunning);
  expect_text(describe(host.plan()), kRhel);
}

/// After an upgrade without a reboot: as on the host, the driver's own message tells.
Test(driver_files, only_another_version) {
  Host host;
  host.file("/usr/lib64/libcuda.so." + kOther);
  host.link("/usr/lib64/libcuda.so.1", "libcuda.so." + kOther);
  host.known("libcuda.so.1", "/usr/lib64");
  host.run_driver(kRunning);
  expect_text(describe(host.plan()),
              "libcuda.so.535.183.01 = /usr/lib64/libcuda.so.535.183.01\n"
              "libcuda.so.1 -> libcuda.so.535.183.01\nlibcuda.so -> libcuda.so.535.183.01\n"
              "note: /usr/lib64/libcuda.so.535.183.01 is not of the running driver's version "
              "550.54.15\nnote: the host has none of the driver's tools (nvidia-smi)\n");
  host.file("/opt/lib/libcuda.so.470.1.1");
  host.link("/opt/lib/libcuda.so.1", "libcuda.so.470.1.1");
  host.known("libcuda.so.1", "/opt/lib");
  expect_text(describe(host.plan()),
              "note: /opt/lib/libcuda.so.470.1.1 is not of the running driver's version 550.54.15, "
              "nor another one: left out\n"
              "note: the host has none of the driver's tools (nvidia-smi)\n");
}

Test(driver_files, no_driver) {
  Host host;
  expect_text(describe(host.plan()), "");
  lay_out_as_debian(host, kRunning);
  expect_text(describe(host.plan()), "");
  host.file("/usr/lib/libbellows.so.0.0.0");
  host.link("/usr/lib/libbellows.so.0", "libbellows.so.0.0.0");
  expect_text(describe(host.plan("/usr/lib/libbellows.so.0")),
              "libbellows.so.0 = /usr/lib/libbellows.so.0.0.0\nlibbellows.so -> libbellows.so.0\n");
  host.file("/usr/bin/bellows-ps");
  const Fd root = path_of(host.root);
  auto programs =
      plan_driver_files(root.get(), {{"/usr/bin/bellows-ps", "bin/bellows-ps"}}, Machine::x86_64);
  cr_assert(programs.ok());
  expect_text(describe(*programs), "bin/bellows-ps = /usr/bin/bellows-ps\n");
}

Test(driver_files, a_cache_that_names_what_is_gone) {
  Host host;
  host.known("libcuda.so.1", "/usr/lib64");
  host.link("/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1");
  host.known("libnvidia-ml.so.1", "/usr/lib64");
  host.known("libnvidia-cfg.so.1", "/usr/lib64");
  host.link("/usr/lib64/libnvidia-cfg.so.1", "../../../../../etc/absent");
  fs::create_directories(host.root + "/usr/lib64/libnvcuvid.so.1");
  host.known("libnvcuvid.so.1", "/usr/lib64");
  host.run_driver(kRunning);
  expect_text(describe(host.plan()),
              "note: cannot open /usr/lib64/libnvidia-ml.so.1: Too many levels of symbolic links\n"
              "note: the host has none of the driver's tools (nvidia-smi)\n");
}

Test(driver_files, errors) {
  Host host;
  host.run_driver("none");
  expect_text(host.error(), "/proc/driver/nvidia/version does not name a driver version");
  host.run_driver(kRunning);
  cr_expect(host.error().find("/etc/ld.so.cache: not in the format") == 0, "%s",
            host.error().c_str());
  const Fd root = path_of(host.root);
  auto plan = plan_driver_files(root.get(), {{"/usr/lib/libbellows.so.0", "libbellows.so.0"}},
                                Machine::x86_64);
  cr_assert(!plan.ok());
  expect_text(plan.error().text, "/usr/lib/libbellows.so.0 is not there: install Bellows");
}

Test(driver_files, sockets_and_firmware) {
  Host host;
  lay_out_as_debian(host, kRunning);
  host.run_driver(kRunning);
  host.socket("/run/nvidia-persistenced/socket");
  host.file("/run/nvidia-fabricmanager/socket");
  host.link("/lib", "usr/lib");
  for (const char* name : {"gsp_tu10x.bin", "gsp_ga10x.bin", "README"})
    host.file("/usr/lib/firmware/nvidia/550.54.15/" + std::string(name));
  host.file("/usr/lib/firmware/nvidia/535.183.01/gsp_ga10x.bin");
  expect_text(describe(host.plan()),
              kDebian +
                  "/run/nvidia-persistenced/socket at /run/nvidia-persistenced/socket\n"
                  "/usr/lib/firmware/nvidia/550.54.15/gsp_ga10x.bin at "
                  "/lib/firmware/nvidia/550.54.15/gsp_ga10x.bin\n"
                  "/usr/lib/firmware/nvidia/550.54.15/gsp_tu10x.bin at "
                  "/lib/firmware/nvidia/550.54.15/gsp_tu10x.bin\n");
}

Test(driver_files, in_a_container) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  Host host;
  lay_out_as_debian(host, kRunning);
  host.run_driver(kRunning);
  host.socket("/run/nvidia-persistenced/socket");
  host.file("/usr/lib/libbellows.so.0");
  const std::string box = host.root + "/box";
  fs::create_directories(box + "/usr/lib/bellows");
  write(box + "/run/nvidia-persistenced/socket", "");
  fs::create_directories(host.root + "/scratch");
  const DriverPlan plan = host.plan("/usr/lib/libbellows.so.0");
  const std::string own = box + kDriverDirectory + "/";
  const std::string got = in_view(
      [&]() -> Status {
        const Fd root = path_of(host.root);
        auto places = open_driver_files(plan, root.get(), path_of(host.root + "/scratch").get());
        if (!places) return places.error();
        for (const PlacedMount& placed : *places) {
          const std::string target = box + placed.target;
          auto status = attach(placed.mount.get(), path_of(target).get(), target);
          if (!status) return status;
        }
        return {};
      },
      [&] {
        struct stat socket {};
        ::stat((box + "/run/nvidia-persistenced/socket").c_str(), &socket);
        const bool written = ::open((own + "libcuda.so.1").c_str(), O_WRONLY) >= 0 ||
                             ::creat((own + "x").c_str(), 0644) >= 0 ||
                             ::unlink((own + "libcuda.so.1").c_str()) == 0;
        return list(own) + "\n" + read(own + "libcuda.so") + "\n" + read(own + "libbellows.so") +
               "\n" + read(own + "bin/nvidia-smi") + "\n" +
               (S_ISSOCK(socket.st_mode) ? "a socket" : "no socket") +
               (written ? ", written" : ", read-only");
      });
  expect_text(got,
              "bin libbellows.so libbellows.so.0 libcuda.so libcuda.so.1 libcuda.so.550.54.15 "
              "libnvcuvid.so.1 libnvcuvid.so.550.54.15 libnvidia-ml.so.1 libnvidia-ml.so.550.54.15 "
              "libnvidia-nvvm.so.4 libnvidia-nvvm.so.550.54.15 libnvidia-ptxjitcompiler.so.1 "
              "libnvidia-ptxjitcompiler.so.550.54.15\n"
              "text of /usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.54.15\n"
              "text of /usr/lib/libbellows.so.0\ntext of /usr/lib/nvidia/current/nvidia-smi\n"
              "a socket, read-only");
}

Test(driver_files, nothing_to_have) {
  auto places = open_driver_files(DriverPlan{}, -1, -1);
  cr_assert(places.ok());
  cr_expect(places->empty());
}

Test(driver_files, search_paths) {
  struct {
    const char* list;
    const char* first;
    const char* last;
  } const cases[] = {
      {"", "/d", "/d"},
      {"/a", "/d:/a", "/a:/d"},
      {"/a:/b", "/d:/a:/b", "/a:/b:/d"},
      {"/d", "/d", "/d"},
      {"/d:/a:/d", "/d:/a", "/a:/d"},
      {"/a:/dd", "/d:/a:/dd", "/a:/dd:/d"},
      {"/a::", "/d:/a::", "/a:::/d"},
  };
  for (const auto& c : cases) {
    expect_text(with_first(c.list, "/d"), c.first);
    expect_text(with_last(c.list, "/d"), c.last);
  }
}

TestSuite(ld_cache, .timeout = 60);

namespace {

const std::vector<CacheEntry> kEntries = {
    {kX86_64, "libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1", 0},
    {kX86_64, "libfast.so.1", "/lib/glibc-hwcaps/x86-64-v3/libfast.so.1", std::uint64_t{1} << 62},
    {kX86_64, "libfast.so.1", "/lib/libfast.so.1", 0},
    {kI386, "libcuda.so.1", "/lib32/libcuda.so.1", 0},
    {kX86_64, "libcuda.so.1", "/usr/lib/libcuda.so.1", 0},
    {kX86_64, "libcuda.so.1", "/opt/lib/libcuda.so.1", 0},
    {kAarch64, "libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1", 0},
    {0x0300, "libold.so.1", "/lib/libold.so.1", 0},
    {kX86_64, "../evil", "/lib/evil", 0},
    {kX86_64, "librelative.so", "lib/librelative.so", 0},
};

std::string entries_of(const std::string& data, Machine machine = Machine::x86_64) {
  auto entries = parse_ld_cache(data, machine);
  if (!entries) return entries.error().text;
  std::string text;
  for (const LdCacheEntry& entry : *entries) text += entry.name + " " + entry.path + "\n";
  return text;
}

const std::string kOfX86 =
    "libz.so.1 /lib/x86_64-linux-gnu/libz.so.1\nlibfast.so.1 /lib/libfast.so.1\n"
    "libcuda.so.1 /usr/lib/libcuda.so.1\nlibcuda.so.1 /opt/lib/libcuda.so.1\n";

}  // namespace

Test(ld_cache, both_formats_and_machines) {
  expect_text(entries_of(new_cache(kEntries)), kOfX86);
  expect_text(entries_of(old_and_new_cache(kEntries)), kOfX86);
  expect_text(entries_of(new_cache(kEntries), Machine::aarch64),
              "libcuda.so.1 /usr/lib/aarch64-linux-gnu/libcuda.so.1\n");
  expect_text(entries_of(new_cache({})), "");
}

Test(ld_cache, damaged) {
  const std::string good = new_cache(kEntries);
  const std::string both = old_and_new_cache(kEntries);
  // The last entry's path ends the file, so each byte less is an entry out of it, or worse.
  for (std::size_t size = 0; size < good.size(); size++)
    cr_expect(entries_of(good.substr(0, size)).starts_with("/etc/ld.so.cache: "), "%zu", size);
  for (std::size_t size = 0; size < both.size(); size++)
    cr_expect(entries_of(both.substr(0, size)).starts_with("/etc/ld.so.cache: "), "%zu", size);
  std::string bytes = good;
  bytes.replace(20, 4, "\xff\xff\xff\xff", 4);
  cr_expect(entries_of(bytes).find("truncated") != std::string::npos);
  bytes = both;
  bytes.replace(12, 4, "\xff\xff\xff\xff", 4);
  cr_expect(entries_of(bytes).find("not in the format") != std::string::npos);
  bytes = good;
  bytes.replace(48 + 8, 4, "\xf0\xff\xff\xff", 4);
  cr_expect(entries_of(bytes).find("an entry points out of it") != std::string::npos);
  bytes = good;
  bytes[28] = 3;
  cr_expect(entries_of(bytes).find("the other byte order") != std::string::npos);
}

Test(ld_cache, a_name_without_an_end) {
  const std::string path = "/" + std::string(5000, 'x');
  cr_expect(entries_of(new_cache({{kX86_64, "libx.so", path, 0}})).find("points out of it") !=
            std::string::npos);
}

/// ldconfig's own work, not this test's idea of it.
Test(ld_cache, of_this_machine) {
  if (!fs::exists("/etc/ld.so.cache")) cr_skip_test("this machine has no ld.so.cache");
  auto entries = parse_ld_cache(read("/etc/ld.so.cache"), this_machine());
  cr_assert(entries.ok(), "%s", entries.ok() ? "" : entries.error().text.c_str());
  bool found = false;
  for (const LdCacheEntry& entry : *entries) {
    if (entry.name != "libc.so.6") continue;
    found = true;
    cr_expect(fs::exists(entry.path), "%s", entry.path.c_str());
  }
  cr_expect(found, "%zu entries, and no libc.so.6", entries->size());
}
