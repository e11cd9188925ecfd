// SPDX-License-Identifier: Apache-2.0
// --container-mounts: with the user's rights and in the container's tree, or not at all.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/text.h"
#include "spank/container/capabilities.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(rootfs_mounts, .timeout = 60);

/// A world with an image and a directory of the host's that others may read.
struct Mounts : World {
  Mounts() {
    tree("tree");
    file("host/file", "from the host");
    spec.image = squash("tree", "a.sqsh");
  }
  std::string with(std::vector<Mount> mounts, const std::function<std::string()>& inside,
                   const std::function<void()>& as_root = {}) {
    spec.mounts = std::move(mounts);
    return in_container(spec, inside, as_root);
  }
  std::string refused(const Mount& mount, const std::function<void()>& as_root = {}) {
    return with(
        {mount}, [] { return "mounted"; }, as_root);
  }
  Spec spec;
};

Test(rootfs_mounts, files_and_directories) {
  NEEDS_ROOT();
  Mounts world;
  world.give("host");
  const auto source = world.path("host");
  EQUALS(world.with({bound(source, "/mnt"), bound(source + "/file", "/etc/hosts")},
                    [] { return text_of("/mnt/file") + "|" + text_of("/etc/hosts"); }),
         "from the host|from the host");
  EQUALS(
      world.with({bound(source, "/mnt")},
                 [] { return options_at("/mnt") + " " + opens("/mnt/new", O_CREAT | O_WRONLY); }),
      "rw,nosuid,nodev yes");
}

Test(rootfs_mounts, missing_targets_are_made) {
  NEEDS_ROOT();
  Mounts world;
  const auto source = world.path("host");
  const std::vector<Mount> mounts = {bound(source, "/new/deep/er"),
                                     bound(source + "/file", "/other/file")};
  const auto look = [] {
    return text_of("/new/deep/er/file") + "|" + text_of("/other/file") + "|" + names_in("/") + "|" +
           names_in("/bin") + "|" + options_at("/");
  };
  const std::string found =
      "from the host|from the host|bin dev etc home mnt new other proc root sys tmp var||"
      "ro,nosuid,nodev";
  EQUALS(world.with(mounts, look), found);
  world.spec.image = world.path("tree");
  EQUALS(world.with(mounts, look), found);
  cr_expect(!std::filesystem::exists(world.path("tree/new")));
  auto no = mounts[0];
  no.create = false;
  REFUSED(world.refused(no), "cannot open");
}

// What is below another mount cannot be in the image: it is made in that mount, by the user.
Test(rootfs_mounts, targets_in_earlier_mounts) {
  NEEDS_ROOT();
  Mounts world;
  world.directory("outer");
  world.give("outer");
  const auto source = world.path("host");
  EQUALS(world.with({bound(world.path("outer"), "/mnt"), bound(source, "/mnt/inner/most")},
                    [] { return text_of("/mnt/inner/most/file"); }),
         "from the host");
  cr_expect(std::filesystem::exists(world.path("outer/inner/most")));
  world.give("outer", 0);
  REFUSED(world.with({bound(world.path("outer"), "/mnt"), bound(source, "/mnt/other")},
                     [] { return ""; }),
          "cannot create other: Permission denied (for the mount at /mnt/other)");
}

Test(rootfs_mounts, dev_may_be_extended) {
  NEEDS_ROOT();
  Mounts world;
  EQUALS(world.with({bound(world.path("host"), "/dev/mine")},
                    [] { return text_of("/dev/mine/file") + "|" + options_at("/dev"); }),
         "from the host|ro,nosuid,nodev,noexec");
}

// Who joins the container could not tell it from another that has been put there since.
Test(rootfs_mounts, dev_may_not_be_hidden) {
  NEEDS_ROOT();
  Mounts world;
  std::filesystem::create_symlink("/dev", world.path("tree/to-dev"));
  world.spec.image = world.path("tree");
  for (const char* target : {"/dev", "/to-dev", "/etc/../dev/"})
    REFUSED(world.refused(bound(world.path("host"), target)),
            "is refused: it is the container's own /dev; mount what is needed below it");
  world.directory("tree/below/dev");
  std::filesystem::remove(world.path("tree/dev"));
  std::filesystem::create_symlink("below/dev", world.path("tree/dev"));
  REFUSED(world.refused(bound(world.path("host"), "/below")),
          "a mount hides the container's own /dev, which is a link in its image");
  EQUALS(world.refused(bound(world.path("host"), "/beside")), "mounted");
}

Test(rootfs_mounts, flags) {
  NEEDS_ROOT();
  Mounts world;
  auto mount = bound(world.path("host"), "/mnt");
  mount.read_only = true;
  mount.no_exec = true;
  EQUALS(world.with({mount}, [] { return options_at("/mnt"); }), "ro,nosuid,nodev,noexec");
}

Test(rootfs_mounts, tmpfs_and_its_size) {
  NEEDS_ROOT();
  Mounts world;
  Mount mount;
  mount.kind = Mount::Kind::tmpfs;
  mount.target = "/mnt";
  mount.size_mib = 1;
  EQUALS(world.with({mount},
                    [] {
                      const Fd fd(::open("/mnt/new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
                      const std::string big(2 << 20, 'x');
                      return options_at("/mnt") + (fd ? " made" : " not made") +
                             (write_all(fd.get(), big, "it") ? " unbounded" : " bounded");
                    }),
         "rw,nosuid,nodev made bounded");
}

// The flags that statfs does not tell of.
std::string mountinfo_of(const std::string& path) {
  std::string found;
  const std::string mounts = text_of("/proc/self/mountinfo");
  for (const auto line : split(mounts, '\n'))
    if (line.find(" " + path + " ") != std::string_view::npos) found = line;
  return found;
}

bool has(const std::string& text, const char* word) { return text.find(word) != text.npos; }

Test(rootfs_mounts, flags_of_enroot) {
  NEEDS_ROOT();
  Mounts world;
  auto mount = bound(world.path("host"), "/mnt");
  mount.no_atime = true;
  mount.no_dir_atime = true;
  mount.unbindable = true;
  const auto look = [] { return mountinfo_of("/mnt"); };
  const std::string marked = world.with({mount}, look);
  cr_expect(has(marked, "noatime,nodiratime") && has(marked, " unbindable "), "%s", marked.c_str());
  const std::string plain = world.with({bound(world.path("host"), "/mnt")}, look);
  cr_expect(has(plain, " /mnt ") && !has(plain, "noatime") && !has(plain, "unbindable"), "%s",
            plain.c_str());
  Mount tmpfs;
  tmpfs.kind = Mount::Kind::tmpfs;
  tmpfs.target = "/mnt";
  tmpfs.mode = 0700;
  tmpfs.huge = "never";
  tmpfs.unbindable = true;
  const std::string empty = world.with({tmpfs}, look);
  cr_expect(has(empty, "mode=700") && has(empty, " unbindable "), "%s", empty.c_str());
}

Test(rootfs_mounts, what_may_fail_is_left_out) {
  NEEDS_ROOT();
  Mounts world;
  auto lacking = bound(world.path("none"), "/mnt");
  auto in_proc = bound(world.path("host"), "/proc/sys");
  Mount nothing_there;
  nothing_there.kind = Mount::Kind::umount;
  nothing_there.target = "/etc";
  for (Mount* mount : {&lacking, &in_proc, &nothing_there}) mount->optional = true;
  in_proc.quiet = true;
  world.spec.mounts = {lacking, in_proc, nothing_there, bound(world.path("host"), "/opt")};
  EQUALS(run_as_user({},
                     [&]() -> std::string {
                       Phases phases;
                       const std::string inside = world.World::build(
                           world.spec, {}, [] { return text_of("/opt/file"); }, phases);
                       std::string told = inside;
                       for (const std::string& remark : phases.remarks()) told += "|" + remark;
                       return told;
                     }),
         "from the host|the container is without the mount at /mnt (nofail): cannot open " +
             world.path("none") +
             ": No such file or directory (source path does not exist)|the container is without "
             "the mount at /etc (nofail): nothing is mounted at /etc");
}

Test(rootfs_mounts, home_is_mounted_with_the_users_rights) {
  NEEDS_ROOT();
  Mounts world;
  world.spec.mount_home = true;
  world.home = world.path("host");
  EQUALS(world.with({}, [&world] { return text_of(world.path("host/file")); }), "from the host");
  world.spec.remap_root = true;
  EQUALS(world.with({}, [] { return text_of("/root/file"); }), "from the host");
  for (const char* elsewhere : {"/", "/dev", "/proc", "relative", "/proc/self/root"}) {
    world.home = elsewhere;
    world.spec.remap_root = false;
    REFUSED(world.with({}, [] { return "entered"; }), "");
  }
  world.directory("closed", 0700);
  world.home = world.path("closed");
  REFUSED(world.with({}, [] { return "entered"; }), "Permission denied");
}

Test(rootfs_mounts, what_was_mounted_is_told) {
  NEEDS_ROOT();
  Mounts world;
  auto& spec = world.spec;
  spec.mounts = {bound(world.path("host"), "/mnt")};
  spec.mounts.front().read_only = true;
  EQUALS(run_as_user({},
                     [&]() -> std::string {
                       Phases phases;
                       const auto none = [] { return ""; };
                       const std::string error = world.World::build(spec, {}, none, phases);
                       if (!error.empty()) return error;
                       std::string told;
                       for (const std::string& note : phases.notes())
                         if (note.find(" on / ") != std::string::npos ||
                             note.find(" on /mnt ") != std::string::npos ||
                             note.find(" on /sys ") != std::string::npos)
                           told += note + "\n";
                       return told;
                     }),
         spec.image + " on / (ro)\n/sys on /sys (ro,nosuid,nodev,noexec)\n" + world.path("host") +
             " on /mnt (ro,nosuid,nodev)\n");
}
Test(rootfs_mounts, unmount) {
  NEEDS_ROOT();
  Mounts world;
  Mount mount;
  mount.kind = Mount::Kind::umount;
  mount.target = "/etc/hosts";
  EQUALS(world.with({mount}, [] { return text_of("/etc/hosts"); }), "");
  mount.target = "/etc";
  REFUSED(world.refused(mount), "nothing is mounted at /etc");
  for (const char* kept : {"/", "/proc", "/proc/../proc", "/etc/.."}) {
    mount.target = kept;
    REFUSED(world.refused(mount), "is refused: it is");
  }
  std::filesystem::create_symlink("/dev", world.path("tree/to-dev"));
  world.spec.image = world.path("tree");
  for (const char* needed : {"/dev", "/tmp", "/to-dev", "/etc/../tmp/"}) {
    mount.target = needed;
    REFUSED(world.refused(mount), "is refused: Slurm and programs need the container's");
  }
}

// The host's own /tmp, say, is below what hides it in a mount of all of "/".
Test(rootfs_mounts, what_is_a_part_of_another_mount_stays) {
  NEEDS_ROOT();
  Mounts world;
  const auto below = world.directory("host/below");
  world.file("host/below/hidden", "of the host");
  const auto hide = [&below] {
    cr_assert(::mount("hides", below.c_str(), "tmpfs", 0, nullptr) == 0);
  };
  const auto whole = bound(world.path("host"), "/mnt");
  const auto look = [] { return names_in("/mnt") + "|" + names_in("/mnt/below"); };
  EQUALS(world.with({whole}, look, hide), "below file|");
  Mount away;
  away.kind = Mount::Kind::umount;
  std::filesystem::create_symlink("mnt/below", world.path("tree/link"));
  world.spec.image = world.squash("tree", "b.sqsh");
  for (const char* target : {"/mnt/below", "/link", "/mnt/../mnt/below"}) {
    away.target = target;
    REFUSED(world.with({whole, away}, look, hide),
            "is refused: what is mounted there is a part of another mount");
  }
  // What the user put upon it he may take away, and not what that lies on.
  away.target = "/mnt/below";
  const auto over = bound(world.directory("other"), "/mnt/below");
  EQUALS(world.with({whole, over, away}, look, hide), "below file|");
  REFUSED(world.with({whole, over, away, away}, look, hide), "is a part of another mount");
  away.target = "/mnt";
  EQUALS(world.with(
             {whole, over, away}, [] { return names_in("/mnt"); }, hide),
         "");
}

// What hides a part of /proc is another file system.
Test(rootfs_mounts, what_hides_a_part_of_proc_stays) {
  NEEDS_ROOT();
  Mounts world;
  const auto hide = [] {
    cr_assert(::mount("hides", "/proc/driver", "tmpfs", 0, nullptr) == 0);
    std::filesystem::create_directories("/proc/driver/in/it");
  };
  std::filesystem::create_symlink("/proc/driver", world.path("tree/link"));
  Mount mount;
  mount.kind = Mount::Kind::umount;
  for (const auto& image : {world.squash("tree", "b.sqsh"), world.path("tree")}) {
    world.spec.image = image;
    for (const char* target : {"/proc/driver", "/link"}) {
      mount.target = target;
      REFUSED(world.refused(mount, hide), "is refused: it is in /proc");
      for (const char* below : {"", "/in", "/in/it"})
        REFUSED(world.refused(bound(world.path("host"), std::string(target) + below), hide),
                "it is in /proc");
    }
  }
  EQUALS(world.with(
             {}, [] { return names_in("/proc/driver"); }, hide),
         "in");
}

Test(rootfs_mounts, unreadable_sources_are_refused) {
  NEEDS_ROOT();
  Mounts world;
  world.file("closed", "secret", 0000);
  world.file("inside/file", "secret");
  world.directory("inside", 0700);
  world.give("closed");
  for (const auto& source : {world.path("closed"), world.path("inside"), world.path("inside/file"),
                             std::string("/etc/shadow")})
    REFUSED(world.refused(bound(source, "/mnt/x")), "Permission denied");
  REFUSED(world.refused(bound(world.path("none"), "/mnt/x")), "No such file");
  REFUSED(world.refused(bound("host", "/mnt/x")), "not an absolute path");
}

// What the process has open, by root or before it came here, is not the user's to mount.
Test(rootfs_mounts, sources_through_open_descriptors_are_refused) {
  NEEDS_ROOT();
  Mounts world;
  world.file("closed/file", "secret");
  world.directory("closed", 0700);
  const Fd dir(::open(world.path("closed").c_str(), O_PATH | O_CLOEXEC));
  const std::string fd = "/proc/self/fd/" + std::to_string(dir.get());
  for (const auto& source :
       {fd, fd + "/file", std::string("/proc/self/root"), std::string("/proc/self/cwd")}) {
    REFUSED(world.refused(bound(source, "/mnt/x")),
            "opening the image and the mounts: cannot open");
    Spec spec;
    spec.image = source;
    REFUSED(world.in_container(spec, [] { return ""; }),
            "opening the image and the mounts: cannot");
  }
}

Test(rootfs_mounts, targets_that_are_refused) {
  NEEDS_ROOT();
  Mounts world;
  const auto source = world.path("host");
  for (const char* target : {"/", "/..", "/proc", "/proc/sys", "/proc/self/attr", "/mnt/../proc"})
    REFUSED(world.refused(bound(source, target)), "is refused: it is");
  REFUSED(world.refused(bound(source, "/etc/passwd")), "cannot open passwd: Not a directory");
  REFUSED(world.refused(bound(source + "/file", "/etc")), "/etc is a directory in the container");
}

// The links of /proc are texts to it, which name what is in the container.
Test(rootfs_mounts, targets_through_proc_stay_inside) {
  NEEDS_ROOT();
  Mounts world;
  EQUALS(world.with({bound(world.path("host"), "/proc/self/root/mnt")},
                    [] { return text_of("/mnt/file"); }),
         "from the host");
}

Test(rootfs_mounts, dots_stay_inside) {
  NEEDS_ROOT();
  Mounts world;
  EQUALS(world.with({bound(world.path("host"), "/mnt/../../../mnt/../new")},
                    [] { return text_of("/new/file"); }),
         "from the host");
}

void tmpfs_below(const std::string& path) {
  cr_assert(::mount("below", path.c_str(), "tmpfs", 0, "mode=0755") == 0);
  cr_assert(::mknod((path + "/null").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0);
  cr_assert(::chmod((path + "/null").c_str(), 0666) == 0);
}

Test(rootfs_mounts, what_is_mounted_below_gets_the_flags_too) {
  NEEDS_ROOT();
  Mounts world;
  const auto below = world.directory("host/below");
  auto mount = bound(world.path("host"), "/mnt");
  mount.read_only = true;
  EQUALS(
      world.with(
          {mount}, [] { return options_at("/mnt/below") + " " + opens("/mnt/below/null", O_RDWR); },
          [&below] { tmpfs_below(below); }),
      "ro,nosuid,nodev Permission denied");
}

// A bind without what is mounted below would show what that hides: the host's own /tmp, say.
Test(rootfs_mounts, no_look_below_mounts) {
  NEEDS_ROOT();
  Mounts world;
  const auto below = world.directory("host/be low");
  auto mount = bound(world.path("host"), "/mnt");
  mount.recursive = false;
  const auto hide = [&below] { tmpfs_below(below); };
  REFUSED(world.refused(mount, hide), "mount it with rbind");
  EQUALS(world.with({mount}, [] { return text_of("/mnt/file"); }), "from the host");
  world.spec.image = world.path("host");
  REFUSED(world.with(
              {}, [] { return ""; }, hide),
          "other file systems mounted in it");
}

Test(rootfs_mounts, single_device_nodes) {
  NEEDS_ROOT();
  Mounts world;
  const auto look = [] { return opens("/mnt/null", O_RDWR) + " " + options_at("/mnt/null"); };
  EQUALS(world.with({bound("/dev/null", "/mnt/null")}, look), "yes rw,nosuid,noexec");
  EQUALS(world.with({bound("/dev", "/mnt")}, [] { return opens("/mnt/null", O_RDWR); }),
         "Permission denied");
  // A node where the host would not open it stays closed.
  const auto closed = world.directory("nodev");
  const auto hide = [&closed] {
    tmpfs_below(closed);
    cr_assert(::mount(nullptr, closed.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_NODEV, nullptr) ==
              0);
  };
  EQUALS(world.with({bound(closed + "/null", "/mnt/null")}, look, hide),
         "Permission denied rw,nosuid,nodev,noexec");
}

Test(rootfs_mounts, mounts_of_others) {
  NEEDS_ROOT();
  Mounts world;
  const auto library = world.path("host/file");
  const std::string found = run_as_user({}, [&]() -> std::string {
    const auto admin = Raised::raise(CAP_SYS_ADMIN);
    auto placed = open_bind(library, "/opt/driver/lib.so.1", false, {.read_only = true});
    if (!placed) return placed.error().text;
    std::vector<PlacedMount> mounts;
    mounts.push_back(std::move(*placed));
    Phases phases;
    return world.build(
        world.spec, std::move(mounts), [] { return text_of("/opt/driver/lib.so.1"); }, phases);
  });
  EQUALS(found, "from the host");
}

}  // namespace
