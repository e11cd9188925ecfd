// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(rootfs, .timeout = 60);

/// A world with one image of the usual directories.
struct OneImage : World {
  OneImage() {
    tree("tree");
    file("tree/hello", "hello");
  }
  /// Call when the tree is complete.
  Spec spec() const {
    Spec spec;
    spec.image = squash("tree", "a.sqsh");
    return spec;
  }
  Spec of_directory() const {
    Spec spec;
    spec.image = path("tree");
    return spec;
  }
};

std::string options_of_all() {
  std::string found;
  for (const char* path : {"/", "/proc", "/sys", "/dev", "/tmp", "/dev/shm", "/etc/hosts"})
    found += std::string(path) + " " + options_at(path) + "\n";
  return found;
}

constexpr const char* kOptions =
    "/ ro,nosuid,nodev\n/proc rw,nosuid,nodev,noexec\n/sys ro,nosuid,nodev,noexec\n"
    "/dev ro,nosuid,nodev,noexec\n/tmp rw,nosuid,nodev\n/dev/shm rw,nosuid,nodev\n"
    "/etc/hosts ro,nosuid,nodev,noexec\n";

Test(rootfs, squashfs_image) {
  NEEDS_ROOT();
  const OneImage world;
  const auto spec = world.spec();
  EQUALS(world.in_container(spec, [] { return text_of("/hello") + options_of_all(); }),
         std::string("hello") + kOptions);
}

Test(rootfs, image_directory) {
  NEEDS_ROOT();
  const OneImage world;
  EQUALS(
      world.in_container(world.of_directory(), [] { return text_of("/hello") + options_of_all(); }),
      std::string("hello") + kOptions);
}

Test(rootfs, image_directory_is_written_where_the_user_may) {
  NEEDS_ROOT();
  const OneImage world;
  world.directory("tree/mine");
  world.give("tree/mine");
  auto spec = world.of_directory();
  const auto create = [] { return opens("/mine/new", O_WRONLY | O_CREAT); };
  EQUALS(world.in_container(spec, create), "Read-only file system");
  spec.writable = true;
  EQUALS(world.in_container(spec, create), "yes");
  cr_expect(std::filesystem::exists(world.path("tree/mine/new")));
  EQUALS(world.in_container(spec, [] { return opens("/hello", O_WRONLY); }), "Permission denied");
}

// An image of one file has no mount point at all, and no shell.
Test(rootfs, image_of_one_program) {
  NEEDS_ROOT();
  World world;
  world.directory("tree");
  std::filesystem::copy_file("/bin/busybox", world.path("tree/busybox"));
  Spec spec;
  for (const auto& image : {world.squash("tree", "a.sqsh"), world.path("tree")}) {
    spec.image = image;
    EQUALS(world.in_container(spec,
                              [] {
                                return names_in("/") + "\n" + options_at("/") + "\n" +
                                       output_of({"/busybox", "cat", "/proc/self/comm"});
                              }),
           "busybox dev proc sys tmp var\nro,nosuid,nodev\nbusybox");
  }
  EQUALS(names_in(world.path("tree")), "busybox");
}

Test(rootfs, an_imported_image_is_not_written) {
  NEEDS_ROOT();
  OneImage world;
  world.directory("tree/mine");
  world.give("tree/mine");
  world.give("tree/hello");
  world.imported = world.path("tree");
  Spec spec;
  spec.image = "docker://registry.example.org/image:1";
  const auto write = [] {
    std::string found = text_of("/hello");
    found += " " + opens("/mine/new", O_WRONLY | O_CREAT);
    found += " " + opens("/hello", O_WRONLY | O_TRUNC);
    return found + " " + text_of("/hello") + " " + options_at("/");
  };
  EQUALS(world.in_container(spec, write),
         "hello Read-only file system Read-only file system hello ro,nosuid,nodev");
  spec.writable = true;
  EQUALS(world.in_container(spec, write), "hello yes yes  rw,nosuid,nodev");
  EQUALS(names_in(world.path("tree/mine")), "");
  EQUALS(text_of(world.path("tree/hello")), "hello");
}

/// Squashfs lets its owners be mapped since Linux 6.2.
bool maps_owners() {
  utsname name{};
  int major = 0;
  int minor = 0;
  return ::uname(&name) == 0 && std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         std::pair(major, minor) >= std::pair(6, 2);
}

Test(rootfs, writable_squashfs_forgets) {
  NEEDS_ROOT();
  const OneImage world;
  world.file("tree/deep/er/old", "old", 0600);
  world.file("tree/others", "theirs");
  world.give("tree/others", 33);
  auto spec = world.spec();
  spec.writable = true;
  spec.tmp_mib = 1;
  const auto write = [] {
    std::string found = opens("/deep/er/new", O_WRONLY | O_CREAT | O_EXCL);
    found += " " + opens("/others", O_WRONLY) + " " + text_of("/others") + " ";
    const std::string big(2 << 20, 'x');
    const Fd fd(::open("/deep/er/new", O_WRONLY | O_CLOEXEC));
    found += write_all(fd.get(), big, "it") ? "unbounded " : "bounded ";
    return found + (::unlink("/deep/er/old") == 0 ? "gone" : "kept");
  };
  EQUALS(world.in_container(spec, write), "yes Permission denied theirs bounded gone");
  EQUALS(world.in_container(spec, write), "yes Permission denied theirs bounded gone");
  // What cannot be written to can still be replaced where owners are not mapped.
  EQUALS(world.in_container(spec, [] { return opens("/deep/er/old", O_RDWR); }),
         maps_owners() ? "yes" : "Permission denied");
}

Test(rootfs, small_dev) {
  NEEDS_ROOT();
  OneImage world;
  const auto spec = world.spec();
  EQUALS(world.in_container(spec, [] { return names_in("/dev") + "\n" + names_in("/dev/pts"); }),
         "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero\nptmx");
  EQUALS(world.in_container(spec,
                            [] {
                              char zero = 'x';
                              const Fd from(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
                              const bool read = ::read(from.get(), &zero, 1) == 1 && zero == 0;
                              return opens("/dev/null", O_RDWR) + (read ? " zero " : " ? ") +
                                     options_at("/dev/null") + " " + opens("/dev/ptmx", O_RDWR) +
                                     " " + opens("/dev/new", O_WRONLY | O_CREAT);
                            }),
         "yes zero rw,nosuid,noexec yes Read-only file system");
}

Test(rootfs, devices_of_the_site) {
  NEEDS_ROOT();
  OneImage world;
  const auto spec = world.spec();
  world.site.devices = {"/dev/loop-contr*", "/dev/pts", "/dev/none*", "/dev/../etc/passwd"};
  EQUALS(world.in_container(spec, [] { return names_in("/dev"); }),
         "fd full loop-control null ptmx pts random shm stderr stdin stdout tty urandom zero");
  world.site.devices = {"/etc/*"};
  REFUSED(world.in_container(spec, [] { return ""; }), "/etc/* is not below /dev");
}

Test(rootfs, console) {
  NEEDS_ROOT();
  OneImage world;
  const Fd pty(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  cr_assert(pty && ::grantpt(pty.get()) == 0 && ::unlockpt(pty.get()) == 0);
  world.console = ::ptsname(pty.get());
  cr_assert(::chown(world.console.c_str(), kUser, kUser) == 0);
  const auto spec = world.spec();
  EQUALS(world.in_container(spec,
                            [] {
                              const Fd fd(::open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC));
                              return ::isatty(fd.get()) == 1 ? "terminal" : "none";
                            }),
         "terminal");
  world.console = world.path("tree/hello");
  REFUSED(world.in_container(spec, [] { return ""; }), "is not a device node");
}

// Many images have a link there; /tmp must not be hidden by what is meant for /var/tmp.
Test(rootfs, var_tmp_that_is_a_link_to_tmp) {
  NEEDS_ROOT();
  OneImage world;
  std::filesystem::remove(world.path("tree/var/tmp"));
  std::filesystem::create_symlink("../tmp", world.path("tree/var/tmp"));
  const auto spec = world.spec();
  const auto mark = world.file("mark", "host's /tmp");
  EQUALS(world.in_container(spec, [&mark] { return text_of(mark) + "|" + text_of("/var" + mark); }),
         "host's /tmp|host's /tmp");
}

Test(rootfs, network_and_machine_are_the_hosts) {
  NEEDS_ROOT();
  const OneImage world;
  auto spec = world.spec();
  const auto read = [] {
    return text_of("/etc/hosts") + "|" + text_of("/etc/machine-id") + "|" +
           text_of("/etc/hostname");
  };
  const std::string hosts = read();
  EQUALS(world.in_container(spec, read), hosts);
  spec.unshare_uts = true;
  EQUALS(world.in_container(spec, read), hosts.substr(0, hosts.rfind('|') + 1));
}

Test(rootfs, accounts_of_an_image_that_lacks_the_user) {
  NEEDS_ROOT();
  const OneImage world;
  world.file("tree/etc/passwd", "bin:x:1:1::/:/bin/sh\n");
  world.file("tree/etc/group", "root:x:0:\n");
  const auto spec = world.spec();
  EQUALS(world.in_container(spec, [] { return text_of("/etc/passwd") + text_of("/etc/group"); }),
         "user:*:20001:20001::" + world.home +
             ":/bin/sh\nroot:*:0:0:root:/root:/bin/sh\nbin:x:1:1::/:/bin/sh\n"
             "user:x:20001:\nroot:x:0:\n");
  EQUALS(world.in_container(spec, [] { return opens("/etc/passwd", O_WRONLY); }),
         "Read-only file system");
}

/// A file system that only this process sees, with a directory of the user's.
void mount_home() {
  cr_assert(::mount("home", "/srv", "tmpfs", 0, "mode=0755") == 0);
  cr_assert(::mkdir("/srv/user", 0700) == 0 && ::chown("/srv/user", kUser, kUser) == 0);
}

Test(rootfs, home) {
  NEEDS_ROOT();
  OneImage world;
  world.home = "/srv/user";
  auto spec = world.spec();
  const auto look = [] { return options_at("/srv/user"); };
  EQUALS(world.in_container(spec, look, mount_home), "No such file or directory");
  spec.mount_home = true;
  EQUALS(world.in_container(spec, look, mount_home), "rw,nosuid,nodev");
}

Test(rootfs, workdir) {
  NEEDS_ROOT();
  const OneImage world;
  auto spec = world.spec();
  const auto where = [] { return std::filesystem::current_path().string(); };
  EQUALS(world.in_container(spec, where), "/");
  for (const auto& [wanted, found] : {std::pair<const char*, const char*>{"/etc", "/etc"},
                                      {"/etc/../../..", "/"},
                                      {"../../bin", "/bin"}}) {
    spec.workdir = wanted;
    EQUALS(world.in_container(spec, where), found);
  }
  spec.workdir = "/none";
  EQUALS(
      world.in_container(spec, where),
      "error: entering the container: cannot open /none: No such file or directory; name another "
      "directory in --container-workdir");
}

// As enroot writes it there, and never by a shell.
Test(rootfs, images_own_workdir) {
  NEEDS_ROOT();
  OneImage world;
  auto spec = world.spec();
  spec.image = world.tree("rc");
  world.directory("rc/work space");
  world.directory("rc/closed", 0700);
  const auto where = [] { return std::filesystem::current_path().string(); };
  const auto starts_in = [&](const std::string& script) {
    world.file("rc/etc/rc", script);
    return world.in_container(spec, where);
  };
  const std::string script =
      "# a label: cd \"/etc\"\n\nmkdir -p \"/x\" 2> /dev/null\ncd \"/work space\" && unset OLDPWD "
      "|| "
      "exit 1\n\nif [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\ncd \"/bin\"\n";
  EQUALS(starts_in(script), "/work space");
  EQUALS(starts_in("cd \"/../bin/../mnt\""), "/mnt");
  for (const char* unclear :
       {"cd \"$HOME\"", "cd \"`x`\"", "cd \"/a\\b\"", "cd /mnt", "cd \"/mnt", ""})
    EQUALS(starts_in(unclear), "/");
  for (const char* useless : {"cd \"/none\"", "cd \"/closed\"", "cd \"/etc/passwd\""})
    EQUALS(starts_in(useless), "/");
  world.file("rc/etc/rc", script);
  spec.workdir = "/etc";
  EQUALS(world.in_container(spec, where), "/etc");
}

// By what the phases are called, too: one whose fix is not found says only whom to tell.
Test(rootfs, refusals_say_what_to_do) {
  NEEDS_ROOT();
  OneImage world;
  const auto refused = [&world](Spec spec) { return world.in_container(spec, [] { return ""; }); };
  auto spec = world.spec();
  spec.mounts = {bound("/none", "/mnt")};
  REFUSED(
      refused(spec),
      "cannot open /none: No such file or directory (source path does not exist); check that the "
      "image, the");
  spec.mounts = {bound(world.path("tree"), "/proc/x")};
  REFUSED(refused(spec), "; name another target in --container-mounts, or make this one in");
  std::filesystem::remove(world.path("tree/tmp"));
  std::filesystem::remove(world.path("tree/proc"));
  auto lacking = world.of_directory();
  lacking.writable = true;
  REFUSED(refused(lacking), "; give the image directories at /proc, /sys, /dev, /tmp");
}

Test(rootfs, a_fix_is_said_once) {
  EQUALS(refusal("mounting the image", "a is truncated; copy it again"),
         "mounting the image: a is truncated; copy it again");
  EQUALS(refusal("making /dev", "cannot open /dev/tty: x"),
         "making /dev: cannot open /dev/tty: x; tell the administrator");
}

Test(rootfs, phases_are_timed_and_named) {
  NEEDS_ROOT();
  OneImage world;
  std::string names;
  world.observer = [&names](const char* name) { names += std::string(name) + "\n"; };
  EQUALS(world.in_container(world.spec(), [&names] { return names; }),
         "opening the image and the mounts\nmounting the image\nmounting the system's directories\n"
         "making /dev\nmounting the user's directories\nentering the container\n");
}

}  // namespace
