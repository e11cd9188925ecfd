// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "jobsubmit/slurmctld/people.h"
#include "jobsubmit/slurmctld/watcher.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

/// A directory with a policy and a script; each write is whole for a reader.
class Site {
 public:
  std::string path(const char* name) const { return scratch_.path() + "/" + name; }
  void write(const char* name, const std::string& text) const {
    std::ofstream(path("new")) << text;
    cr_assert(std::rename(path("new").c_str(), path(name).c_str()) == 0);
  }
  void remove(const char* name) const { ::unlink(path(name).c_str()); }

 private:
  ScratchDir scratch_;
};

const std::string kScript = "function submit() end ";

void ignore(const std::string&, const std::string&) {}

/// Waits at most 10 s for what `done` says of the watcher's state.
template <typename Done>
bool reaches(const PolicyWatcher& watcher, const Done& done) {
  for (int i = 0; i < 1000; ++i) {
    if (done(watcher.current())) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

std::string name_of(uid_t uid) {
  const passwd* entry = ::getpwuid(uid);
  cr_assert(entry);
  return entry->pw_name;
}

std::string group_of(gid_t gid) {
  const group* entry = ::getgrgid(gid);
  cr_assert(entry);
  return entry->gr_name;
}

Policy naming(const std::string& user, const std::string& group) {
  Policy policy;
  Tenant& tenant = policy.tenants.emplace_back();
  tenant.name = "t";
  if (!user.empty()) tenant.users = {user};
  if (!group.empty()) tenant.groups = {group};
  return policy;
}

}  // namespace

Test(watcher, reads_the_script_with_the_policy, .timeout = 60) {
  const Site site;
  site.write("s.lua", kScript + "-- one");
  site.write("b.yaml", "version: 1\nlua: {script: s.lua}\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 5ms, ignore);
  cr_assert(watcher.current().policy);
  cr_expect(watcher.current().policy->lua.source == kScript + "-- one");
  cr_expect(watcher.current().policy->lua.path == site.path("s.lua"));

  site.write("s.lua", kScript + "-- two, longer");
  cr_expect(
      reaches(watcher,
              [](const auto& s) { return s.policy->lua.source == kScript + "-- two, longer"; }),
      "a script that changes alone is seen");
  const auto before = watcher.current().policy;
  site.remove("s.lua");
  cr_expect(reaches(watcher, [](const auto& s) { return !s.problem.empty(); }));
  cr_expect(watcher.current().problem.find("s.lua") != std::string::npos);
  cr_expect(watcher.current().policy == before, "what was read before stays in force");
  site.write("s.lua", kScript + "-- three");
  cr_expect(reaches(watcher, [](const auto& s) {
    return s.problem.empty() && s.policy->lua.source == kScript + "-- three";
  }));
}

Test(watcher, what_a_call_holds_stays_as_it_was, .timeout = 60) {
  const Site site;
  site.write("b.yaml", "version: 1\ntenants: {a: }\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 5ms, ignore);
  const auto held = watcher.current();
  cr_assert(held.policy && held.policy->tenants.size() == 1);
  const std::string digest = held.policy->digest;
  site.write("b.yaml", "version: 1\ntenants: {b: , c: }\n");
  cr_assert(reaches(watcher, [](const auto& s) { return s.policy->tenants.size() == 2; }));
  cr_expect(held.policy != watcher.current().policy);
  cr_expect(held.policy->digest == digest && held.policy->tenants.size() == 1 &&
            held.policy->tenants[0].name == "a");
}

Test(watcher, a_script_that_was_never_there, .timeout = 60) {
  const Site site;
  site.write("b.yaml", "version: 1\nlua: {script: s.lua}\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 5ms, ignore);
  cr_expect(not watcher.current().policy);
  cr_expect(not watcher.current().problem.empty());
  site.write("s.lua", kScript + "-- here");
  cr_expect(reaches(watcher, [](const auto& s) { return s.policy && s.problem.empty(); }));
}

Test(watcher, a_script_with_an_error_leaves_the_one_before, .timeout = 60) {
  const Site site;
  site.write("s.lua", kScript);
  site.write("b.yaml", "version: 1\nlua: {script: s.lua}\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 5ms, ignore);
  const auto before = watcher.current();
  cr_assert(before.hook);
  cr_expect(before.hook->has_submit() && not before.hook->has_modify());
  site.write("s.lua", "function submit(");
  cr_assert(reaches(watcher, [](const auto& s) { return !s.problem.empty(); }));
  cr_expect(watcher.current().problem.starts_with(site.path("s.lua") + ":1:"), "%s",
            watcher.current().problem.c_str());
  cr_expect(watcher.current().policy == before.policy && watcher.current().hook == before.hook);

  site.write("b.yaml", "version: 1\nenabled: false\nlua: {script: s.lua}\n");
  cr_assert(reaches(watcher, [](const auto& s) { return !s.policy->enabled; }),
            "the kill switch needs no script");
  cr_expect(watcher.current().problem.empty() && not watcher.current().hook);
}

Test(watcher, a_policy_without_a_script_has_no_hook, .timeout = 60) {
  const Site site;
  site.write("s.lua", kScript);
  site.write("b.yaml", "version: 1\nlua: {script: s.lua}\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 5ms, ignore);
  cr_assert(watcher.current().hook);
  site.write("b.yaml", "version: 1\n");
  cr_expect(reaches(watcher, [](const auto& s) { return s.policy->lua.path.empty(); }));
  cr_expect(not watcher.current().hook);
}

Test(watcher, a_policy_without_names_waits_for_nobody, .timeout = 60) {
  const Site site;
  site.write("b.yaml", "version: 1\ntenants: {a: }\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 1h, ignore);
  cr_expect(watcher.current().people != nullptr);
}

Test(watcher, looks_up_people_in_its_thread, .timeout = 60) {
  const Site site;
  const std::string user = name_of(::getuid());
  site.write("b.yaml", "version: 1\ntenants: {a: {users: [" + user + "]}}\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 5ms, ignore);
  cr_assert(reaches(watcher, [](const auto& s) { return s.people != nullptr; }));
  cr_expect(watcher.current().people->find(::getuid(), ::getgid()).user == user);
  cr_expect(watcher.current().people->find(4000000000U, ::getgid()).user.empty());
}

Test(watcher, looks_people_up_again, .timeout = 60) {
  const Site site;
  site.write("b.yaml", "version: 1\ntenants: {a: {users: [" + name_of(::getuid()) + "]}}\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 5ms, ignore, {}, 20ms);
  cr_assert(reaches(watcher, [](const auto& s) { return s.people != nullptr; }));
  const auto first = watcher.current().people;
  cr_expect(reaches(watcher, [&](const auto& s) { return s.people != first; }));
}

Test(watcher, the_kill_switch_waits_for_nobody, .timeout = 60) {
  const Site site;
  site.write("b.yaml", "version: 1\nenabled: false\ntenants: {a: {groups: [x]}}\n");
  const PolicyWatcher watcher(site.path("b.yaml"), 1h, ignore);
  cr_assert(watcher.current().policy);
  cr_expect(not watcher.current().policy->enabled);
  cr_expect(watcher.current().people != nullptr);
}

Test(people, users_and_their_groups, .timeout = 60) {
  const std::string user = name_of(::getuid());
  const std::string group = group_of(::getpwuid(::getuid())->pw_gid);
  const auto people = People::look_up(naming(user, group));
  cr_assert(people.ok());
  const People::Person me = people->find(::getuid(), 4000000000U);
  cr_expect(me.user == user);
  cr_expect(me.groups == std::vector<std::string>{group}, "the user's own group, in no list");
}

Test(people, the_group_submitted_with_counts, .timeout = 60) {
  const std::string group = group_of(::getgid());
  const auto people = People::look_up(naming("", group));
  cr_assert(people.ok());
  const People::Person stranger = people->find(4000000000U, ::getgid());
  cr_expect(stranger.user.empty());
  cr_expect(stranger.groups == std::vector<std::string>{group});
  cr_expect(people->find(4000000000U, 4000000000U).groups.empty());
}

Test(people, members_of_a_group, .timeout = 60) {
  // Some group of this machine with a member that is a user; without one there is nothing to see.
  ::setgrent();
  while (const group* entry = ::getgrent()) {
    if (!entry->gr_mem[0]) continue;
    const std::string name = entry->gr_name;
    const passwd* member = ::getpwnam(entry->gr_mem[0]);
    if (!member) continue;
    const uid_t uid = member->pw_uid;
    const auto people = People::look_up(naming("", name));
    cr_assert(people.ok());
    cr_expect(people->find(uid, 4000000000U).groups == std::vector<std::string>{name});
    break;
  }
  ::endgrent();
}

Test(people, names_that_nobody_has, .timeout = 60) {
  const auto people = People::look_up(naming("no-such-user-here", "no-such-group-here"));
  cr_assert(people.ok(), "%s", people.ok() ? "" : people.error().text.c_str());
  cr_expect(people->find(0, 0).groups.empty());
}
