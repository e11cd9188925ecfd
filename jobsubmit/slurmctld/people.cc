// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/people.h"

#include <fmt/core.h>
#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

namespace bellows {
namespace {

constexpr std::size_t kMostBuffer = 16 << 20;  // groups with hundreds of thousands of members

/// Calls one of the *_r functions with as large a buffer as its entry needs.
template <typename Entry, typename Call>
Result<std::optional<Entry>> ask(const std::string& name, std::vector<char>& buffer,
                                 const Call& call) {
  Entry entry;
  Entry* found = nullptr;
  if (buffer.empty()) buffer.resize(4096);
  for (;;) {
    const int rc = call(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (rc == EINTR) continue;
    if (rc == ERANGE && buffer.size() < kMostBuffer) {
      buffer.resize(buffer.size() * 4);
      continue;
    }
    if (found) return std::optional<Entry>(entry);
    // What "nobody has it" looks like differs between name services; see getpwnam(3).
    if (rc == 0 || rc == ENOENT || rc == ESRCH || rc == EBADF || rc == EPERM)
      return std::optional<Entry>();
    return Error{ErrorKind::unavailable,
                 fmt::format("cannot look up \"{}\": {}", name, std::strerror(rc))};
  }
}

Result<std::optional<passwd>> user_named(const std::string& name, std::vector<char>& buffer) {
  return ask<passwd>(name, buffer, ::getpwnam_r);
}

std::vector<gid_t> groups_of(const std::string& name, gid_t primary) {
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  while (::getgrouplist(name.c_str(), primary, groups.data(), &count) < 0) {
    if (count <= static_cast<int>(groups.size())) count = static_cast<int>(groups.size()) * 2;
    groups.resize(static_cast<std::size_t>(count));
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace

bool People::named_in(const Policy& policy) {
  return std::any_of(policy.tenants.begin(), policy.tenants.end(), [](const Tenant& tenant) {
    return !tenant.users.empty() || !tenant.groups.empty();
  });
}

Status People::add_group(const std::string& name) {
  std::vector<char> buffer;
  const auto group = ask<struct group>(name, buffer, ::getgrnam_r);
  if (!group) return group.error();
  if (!*group) return {};
  groups_[(*group)->gr_gid] = name;
  for (char** member = (*group)->gr_mem; member && *member; ++member) {
    std::vector<char> room;
    const auto user = user_named(*member, room);
    if (!user) return user.error();
    if (*user) add_name(people_[(*user)->pw_uid].groups, name);
  }
  return {};
}

Status People::add_user(const std::string& name) {
  std::vector<char> buffer;
  const auto user = user_named(name, buffer);
  if (!user) return user.error();
  if (!*user) return {};
  Person& person = people_[(*user)->pw_uid];
  person.user = name;
  for (gid_t gid : groups_of(name, (*user)->pw_gid))
    if (const auto group = groups_.find(gid); group != groups_.end())
      add_name(person.groups, group->second);
  return {};
}

Result<People> People::look_up(const Policy& policy) {
  std::set<std::string> users;
  std::set<std::string> groups;
  for (const Tenant& tenant : policy.tenants) {
    users.insert(tenant.users.begin(), tenant.users.end());
    groups.insert(tenant.groups.begin(), tenant.groups.end());
  }
  People people;
  // First all groups: a user's are told by their numbers.
  for (const std::string& name : groups)
    if (auto status = people.add_group(name); !status.ok()) return status.error();
  for (const std::string& name : users)
    if (auto status = people.add_user(name); !status.ok()) return status.error();
  return people;
}

People::Person People::find(uid_t uid, gid_t gid) const {
  const auto known = people_.find(uid);
  Person person = known == people_.end() ? Person() : known->second;
  if (const auto group = groups_.find(gid); group != groups_.end())
    add_name(person.groups, group->second);
  return person;
}

}  // namespace bellows
