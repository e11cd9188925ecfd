// SPDX-License-Identifier: Apache-2.0
#include "spank/container/accounts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "common/fd.h"
#include "common/text.h"
#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

constexpr std::size_t kMostText = 1U << 20;

/// Whether a line of passwd or group is for `id`: the third field of both.
bool has_id(std::string_view text, std::uint32_t id) {
  const auto lines = split(text, '\n');
  return std::any_of(lines.begin(), lines.end(), [id](std::string_view line) {
    const auto fields = split(line, ':');
    return fields.size() > 2 && parse_uint(fields[2]) == id;
  });
}

bool is_field(std::string_view text) { return text.find_first_of(":\n") == std::string_view::npos; }

/// The image's file, "" if there is none. Only of a regular file: anything else could block.
Result<std::string> image_text(int root, const char* path) {
  auto fd = open_in_root(root, path, O_PATH);
  if (!fd) {
    if (fd.error().kind == ErrorKind::not_found) return std::string();
    return fd.error();
  }
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode))
    return Error{ErrorKind::invalid, fmt::format("the image's {} is not a file", path)};
  return read_file(descriptor_path(fd->get()), kMostText);
}

/// `line` is the caller's.
void add(int root, const char* path, std::uint32_t id, const std::string& line,
         const char* root_line, std::vector<AccountFile>& files) {
  auto text = image_text(root, path);
  if (!text || has_id(*text, id)) return;
  std::string lines = line;
  if (!has_id(*text, 0)) lines += root_line;
  files.push_back({path, lines + *text});
}

}  // namespace

std::vector<AccountFile> account_files(int root, const Account& account) {
  std::vector<AccountFile> files;
  if (!open_in_root(root, "/etc", O_PATH | O_DIRECTORY)) return files;
  const auto uid = ::getuid();
  const auto gid = ::getgid();
  const std::string home = account.home.empty() || !is_field(account.home) ? "/" : account.home;
  if (!account.user.empty() && is_field(account.user))
    add(root, "/etc/passwd", uid,
        // An "x" would send PAM to /etc/shadow, where there is no such line, and so refuse a login.
        fmt::format("{}:*:{}:{}::{}:/bin/sh\n", account.user, uid, gid, home),
        "root:*:0:0:root:/root:/bin/sh\n", files);
  if (!account.group.empty() && is_field(account.group))
    add(root, "/etc/group", gid, fmt::format("{}:x:{}:\n", account.group, gid), "root:x:0:\n",
        files);
  return files;
}

}  // namespace bellows::container
