// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store/store_place.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/contract.h"
#include "common/text.h"

namespace bellows {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kComponent = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

Error denied(std::string text) { return Error{ErrorKind::denied, std::move(text)}; }

// Also where a right is missing: that may be of a file system which is away for a while.
Error failed(const char* what, const std::string& path) {
  return Error{ErrorKind::io, errno_error(what, path).text};
}

// An access control list that lets others write shows in the bits of the group.
Status check_component(int fd, const std::string& path, bool last) {
  struct stat s;
  if (fstat(fd, &s) < 0) return failed("look at", path);
  if (s.st_uid != geteuid() && s.st_uid != 0)
    return denied(
        fmt::format("the checkpoint directory {} belongs to user {}, who could change "
                    "what is restored from it: ask the administrator to remove it, or "
                    "name another one with --checkpoint-dir",
                    path, s.st_uid));
  const bool sites = s.st_uid == 0 && (s.st_mode & S_ISVTX) != 0 && !last;
  if ((s.st_mode & kOthersWrite) == 0 || sites) return {};
  return denied(
      fmt::format("others may write to the checkpoint directory {} (mode {:o}), and could "
                  "change what is restored from it: check who wrote what is there, then "
                  "chmod go-w it",
                  path, s.st_mode & 07777));
}

Result<Fd> open_component(int at, const std::string& name, const std::string& path,
                          std::optional<Access> make) {
  Fd fd(openat(at, name.c_str(), kComponent));
  if (!fd && errno == ENOENT && make) {
    if (mkdirat(at, name.c_str(), directory_mode(*make)) < 0 && errno != EEXIST)
      return failed("make the directory", path);
    fd.reset(openat(at, name.c_str(), kComponent));
  }
  if (fd) return fd;
  if (errno == ELOOP || errno == ENOTDIR)
    return denied(
        fmt::format("{} is a link or a file where a checkpoint directory should be: remove "
                    "it, or name what it leads to with --checkpoint-dir",
                    path));
  return failed("open", path);
}

/// How much of a path is opened.
enum class Extent { whole, parent };

Result<Fd> walk(const StorePlace& place, std::optional<Access> make,
                Extent extent = Extent::whole) {
  const std::string_view dir = place.dir;
  if (place.base.empty() || !dir.starts_with(place.base))
    return Error{ErrorKind::internal, fmt::format("{} is not below {}", dir, place.base)};
  auto fd = open_file(place.base, O_PATH | O_DIRECTORY);
  if (!fd) return Error{ErrorKind::io, fd.error().text};
  std::string path = place.base;
  std::vector<std::string_view> names = split(dir.substr(place.base.size()), '/');
  std::erase(names, "");
  const std::size_t all = names.size();
  if (extent == Extent::parent && all > 0) names.pop_back();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!path.ends_with('/')) path += '/';
    path += names[i];
    if (names[i] == "..") return denied(path + " leads out of a checkpoint directory");
    auto next = open_component(fd->get(), std::string(names[i]), path, make);
    if (!next) return next;
    auto status = check_component(next->get(), path, i + 1 == all);
    if (!status) return status.error();
    fd = std::move(next);
  }
  return fd;
}

}  // namespace

StorePlace StorePlace::below(const std::string& base, const std::string& path) {
  if (path.starts_with(base.ends_with('/') ? base : base + "/")) return {path, base};
  return path;
}

StorePlace place_in_job(const std::string& dir, Access* access) {
  const char* line = std::getenv(Contract::kVariable);
  const auto contract = Contract::parse(line ? line : "");
  if (!contract || contract->checkpoint_dir.empty()) return dir;
  *access = access_named(contract->extra_value(Contract::kAccessKey));
  std::error_code code;
  // As `dir` is.
  const auto base = std::filesystem::canonical(fixed_part(contract->checkpoint_dir), code);
  return code ? StorePlace(dir) : StorePlace::below(base.string(), dir);
}

Result<Fd> open_place(const StorePlace& place) { return walk(place, std::nullopt); }

Status check_place(const StorePlace& place) {
  if (place.dir == place.base) return {};
  auto fd = open_place(place);
  return fd ? Status() : Status(fd.error());
}

Result<Fd> make_place(const StorePlace& place, Access access) { return walk(place, access); }

Result<Fd> open_parent(const StorePlace& place) {
  return walk(place, std::nullopt, Extent::parent);
}

Result<Fd> make_parent(const StorePlace& place, Access access) {
  return walk(place, access, Extent::parent);
}

Status make_place(FileOps& ops, const StorePlace& place) {
  if (place.dir == place.base) return ops.make_directory(place.dir);
  auto fd = make_place(place, ops.access());
  return fd ? Status() : Status(fd.error());
}

Status check_shared_base(const std::string& base) {
  struct stat s;
  if (stat(base.c_str(), &s) < 0) return errno_error("look at", base);
  if ((s.st_mode & kOthersWrite) == 0 || (s.st_mode & S_ISVTX) != 0) return {};
  return denied(
      fmt::format("{} has mode {:o}, with which users can rename each other's checkpoint "
                  "directories: ask the administrator to make it sticky (chmod +t)",
                  base, s.st_mode & 07777));
}

}  // namespace bellows
