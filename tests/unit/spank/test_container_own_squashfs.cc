// SPDX-License-Identifier: Apache-2.0
// Squashfs files that the administrator has nothing to do with: a server of the user's reads them,
// never the kernel.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/fd.h"
#include "spank/container/job_cgroup.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(own_squashfs, .timeout = 120);

#define NEEDS_SERVER()                                                                   \
  NEEDS_ROOT();                                                                          \
  if (::access("/usr/bin/squashfuse_ll", X_OK) != 0 || ::access("/dev/fuse", F_OK) != 0) \
  cr_skip_test("needs squashfuse_ll and /dev/fuse")

struct Own : World {
  Own() {
    tree("tree");
    file("tree/mine", "mine");
    directory("own");
    image = path("own/a.sqsh");
    std::filesystem::copy_file(squash("tree", "site.sqsh"), image);
    give("own");
    give("own/a.sqsh");
  }
  std::string build(const std::function<std::string()>& inside, bool writable = false) const {
    Spec spec;
    spec.image = image;
    spec.writable = writable;
    return in_container(spec, inside);
  }
  std::string program(const std::string& text) const {
    return file("server", "#!/bin/sh\n" + text, 0755);
  }
  std::string image;
};

std::string kind_of(const std::string& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return "none";
  if (info.f_type == FUSE_SUPER_MAGIC) return "fuse";
  if (info.f_type == SQUASHFS_MAGIC) return "squashfs";
  return info.f_type == OVERLAYFS_SUPER_MAGIC ? "overlay" : "other";
}

/// What the kernel has mounted here, of these kinds.
bool mounted(const char* kind) {
  return text_of("/proc/self/mountinfo").find(std::string(" - ") + kind + " ") != std::string::npos;
}

Test(own_squashfs, is_read_by_a_server) {
  NEEDS_SERVER();
  const Own world;
  EQUALS(world.build([] {
    return text_of("/mine") + " " + kind_of("/") + " " + options_at("/") + " " +
           opens("/new", O_WRONLY | O_CREAT);
  }),
         "mine fuse ro,nosuid,nodev Read-only file system");
}

Test(own_squashfs, can_be_written_over) {
  NEEDS_SERVER();
  const Own world;
  EQUALS(world.build(
             [] {
               std::ofstream("/new") << "new";
               return text_of("/mine") + " " + text_of("/new") + " " + kind_of("/") + " " +
                      (mounted("squashfs") ? "by the kernel" : "by no kernel");
             },
             true),
         "mine new overlay by no kernel");
}

Test(own_squashfs, link_to_a_file_of_the_site) {
  NEEDS_SERVER();
  Own world;
  world.image = world.path("own/link.sqsh");
  std::filesystem::create_symlink(world.path("images/site.sqsh"), world.image);
  const auto look = [] { return text_of("/mine") + " " + kind_of("/"); };
  EQUALS(world.build(look), "mine squashfs");
  // The site's directory by another name.
  std::filesystem::create_symlink("images", world.path("by_link"));
  world.site.image_dirs = {world.path("by_link")};
  EQUALS(world.build(look), "mine squashfs");
  world.site.squashfuse.clear();
  EQUALS(world.build(look), "mine squashfs");
  // What the site would not have the kernel read by its own name, it has not by another.
  world.give("images/site.sqsh");
  REFUSED(world.build(look), "only its administrator may own it");
}

Test(own_squashfs, is_refused_where_the_site_says_so) {
  NEEDS_SERVER();
  Own world;
  world.site.squashfuse = "/no/such/program";
  REFUSED(world.build([] { return "built"; }),
          "ask the administrator to install squashfuse, or use");
  world.site.squashfuse.clear();
  REFUSED(world.build([] { return "built"; }), "must lie in " + world.path("images"));
}

/// Overwrites some of the file.
void spoil(const std::string& path, off_t at, const std::string& bytes) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  cr_assert(::pwrite(fd.get(), bytes.data(), bytes.size(), at) ==
            static_cast<ssize_t>(bytes.size()));
}

Test(own_squashfs, that_is_none) {
  NEEDS_SERVER();
  const Own world;
  const auto built = [] { return "built"; };
  const auto size = std::filesystem::file_size(world.image);
  spoil(world.image, 96, std::string(size - 96, '\x5a'));
  REFUSED(world.build(built), world.image + " cannot be read as a squashfs");
  std::filesystem::resize_file(world.image, 200);
  REFUSED(world.build(built), "is truncated: 200 of ");
  std::filesystem::resize_file(world.image, 2);
  REFUSED(world.build(built), "is not a squashfs image");
}

/// Bytes here and there: whatever the server makes of them, it is an error or a container.
Test(own_squashfs, with_wrong_bytes) {
  NEEDS_SERVER();
  const Own world;
  const auto size = static_cast<off_t>(std::filesystem::file_size(world.image));
  unsigned random = 1;
  for (int i = 0; i < 24; ++i) {
    std::filesystem::copy_file(world.path("images/site.sqsh"), world.image,
                               std::filesystem::copy_options::overwrite_existing);
    for (int byte = 0; byte < 8; ++byte) {
      random = random * 1103515245 + 12345;
      spoil(world.image, 96 + static_cast<off_t>(random >> 8) % (size - 96),
            std::string(1, '\xa5'));
    }
    const std::string said = world.build([] { return "built"; }, i % 2 == 1);
    cr_expect(said == "built" || said.starts_with("error: "), "found: %s", said.c_str());
  }
}

/// A program in the server's place, which ends at once and says why.
Test(own_squashfs, whose_server_ends) {
  NEEDS_SERVER();
  Own world;
  world.site.squashfuse = world.program("echo 'no\033memory' >&2; exit 3\n");
  REFUSED(world.build([] { return "built"; }),
          "mounting the image: " + world.image + " cannot be read as a squashfs: no memory");
}

Test(own_squashfs, server_is_the_users) {
  NEEDS_SERVER();
  Own world;
  // It writes down what it is and serves all the same. The shell reads its status itself: to wait
  // for a command it clears its mask of signals.
  world.site.squashfuse =
      world.program("cd " + world.path("own") +
                    "\nwhile read -r key value; do printf '%s\\t%s\\n' \"$key\" \"$value\"; done "
                    "</proc/$$/status >status\ncat /proc/$$/environ >env\nls /proc/$$/fd | xargs "
                    ">fds\nexec /usr/bin/squashfuse_ll "
                    "\"$@\"\n");
  EQUALS(world.build([] { return text_of("/mine"); }), "mine");
  const auto status = text_of(world.path("own/status"));
  for (const char* line :
       {"Uid:\t20001\t20001\t20001\t20001\n", "Gid:\t20001\t20001\t20001\t20001\n",
        "Groups:\t20001\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
        "NoNewPrivs:\t1\n"})
    cr_expect(status.find(line) != std::string::npos, "%s is not in %s", line, status.c_str());
  // The kernel keeps SIGKILL and SIGSTOP, and the C library two of its own.
  cr_expect(status.find("SigBlk:\tfffffffe7ffbfeff\n") != std::string::npos, "%s", status.c_str());
  EQUALS(text_of(world.path("own/env")), std::string("PATH=/usr/bin:/bin\0", 19));
}

constexpr const char* kMounts =
    "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "31 25 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
    "32 25 0:28 /below /mnt/part rw - cgroup2 cgroup2 rw,nsdelegate\n"
    "33 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";

Test(own_squashfs, where_cgroups_are) {
  EQUALS(cgroup_path("4:freezer:/slurm/job_7", kMounts), "/sys/fs/cgroup/freezer/slurm/job_7");
  EQUALS(cgroup_path("5:cpu,cpuacct:/job_7", kMounts), "/sys/fs/cgroup/cpu,cpuacct/job_7");
  EQUALS(cgroup_path("0::/job_7", kMounts), "/sys/fs/cgroup/unified/job_7");
  for (const char* line : {"6:memory:/job_7", "4:freezer", "4:freezer:job_7", ""})
    EQUALS(cgroup_path(line, kMounts), "");
  EQUALS(cgroup_path("4:freezer:/job_7", "- - -\n - \n"), "");
}

}  // namespace
