// SPDX-License-Identifier: Apache-2.0
#include "pool/wire/pool_place.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/directory.h"
#include "common/fd.h"
#include "common/pool_option.h"
#include "common/text.h"

namespace bellows::pool {
namespace {

constexpr std::size_t kMostBytes = 4096;

std::string keeper_file(const std::string& dir) { return dir + "/keeper.json"; }

bool is_directory(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// What lies there is run as this user, so nobody else may have put it there.
Status check_own(const std::string& path) {
  const auto fd = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  return fd ? check_owner(fd->get(), geteuid(), path) : Status(fd.error());
}

}  // namespace

std::string KeeperPlace::address() const { return fmt::format("{}:{}", host, port); }

Result<std::string> pools_dir() {
  if (const char* const dir = std::getenv("BELLOWS_POOLS"); dir && *dir) return std::string(dir);
  if (const char* const home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.bellows/pools";
  return Error{ErrorKind::invalid,
               "it is not known where your pools are: set HOME, or BELLOWS_POOLS to their folder"};
}

Result<std::string> find_pool(const std::string& name) {
  if (const std::string complaint = pool_name_complaint(name); !complaint.empty())
    return Error{ErrorKind::invalid, complaint};
  const auto dir = pools_dir();
  if (!dir) return dir.error();
  const std::string path = *dir + "/" + name;
  if (!is_directory(path))
    return Error{ErrorKind::not_found,
                 fmt::format("there is no pool {} in {}; `bellows pool list` shows those there are",
                             name, *dir)};
  if (const Status own = check_own(path); !own) return own.error();
  return path;
}

Result<std::vector<std::string>> pool_names() {
  const auto dir = pools_dir();
  if (!dir) return dir.error();
  std::vector<std::string> names;
  const Directory directory(opendir(dir->c_str()));
  if (!directory && errno == ENOENT) return names;
  if (!directory) return errno_error("read", *dir);
  while (const dirent* entry = readdir(directory.get()))
    if (pool_name_complaint(entry->d_name).empty() && is_directory(*dir + "/" + entry->d_name))
      names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string policy_file(const std::string& dir) {
  const std::string script = dir + "/policy.lua";
  return access(script.c_str(), F_OK) == 0 ? script : dir + "/policy.yaml";
}

Result<KeeperPlace> read_keeper(const std::string& dir) {
  const auto text = read_file(keeper_file(dir), kMostBytes);
  if (!text && text.error().kind == ErrorKind::not_found)
    return Error{ErrorKind::not_found, "the pool's keeper has not started yet"};
  if (!text) return text.error();
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const Error corrupt{ErrorKind::corrupt,
                      keeper_file(dir) +
                          " is not what a keeper writes; it is written again when "
                          "the keeper starts"};
  if (!json.is_object() || !json.contains("host") || !json["host"].is_string() ||
      !json.contains("port") || !json["port"].is_number_unsigned() || !json.contains("job") ||
      !json["job"].is_number_unsigned())
    return corrupt;
  const auto port = json["port"].get<std::uint64_t>();
  const auto job = json["job"].get<std::uint64_t>();
  const auto term = json.value("term", nlohmann::json(std::uint64_t{0}));
  if (port == 0 || port > UINT16_MAX || job > UINT32_MAX || !term.is_number_unsigned())
    return corrupt;
  return KeeperPlace{.host = json["host"].get<std::string>(),
                     .port = static_cast<std::uint16_t>(port),
                     .job = static_cast<std::uint32_t>(job),
                     .term = term.get<std::uint64_t>()};
}

Status write_keeper(const std::string& dir, const KeeperPlace& place) {
  const nlohmann::json json = {
      {"host", place.host}, {"port", place.port}, {"job", place.job}, {"term", place.term}};
  return replace_file(keeper_file(dir), json.dump() + "\n", 0640);
}

}  // namespace bellows::pool
