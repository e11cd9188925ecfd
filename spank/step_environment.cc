// SPDX-License-Identifier: Apache-2.0
#include "spank/step_environment.h"

#include <grp.h>
#include <pwd.h>

#include <array>

namespace bellows::spank {
namespace {

constexpr std::size_t kUsual = 4096;

bool is_set(spank_t spank, const std::string& name) {
  std::array<char, 1> any{};
  return spank_getenv(spank, name.c_str(), any.data(), any.size()) != ESPANK_ENV_NOEXIST;
}

}  // namespace

std::optional<std::string> environment(spank_t spank, const std::string& name) {
  std::string value(kUsual, '\0');
  spank_err_t code = ESPANK_NOSPACE;
  while ((code = spank_getenv(spank, name.c_str(), value.data(), static_cast<int>(value.size()))) ==
         ESPANK_NOSPACE)
    value.resize(2 * value.size());
  if (code != ESPANK_SUCCESS) return std::nullopt;
  return value.c_str();
}

void unset_all(spank_t spank, const std::string& name) {
  for (int round = 0; round < 64 && is_set(spank, name); ++round)
    spank_unsetenv(spank, name.c_str());
}

container::Account account_of(uid_t uid) {
  std::array<char, 16384> buffer{};
  container::Account account;
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return account;
  account.user = found->pw_name;
  account.home = found->pw_dir;
  const gid_t gid = found->pw_gid;
  group group_entry{};
  group* group_found = nullptr;
  if (::getgrgid_r(gid, &group_entry, buffer.data(), buffer.size(), &group_found) == 0 &&
      group_found != nullptr)
    account.group = group_found->gr_name;
  return account;
}

}  // namespace bellows::spank
