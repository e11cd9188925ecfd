// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/unit/container_rootfs_support.h"

namespace bellows::container {
namespace {

#define EQUALS(found, wanted)                                           \
  do {                                                                  \
    const std::string found_text = (found);                             \
    cr_assert(found_text == (wanted), "found: %s", found_text.c_str()); \
  } while (false)

TestSuite(rootfs, .timeout = 60);

Test(rootfs, squashfs_image) {
  NEEDS_ROOT();
  World world;
  world.tree("tree");
  world.file("tree/hello", "hello");
  Spec spec;
  spec.image = world.squash("tree", "a.sqsh");
  EQUALS(world.in_container(spec,
                            [] {
                              std::string found = text_of("/hello");
                              for (const char* path : {"/", "/proc", "/sys", "/dev", "/tmp"})
                                found += " " + options_at(path);
                              return found;
                            }),
         "hello ro,nosuid,nodev rw,nosuid,nodev,noexec ro,nosuid,nodev,noexec "
         "ro,nosuid,nodev,noexec rw,nosuid,nodev");
}

}  // namespace
}  // namespace bellows::container
