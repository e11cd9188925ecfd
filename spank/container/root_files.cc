// SPDX-License-Identifier: Apache-2.0
#include "spank/container/root_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/directory.h"
#include "common/fd.h"
#include "spank/container/mount_api.h"

namespace bellows::container {

Result<std::vector<std::string>> list_in_root(int root, const std::string& path,
                                              std::string_view prefix) {
  std::vector<std::string> names;
  auto fd = open_in_root(root, path, O_RDONLY | O_DIRECTORY);
  if (!fd && fd.error().kind == ErrorKind::not_found) return names;
  if (!fd) return fd.error();
  const Directory dir = read_directory(std::move(*fd));
  if (!dir) return errno_error("list", path);
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr && errno != 0) return errno_error("list", path);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name.starts_with(prefix)) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::optional<std::string>> read_in_root(int root, const std::string& path,
                                                std::size_t limit) {
  auto fd = open_in_root(root, path, O_RDONLY | O_NONBLOCK);
  if (!fd && fd.error().kind == ErrorKind::not_found) return std::optional<std::string>{};
  if (!fd) return fd.error();
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t n = ::read(fd->get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read", path);
    if (n == 0) return std::optional<std::string>{std::move(text)};
    if (text.size() + static_cast<std::size_t>(n) > limit)
      return Error{ErrorKind::invalid, fmt::format("{} is larger than {} bytes", path, limit)};
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

}  // namespace bellows::container
