// SPDX-License-Identifier: Apache-2.0
// Look-ups inside a root, and capabilities.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "spank/container/capabilities.h"
#include "spank/container/mount_api.h"
#include "spank/container/pmix_files.h"
#include "spank/container/skeleton.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(rootfs_paths, .timeout = 60);

/// A directory to be looked at as a root.
struct Root : World {
  Root() {
    directory("root/etc/deep");
    file("root/etc/file", "inside");
    file("outside", "outside");
    fd.reset(::open(path("root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void link(const std::string& name, const std::string& to) const {
    std::filesystem::create_symlink(to, path("root/" + name));
  }
  std::string resolved(const char* name) const {
    auto found = resolve_links(fd.get(), name);
    return found ? *found : found.error().text;
  }
  std::string read(const char* name) const {
    auto found = open_in_root(fd.get(), name, O_PATH);
    return found ? text_of(descriptor_path(found->get())) : found.error().text;
  }
  Fd fd;
};

Test(rootfs_paths, pmix_names_that_are_none) {
  const PmixFiles own("/spool/pmix.3.0/");
  cr_expect(static_cast<bool>(own));
  EQUALS(own.from(), "/spool/pmix.3.0");
  EQUALS(own.to(), "/tmp/.pmix.3.0");
  for (const char* path : {"", "/", "//", "/spool/.", "/spool/./", "/spool/..", ".", ".."})
    cr_expect(!PmixFiles(path), "%s", path);
}

Test(rootfs_paths, a_session_directory_keeps_its_place) {
  NEEDS_ROOT();
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/spmix_appdir_0_3.0";
  cr_assert_eq(::mkdir(path.c_str(), 0700), 0);
  auto used = PmixFiles::session(path, true);
  EQUALS(used.to(), "/tmp/spmix_appdir_0_3.0");
  const Status opened = used.open();
  cr_expect(opened.ok() && used, "%s",
            opened.ok() ? "taken for another's" : opened.error().text.c_str());
  cr_assert_eq(::chmod(path.c_str(), 0755), 0);
  auto forged = PmixFiles::session(path, true);
  cr_expect(forged.open().ok() && !forged, "slurmstepd makes it for its user alone");
}

Test(rootfs_paths, links_are_resolved_inside) {
  const Root root;
  root.link("a", "/etc");
  root.link("etc/up", "../../../a/./file");
  root.link("host", "../outside");
  root.link("dangling", "/none/../new//there");
  root.link("loop", "loop");
  for (const auto& [name, found] : {std::pair<const char*, const char*>{"/", ""},
                                    {"a/up", "etc/file"},
                                    {"/a/deep/../file", "etc/file"},
                                    {"host", "outside"},
                                    {"dangling/x", "new/there/x"},
                                    {"none/../../../etc", "etc"},
                                    {"loop", "loop: too many links"}})
    EQUALS(root.resolved(name), found);
  EQUALS(root.read("/a/up"), "inside");
  EQUALS(root.read("host"), "cannot open host: No such file or directory");
  EQUALS(root.read((root.path("outside")).c_str()),
         "cannot open " + root.path("outside") + ": No such file or directory");
}

Test(rootfs_paths, missing_targets_are_made_inside) {
  const Root root;
  root.link("dangling", "/../new/there");
  cr_expect(open_target(root.fd.get(), "dangling/deep", true, true).ok());
  cr_expect(open_target(root.fd.get(), "../../etc/deep/file", false, true).ok());
  cr_expect(!open_target(root.fd.get(), "none", true, false).ok());
  cr_expect(!open_target(root.fd.get(), "etc/file/below", true, true).ok());
  cr_expect(std::filesystem::is_directory(root.path("root/new/there/deep")));
  cr_expect(std::filesystem::is_regular_file(root.path("root/etc/deep/file")));
  cr_expect(!std::filesystem::exists(root.path("new")));
}

Test(rootfs_paths, beneath_is_stricter) {
  const Root root;
  root.link("etc/absolute", "/etc/file");
  root.link("etc/up", "../../outside");
  root.link("etc/good", "../etc/file");
  for (const char* name : {"etc/absolute", "etc/up", "..", "/etc/file"})
    cr_expect(!open_beneath(root.fd.get(), name, O_PATH).ok(), "%s", name);
  cr_expect(open_beneath(root.fd.get(), "etc/good", O_PATH).ok());
}

Test(rootfs_paths, directories_are_copied_without_their_files) {
  const Root root;
  root.link("etc/link", "deep");
  root.directory("copy/etc");
  ::chmod(root.path("root/etc/deep").c_str(), 0055);
  const Fd to(::open(root.path("copy").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  cr_expect(copy_directories(root.fd.get(), to.get()).ok());
  EQUALS(names_in(root.path("copy")) + "|" + names_in(root.path("copy/etc")), "etc|deep");
  struct stat info {};
  cr_assert(::stat(root.path("copy/etc/deep").c_str(), &info) == 0);
  cr_expect((info.st_mode & 07777) == 0755, "%o", info.st_mode);
  std::string deep = "root/";
  for (int i = 0; i < 80; i++) deep += "d/";
  root.directory(deep);
  cr_expect(copy_directories(root.fd.get(), to.get()).ok());
  cr_expect(std::filesystem::exists(root.path("copy/" + deep.substr(5, 2 * 64))));
  cr_expect(!std::filesystem::exists(root.path("copy/" + deep.substr(5, 2 * 65))));
}

std::string effective() {
  const std::string status = text_of("/proc/self/status");
  const auto at = status.find("CapEff:\t") + 8;
  return status.substr(at, status.find('\n', at) - at);
}

Test(rootfs_paths, capabilities_are_raised_for_a_while) {
  NEEDS_ROOT();
  EQUALS(run_as_user({},
                     [] {
                       std::string found = effective();
                       {
                         const auto outer = Raised::raise(CAP_SYS_ADMIN);
                         { const auto inner = Raised::raise(CAP_SYS_ADMIN); }
                         const auto other = Raised::raise(CAP_DAC_OVERRIDE);
                         found += " " + effective() + " " + opens("/etc/shadow", O_RDONLY);
                       }
                       found += " " + effective() + " " + opens("/etc/shadow", O_RDONLY);
                       return found + (Raised::raise(CAP_KILL).ok() ? " more" : " no more");
                     }),
         "0000000000000000 0000000000200002 yes 0000000000000000 Permission denied no more");
  EQUALS(run_as_user({},
                     [] {
                       if (!drop_all(false)) return "not dropped";
                       return Raised::raise(CAP_SYS_ADMIN).ok() ? "again" : "gone";
                     }),
         "gone");
}

}  // namespace
