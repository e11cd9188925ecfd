// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/user_rights.h"

#include <fmt/core.h>
#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace bellows {
namespace {

constexpr auto kNoChange = static_cast<id_t>(-1);

Result<std::vector<gid_t>> groups_of(uid_t uid, gid_t* group) {
  errno = 0;
  const passwd* entry = getpwuid(uid);
  if (!entry)
    return Error{errno == 0 || errno == ENOENT ? ErrorKind::not_found : ErrorKind::unavailable,
                 fmt::format("there is no user {} with whose rights to open the model", uid)};
  *group = entry->pw_gid;
  std::vector<gid_t> groups(64);
  for (;;) {
    int count = static_cast<int>(groups.size());
    const bool all = getgrouplist(entry->pw_name, entry->pw_gid, groups.data(), &count) >= 0;
    groups.resize(static_cast<std::size_t>(count));
    if (all) return groups;
  }
}

}  // namespace

Result<UserRights> UserRights::take(uid_t uid) {
  UserRights rights;
  if (uid == geteuid()) return rights;
  gid_t group = 0;
  const auto groups = groups_of(uid, &group);
  if (!groups) return groups.error();
  rights.groups_.resize(static_cast<std::size_t>(getgroups(0, nullptr)));
  (void)getgroups(static_cast<int>(rights.groups_.size()), rights.groups_.data());
  rights.taken_ = setgroups(groups->size(), groups->data()) == 0;
  setfsgid(group);
  setfsuid(uid);
  // These calls do not say whether they succeeded; asked for what can't be, they say what is.
  const bool changed = static_cast<uid_t>(setfsuid(kNoChange)) == uid &&
                       static_cast<gid_t>(setfsgid(kNoChange)) == group;
  if (rights.taken_ && changed) return rights;
  return Error{ErrorKind::denied,
               fmt::format("bellows-modeld may not open files with the rights of user {}: it needs "
                           "CAP_SETUID and CAP_SETGID",
                           uid)};
}

UserRights::UserRights(UserRights&& other) noexcept
    : taken_(std::exchange(other.taken_, false)), groups_(std::move(other.groups_)) {}

UserRights::~UserRights() {
  if (!taken_) return;
  setfsuid(geteuid());
  setfsgid(getegid());
  (void)setgroups(groups_.size(), groups_.data());
}

}  // namespace bellows
