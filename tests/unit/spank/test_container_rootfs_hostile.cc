// SPDX-License-Identifier: Apache-2.0
// Images and users who mean harm: each attempt fails, and where it can be shown, the same succeeds
// without what stops it.
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(rootfs_hostile, .timeout = 120);

struct Hostile : World {
  Hostile() { tree("tree"); }
  Spec squashed(const std::string& name = "a.sqsh") const {
    Spec made;
    made.image = squash("tree", name);
    return made;
  }
  Spec of(const std::string& image) const {
    Spec made;
    made.image = image;
    return made;
  }
  std::string build(const Spec& made) const {
    return in_container(made, [] { return "built"; });
  }
  void link(const std::string& name, const std::string& to) const {
    std::filesystem::remove_all(path(name));
    std::filesystem::create_symlink(to, path(name));
  }
};

Test(rootfs_hostile, devices_in_an_image_are_dead) {
  NEEDS_ROOT();
  const Hostile world;
  const auto node = world.path("tree/null");
  cr_assert(::mknod(node.c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0);
  cr_assert(::chmod(node.c_str(), 0666) == 0);
  EQUALS(run_as_user({}, [&node] { return opens(node, O_RDWR); }), "yes");
  const auto look = [] { return opens("/null", O_RDWR); };
  EQUALS(world.in_container(world.squashed(), look), "Permission denied");
  EQUALS(world.in_container(world.of(world.path("tree")), look), "Permission denied");
  for (const bool writable : {false, true}) {
    auto spec = world.squashed();
    spec.writable = writable;
    spec.mounts = {bound(world.path("tree"), "/missing")};  // an overlay
    EQUALS(world.in_container(spec, look), "Permission denied");
    EQUALS(world.in_container(spec, [] { return opens("/missing/null", O_RDWR); }),
           "Permission denied");
  }
}

Test(rootfs_hostile, setuid_programs_gain_nothing) {
  NEEDS_ROOT();
  Hostile world;
  const auto source = world.file("id.c",
                                 "#include <stdio.h>\n#include <unistd.h>\n"
                                 "int main(void) { printf(\"%d\\n\", (int)geteuid()); }\n");
  const std::string build = "cc -static -o " + world.path("tree/id") + " " + source;
  if (std::system(build.c_str()) != 0) cr_skip_test("needs a compiler and a static libc");
  cr_assert(::chmod(world.path("tree/id").c_str(), 04755) == 0);
  world.no_new_privs = false;
  const auto look = [] { return output_of({"/id"}); };
  EQUALS(world.in_container(world.squashed(), look), "20001");
  EQUALS(world.in_container(world.of(world.path("tree")), look), "20001");
  auto spec = world.squashed();
  spec.mounts = {bound(world.path("tree"), "/missing")};
  EQUALS(world.in_container(spec, look), "20001");
  EQUALS(world.in_container(spec, [] { return output_of({"/missing/id"}); }), "20001");
}

// As root the program would gain them: the control of the test above.
Test(rootfs_hostile, setuid_programs_gain_it_outside) {
  NEEDS_ROOT();
  const Hostile world;
  const auto program = world.path("sh");
  std::filesystem::copy_file("/bin/dash", program);
  cr_assert(::chmod(program.c_str(), 04755) == 0);
  EQUALS(
      run_as_user({},
                  [&program] {
                    return output_of({program, "-p", "-c", "cat /etc/shadow | wc -l | grep -c ."});
                  }),
      "1");
}

/// A directory of the host's at /srv/outside that everybody may write to.
void mount_outside(Fd& outside) {
  cr_assert(::mount("outside", "/srv", "tmpfs", 0, "mode=0755") == 0);
  cr_assert(::mkdir("/srv/outside", 0777) == 0 && ::chmod("/srv/outside", 0777) == 0);
  outside.reset(::open("/srv/outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

Test(rootfs_hostile, links_in_the_image_stay_in_it) {
  NEEDS_ROOT();
  const Hostile world;
  world.file("source/file", "mounted");
  for (const auto& to : {std::string("/srv/outside"), std::string("../../../../../srv/outside")}) {
    for (const std::string place : {"tmp", "proc", "dev", "mnt"})
      world.link("tree/" + place, to + "/" + place);
    for (const auto& image : {world.squash("tree", "a.sqsh"), world.path("tree")}) {
      auto spec = world.of(image);
      spec.mounts = {bound(world.path("source"), "/mnt")};
      Fd outside;
      const auto look = [&outside] {
        const std::string host = "/srv/outside/proc/self/fd/" + std::to_string(outside.get());
        return opens("/srv/outside/dev/null", O_RDWR) + " " + text_of("/srv/outside/mnt/file") +
               " " + names_in("/srv/outside") + " host: " + names_in(host);
      };
      EQUALS(world.in_container(spec, look, [&outside] { mount_outside(outside); }),
             "yes mounted dev mnt proc tmp host: ");
    }
  }
}

/// Where a mount of the container's would hide a part of /proc from who joins, or be one for the
/// user to mount in.
Test(rootfs_hostile, links_into_proc_are_refused) {
  NEEDS_ROOT();
  for (const std::string place : {"tmp", "dev", "sys", "etc/hosts"}) {
    const Hostile world;
    const bool file = place == "etc/hosts";
    world.link("tree/" + place, file ? "../proc/uptime" : "proc/driver");
    for (const auto& image : {world.squash("tree", "a.sqsh"), world.path("tree")}) {
      const std::string said = world.build(world.of(image));
      REFUSED(said, "mounting the system's directories: a mount at /" + place +
                        " is refused: it is in /proc");
      REFUSED(said, "; give the image directories at /proc, /sys, /dev, /tmp and /var/tmp");
    }
  }
  const Hostile world;
  world.link("tree/tmp", ".");
  REFUSED(world.build(world.squashed()), "a mount at /tmp is refused: it is the container's root");
}

Test(rootfs_hostile, etc_that_leads_out_of_the_image) {
  NEEDS_ROOT();
  const Hostile world;
  world.link("tree/etc", "../../../../../../etc");  // so to itself
  EQUALS(world.in_container(world.squashed(), [] { return opens("/etc/hosts", O_RDONLY); }),
         "Too many levels of symbolic links");
  world.link("tree/etc", "/srv/outside");
  Fd outside;
  EQUALS(world.in_container(
             world.squashed(),
             [&outside] { return names_in("/proc/self/fd/" + std::to_string(outside.get())); },
             [&outside] { mount_outside(outside); }),
         "");
}

Test(rootfs_hostile, files_where_directories_belong) {
  NEEDS_ROOT();
  const Hostile world;
  std::filesystem::remove(world.path("tree/proc"));
  world.file("tree/proc", "no directory");
  REFUSED(world.build(world.squashed()), "Not a directory (for the mount at /proc)");
  std::filesystem::remove(world.path("tree/proc"));
  cr_assert(::mkfifo(world.path("tree/etc/fifo").c_str(), 0666) == 0);
  world.link("tree/etc/passwd", "fifo");
  EQUALS(world.build(world.squashed()), "built");
}

Test(rootfs_hostile, squashfs_of_the_users) {
  NEEDS_ROOT();
  const Hostile world;
  const auto spec = world.squashed();
  EQUALS(world.build(spec), "built");
  world.give("images/a.sqsh");
  REFUSED(world.build(spec), "only its administrator may own it or write to it");
  world.give("images/a.sqsh", 20002);
  REFUSED(world.build(spec), "only its administrator may own it or write to it");
  world.give("images/a.sqsh", 0);
  ::chmod(spec.image.c_str(), 0646);
  REFUSED(world.build(spec), "only its administrator may own it or write to it");
  cr_assert(::chown(spec.image.c_str(), 0, kUser) == 0);
  ::chmod(spec.image.c_str(), 0664);
  REFUSED(world.build(spec), "only its administrator may own it or write to it");
  // Writable for others than the one who runs it.
  cr_assert(::chown(spec.image.c_str(), 0, 20002) == 0);
  ::chmod(spec.image.c_str(), 0664);
  REFUSED(world.build(spec), "only its administrator may own it or write to it");
  cr_assert(::chown(spec.image.c_str(), 0, kUser) == 0);
  ::chmod(spec.image.c_str(), 0600);
  REFUSED(world.build(spec), "Permission denied");
  ::chmod(spec.image.c_str(), 0640);
  EQUALS(world.build(spec), "built");
  // The directory's owner is its administrator.
  world.give("images", 20002);
  world.give("images/a.sqsh", 20002);
  ::chmod(spec.image.c_str(), 0644);
  EQUALS(world.build(spec), "built");
}

Test(rootfs_hostile, images_of_a_group) {
  NEEDS_ROOT();
  constexpr unsigned group = 20109;
  Hostile world;
  const auto squashed = world.squashed();
  const auto directory = world.of(world.path("tree"));
  for (const auto& [image, mode] :
       {std::pair(squashed.image, 0640U), std::pair(directory.image, 0750U)})
    cr_assert(::chown(image.c_str(), 0, group) == 0 && ::chmod(image.c_str(), mode) == 0);
  for (const auto& spec : {squashed, directory}) {
    world.groups = {group - 1};
    REFUSED(world.build(spec), "Permission denied");
    world.groups = {group - 1, group};
    EQUALS(world.build(spec), "built");
  }
}

/// What the importer names is its user's word.
Test(rootfs_hostile, what_was_imported_is_a_directory) {
  NEEDS_ROOT();
  World world;
  world.tree("tree");
  Spec spec;
  spec.image = "docker://registry.example.org/image:1";
  world.imported = world.squash("tree", "a.sqsh");
  REFUSED(world.in_container(spec, [] { return "in"; }), "is not the root directory of an image");
  world.imported = world.directory("closed", 0700);
  REFUSED(world.in_container(spec, [] { return "in"; }), "Permission denied");
  world.imported = "/proc/self/root";
  REFUSED(world.in_container(spec, [] { return "in"; }), "");
}

Test(rootfs_hostile, squashfs_elsewhere) {
  NEEDS_ROOT();
  Hostile world;
  world.site.squashfuse.clear();
  const auto spec = world.squashed();
  world.directory("other");
  std::filesystem::copy_file(spec.image, world.path("other/a.sqsh"));
  REFUSED(world.build(world.of(world.path("other/a.sqsh"))), "must lie in " + world.path("images"));
  REFUSED(world.build(world.of(world.path("images/../other/a.sqsh"))), "must not lead out");
  world.link("images/link.sqsh", "../other/a.sqsh");
  REFUSED(world.build(world.of(world.path("images/link.sqsh"))), "must not lead out");
  world.link("images/absolute.sqsh", world.path("other/a.sqsh"));
  REFUSED(world.build(world.of(world.path("images/absolute.sqsh"))), "must not lead out");
  world.link("images/good.sqsh", "a.sqsh");
  EQUALS(world.build(world.of(world.path("images/good.sqsh"))), "built");
  world.site.image_dirs.clear();
  REFUSED(world.build(spec), "the administrator has named no directory");
}

// Whoever can rename or mount there chooses what the kernel reads.
Test(rootfs_hostile, squashfs_in_directories_of_others) {
  NEEDS_ROOT();
  const Hostile world;
  world.directory("images/sub/deep");
  const auto spec = world.squashed("sub/deep/a.sqsh");
  world.link("images/link.sqsh", "sub/deep/a.sqsh");
  const std::vector<Spec> ways = {spec, world.of(world.path("images/link.sqsh"))};
  for (const auto& way : ways) EQUALS(world.build(way), "built");
  for (const char* name : {"images/sub", "images/sub/deep", "images", "."}) {
    const auto path = world.path(name);
    // The one of image_dirs may be another's, and with it all in it; none above it may.
    if (path != world.path("images")) {
      world.give(name, 20002);
      for (const auto& way : ways) REFUSED(world.build(way), "may change it");
      world.give(name, 0);
    }
    for (const unsigned mode : {0775U, 0757U}) {
      cr_assert(::chmod(path.c_str(), mode) == 0);
      for (const auto& way : ways) REFUSED(world.build(way), "may change it");
    }
    cr_assert(::chmod(path.c_str(), 01777) == 0);
    EQUALS(world.build(spec), "built");
    cr_assert(::chmod(path.c_str(), 0755) == 0);
  }
}

Test(rootfs_hostile, squashfs_in_a_mount_below) {
  NEEDS_ROOT();
  const Hostile world;
  const auto spec = world.squashed();
  world.directory("images/mounted");
  const auto mounted = world.path("images/mounted/a.sqsh");
  const auto inside = [] { return "built"; };
  REFUSED(world.in_container(world.of(mounted), inside,
                             [&] {
                               const auto dir = world.path("images/mounted");
                               cr_assert(::mount("none", dir.c_str(), "tmpfs", 0, "mode=755") == 0);
                               std::filesystem::copy_file(spec.image, mounted);
                             }),
          "nor into what is mounted in it");
}

/// Shows the tree of `outer` at `point` while the caller lives.
void serve(const std::string& outer, const std::string& point) {
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execlp("squashfuse", "squashfuse", "-f", "-o", "allow_other", outer.c_str(), point.c_str(),
             nullptr);
    ::_exit(127);
  }
  struct statfs system {};
  for (int i = 0; i < 2000 && system.f_type != FUSE_SUPER_MAGIC; ++i) {
    ::usleep(10000);
    ::statfs(point.c_str(), &system);
  }
}

Test(rootfs_hostile, squashfs_in_fuse) {
  NEEDS_ROOT();
  if (::access("/usr/bin/squashfuse", X_OK) != 0) cr_skip_test("squashfuse is not installed");
  const Hostile world;
  const auto spec = world.squashed();
  std::filesystem::copy_file(spec.image, world.path("tree/a.sqsh"));
  const auto outer = world.squash("tree", "outer.sqsh");
  REFUSED(world.in_container(
              world.of(world.path("images/a.sqsh")), [] { return "built"; },
              [&] { serve(outer, world.path("images")); }),
          "it is on a FUSE file system");
}

Test(rootfs_hostile, what_is_not_a_squashfs) {
  NEEDS_ROOT();
  const Hostile world;
  REFUSED(world.build(world.of(world.file("images/short", "hsqs"))), "is not a squashfs image");
  REFUSED(world.build(world.of(world.file("images/text", std::string(4096, 'x')))),
          "is not a squashfs image");
  const auto spec = world.squashed();
  std::filesystem::resize_file(spec.image, 100);
  REFUSED(world.build(spec), "is truncated: 100 of ");
  cr_assert(::mkfifo(world.path("images/fifo").c_str(), 0644) == 0);
  REFUSED(world.build(world.of(world.path("images/fifo"))), "is neither a squashfs file nor");
  REFUSED(world.build(world.of(world.path("images/none"))), "No such file");
}

// One that the kernel refuses: its own words reach the user, and the loop device goes.
Test(rootfs_hostile, what_the_kernel_refuses) {
  NEEDS_ROOT();
  const Hostile world;
  const auto spec = world.squashed();
  const Fd fd(::open(spec.image.c_str(), O_WRONLY | O_CLOEXEC));
  cr_assert(::pwrite(fd.get(), "\xff\xff\xff\xff", 4, 12) == 4);  // the block size
  const std::string said = world.build(spec);
  REFUSED(said, "mounting the image: " + spec.image + ": cannot create squashfs");
  REFUSED(said, "; try another image, and rebuild this one if that one works");
}

/// What each of the process's descriptors from the third on is and whether exec closes it.
std::string descriptors() {
  std::string found;
  for (int fd = 3; fd < 1024; fd++) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) found += std::to_string(fd) + " ";
  }
  return found;
}

Test(rootfs_hostile, no_descriptor_is_left) {
  NEEDS_ROOT();
  const Hostile world;
  auto spec = world.squashed();
  spec.mounts = {bound(world.path("tree"), "/mnt")};
  EQUALS(run_as_user({},
                     [&]() -> std::string {
                       const std::string before = names_in("/proc/self/fd");
                       const std::string inherited = descriptors();
                       const auto none = [] { return ""; };
                       Phases phases;
                       const std::string error = world.World::build(spec, {}, none, phases);
                       if (!error.empty()) return error;
                       const bool same = names_in("/proc/self/fd") == before;
                       return (same ? "same " : "more ") +
                              std::string(descriptors() == inherited ? "closed" : "open");
                     }),
         "same closed");
}

// Each is open at its worst moment: when the last phase begins.
Test(rootfs_hostile, all_descriptors_are_closed_by_exec) {
  NEEDS_ROOT();
  Hostile world;
  auto spec = world.squashed();
  spec.writable = true;
  spec.mounts = {bound(world.path("tree"), "/mnt")};
  std::string before = "unset";
  std::string during;
  world.observer = [&](const char*) {
    if (before == "unset") before = descriptors();
    during = descriptors();
  };
  EQUALS(world.in_container(spec, [&] { return before == during ? "closed" : during; }), "closed");
}

Test(rootfs_hostile, the_host_is_out_of_reach) {
  NEEDS_ROOT();
  Hostile world;
  auto spec = world.squashed();
  spec.workdir = "/proc/self/fd/9";
  const Fd root(::open("/", O_PATH | O_CLOEXEC));
  cr_assert(::dup2(root.get(), 9) == 9);
  REFUSED(world.build(spec),
          "entering the container: cannot open /proc/self/fd/9: Too many levels");
  spec.workdir = "/proc/self/cwd";
  REFUSED(world.build(spec), "Too many levels");
  spec.workdir.reset();
  EQUALS(world.in_container(spec,
                            [] {
                              std::string up = opens("../../../../../../home/none", O_RDONLY);
                              up += " " + names_in("/proc/self/cwd/..");
                              return up + " " + names_in("/proc/self/root/..");
                            }),
         "No such file or directory bin dev etc home mnt proc root sys tmp var "
         "bin dev etc home mnt proc root sys tmp var");
}

Test(rootfs_hostile, only_the_containers_mounts_are_there) {
  NEEDS_ROOT();
  const Hostile world;
  const std::string table =
      world.in_container(world.squashed(), [] { return text_of("/proc/self/mountinfo"); });
  cr_expect(table.find(" / ro,nosuid,nodev,relatime - squashfs") != std::string::npos, "%s",
            table.c_str());
  cr_expect(table.find("/ns ") == std::string::npos, "%s", table.c_str());
  cr_expect(table.find(" shared:") == std::string::npos, "%s", table.c_str());
  cr_expect(table.find(" master:") == std::string::npos, "%s", table.c_str());
}

Test(rootfs_hostile, no_capability_is_left) {
  NEEDS_ROOT();
  const Hostile world;
  EQUALS(world.in_container(world.squashed(),
                            [] {
                              std::string found;
                              const std::string status = text_of("/proc/self/status");
                              for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd",
                                                      "CapAmb", "NoNewPrivs"}) {
                                const auto at = status.find(set);
                                const auto end = status.find('\n', at);
                                found += status.substr(status.find('\t', at) + 1,
                                                       end - status.find('\t', at) - 1) +
                                         " ";
                              }
                              found += ::mount("x", "/mnt", "tmpfs", 0, nullptr) == 0 ? "mounts"
                                                                                      : "none";
                              return found;
                            }),
         "0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 1 "
         "none");
}

// A container's mounts are its own, and what is mounted outside later stays outside.
Test(rootfs_hostile, mounts_do_not_travel) {
  NEEDS_ROOT();
  const Hostile world;
  const auto later = world.directory("later");
  auto spec = world.squashed();
  spec.mounts = {bound(world.path(""), "/mnt")};
  int go[2];
  int done[2];
  cr_assert(::pipe2(go, O_CLOEXEC) == 0 && ::pipe2(done, O_CLOEXEC) == 0);
  // The host's tree as a distribution has it: shared.
  cr_assert(::unshare(CLONE_NEWNS) == 0);
  cr_assert(::mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr) == 0);
  std::thread host([&] {
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return;
    (void)::mount("later", later.c_str(), "tmpfs", 0, nullptr);
    std::ofstream(later + "/file") << "seen";
    (void)::write(done[1], "x", 1);
  });
  EQUALS(world.in_container(spec,
                            [&] {
                              char byte = 0;
                              (void)::write(go[1], "x", 1);
                              if (::read(done[0], &byte, 1) != 1) return std::string("no host");
                              return names_in("/mnt/later") + "|" + text_of("/mnt/later/file");
                            }),
         "|unreadable: No such file or directory");
  host.join();
  EQUALS(text_of(later + "/file"), "seen");
  (void)::umount2(later.c_str(), MNT_DETACH);
}

}  // namespace
