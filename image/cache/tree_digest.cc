// SPDX-License-Identifier: Apache-2.0
#include "image/cache/tree_digest.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <vector>

#include "common/fd.h"
#include "image/layout/digest.h"

namespace bellows::image {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20;

Result<std::vector<std::string>> paths_in(const std::string& root) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator entries(root, error);
  for (const fs::recursive_directory_iterator end; !error && entries != end;
       entries.increment(error))
    paths.push_back(entries->path().string());
  if (error)
    return Error{ErrorKind::io, fmt::format("cannot read all of {}: {}", root, error.message())};
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status add_file(Sha256& hash, const std::string& path, char* buffer) {
  const auto fd = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd) return fd.error();
  for (;;) {
    const ssize_t n = ::read(fd->get(), buffer, kBuffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read", path);
    if (n == 0) return {};
    if (auto status = hash.add(buffer, static_cast<std::size_t>(n)); !status) return status;
  }
}

Status add(Sha256& hash, const std::string& path, std::size_t root, char* buffer) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno_error("look at", path);
  std::string head =
      fmt::format("{:o} {} ", info.st_mode, S_ISREG(info.st_mode) ? info.st_size : 0);
  head += path.substr(root);
  head += '\0';
  if (S_ISLNK(info.st_mode)) {
    std::error_code error;
    head += fs::read_symlink(path, error).string();
    head += '\0';
  }
  if (auto status = hash.add(head.data(), head.size()); !status) return status;
  return S_ISREG(info.st_mode) ? add_file(hash, path, buffer) : Status();
}

}  // namespace

Result<std::string> tree_digest(const std::string& root) {
  const auto paths = paths_in(root);
  if (!paths) return paths.error();
  auto hash = Sha256::begin();
  if (!hash) return hash.error();
  const auto buffer = std::make_unique<char[]>(kBuffer);
  for (const std::string& path : *paths)
    if (auto status = add(*hash, path, root.size(), buffer.get()); !status) return status.error();
  return hash->end();
}

}  // namespace bellows::image
