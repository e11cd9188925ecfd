// SPDX-License-Identifier: Apache-2.0
#include "spank/container/own_mounts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include "common/text.h"
#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

Error not_own(const char* name) {
  return {ErrorKind::denied,
          fmt::format("{} is not the one that the container was made with; leave the image's "
                      "directories where they are while the job runs",
                      name)};
}

Result<Fd> open_name(int root, const char* name) {
  return open_in_root(root, name, O_PATH | O_DIRECTORY);
}

Result<struct statx> look_at(int fd, const char* name) {
  struct statx info {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) != 0) return errno_error("look at", name);
  if ((info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) return not_own(name);
  return info;
}

}  // namespace

std::string own_text(const OwnMounts& own) { return fmt::format("{} {}", own.dev, own.proc); }

Result<OwnMounts> parse_own(std::string_view text) {
  const auto space = text.find(' ');
  const auto dev = parse_uint(text.substr(0, space));
  const auto proc =
      space == std::string_view::npos ? std::nullopt : parse_uint(text.substr(space + 1));
  if (!dev || !proc)
    return Error{ErrorKind::denied,
                 "this node does not know with which mounts the container was made, perhaps "
                 "because it was made before Bellows was upgraded; start the job again"};
  return OwnMounts{*dev, *proc};
}

Result<Fd> open_own(int root, const char* name, std::uint64_t number) {
  auto fd = open_name(root, name);
  if (!fd) return fd;
  const auto info = look_at(fd->get(), name);
  if (!info) return info.error();
  const auto found = mount_number(fd->get(), name);
  if (!found) return found.error();
  if (*found != number) return not_own(name);
  return fd;
}

Result<Fd> open_same(int root, const char* name, int original) {
  auto fd = open_name(root, name);
  if (!fd) return fd;
  const auto found = look_at(fd->get(), name);
  if (!found) return found.error();
  const auto wanted = look_at(original, name);
  if (!wanted) return wanted.error();
  if (found->stx_dev_major != wanted->stx_dev_major ||
      found->stx_dev_minor != wanted->stx_dev_minor || found->stx_ino != wanted->stx_ino)
    return not_own(name);
  return fd;
}

}  // namespace bellows::container
