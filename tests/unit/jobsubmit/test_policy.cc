// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "jobsubmit/slurmctld/watcher.h"
#include "tests/unit/jobsubmit/policy_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

const char* const kFull = R"(version: 1
checkpoint_dir: /shared/%u/%j
frameworks:
  digits: {versions: ["1.0"]}
  pytorch: {versions: ["2.1", "1.13"], default: "1.13", env: {NCCL_DEBUG: WARN}}
  plain:
tenants:
  vision:
    accounts: [Vision, cv]
    frameworks: [digits, "pytorch:2.*"]
    gpus: {min: 2, max: 8, start: 4, step: 2}
  speech:
default_tenant: speech
resize_site_factor: 500
)";

}  // namespace

Test(policy, a_file_of_the_first_release_means_the_same, .timeout = 10) {
  const Policy policy = good(kFull);
  cr_expect(policy.enabled);
  cr_expect(policy.plain_jobs == Fallback::pass && policy.plain_jobs_by_partition.empty());
  cr_expect(policy.lua.path.empty());
  cr_expect_str_eq(policy.checkpoint_dir.c_str(), "/shared/%u/%j");
  cr_expect(policy.frameworks.size() == 3);
  cr_expect_str_eq(policy.frameworks.at("digits").default_version.c_str(), "1.0");
  const Framework& pytorch = policy.frameworks.at("pytorch");
  cr_expect_str_eq(pytorch.default_version.c_str(), "1.13");
  cr_expect_str_eq(pytorch.find("2.1")->env.at("NCCL_DEBUG").c_str(), "WARN");
  cr_expect(pytorch.find("2.2") == nullptr);
  const Framework& plain = policy.frameworks.at("plain");
  cr_expect(plain.versions.size() == 1 && plain.find("") == &plain.versions[0]);
  cr_expect(plain.default_version.empty());
  const Tenant* vision = tenant_for(policy, "cv");
  cr_assert(vision);
  cr_expect_str_eq(vision->name.c_str(), "vision");
  cr_expect(tenant_for(policy, "vision") == vision, "accounts are lower-cased");
  cr_expect(vision->gpus.start == 4);
  cr_expect(vision->gpus.sizes.to_string() == "2-8:2");
  cr_expect(vision->wide_batch && !vision->children && !vision->suspended && !vision->narrowed());
  cr_expect(vision->gpus.shrink_below_start && !vision->gpus.range && vision->gpus.types.empty());
  cr_expect(vision->sizing.by_type.empty() && vision->sizing.placement == PlacementStrategy::any);
  cr_expect(policy.resize_site_factor == 500);
}

Test(policy, tenants_permit_by_pattern, .timeout = 10) {
  const Policy policy = good(kFull);
  const Tenant* vision = tenant_for(policy, "vision");
  cr_expect(vision->permits("digits", "1.0"));
  cr_expect(vision->permits("pytorch", "2.1"));
  cr_expect(not vision->permits("pytorch", "1.13"));
  cr_expect(not vision->permits("plain", ""));
  cr_expect(tenant_for(policy, "speech")->permits("plain", ""), "no list permits all");
  cr_expect(not only_tenant("frameworks: []").permits("f", "1"), "an empty list permits none");
}

Test(policy, tenant_of_falls_back_to_the_default, .timeout = 10) {
  const Policy policy = good(kFull);
  cr_expect(name_of(tenant_for(policy, "physics")) == "speech");
  cr_expect(name_of(tenant_for(policy, "")) == "speech");
  cr_expect(name_of(policy.find_tenant("vision")) == "vision");
  cr_expect(policy.find_tenant("cv") == nullptr);
  cr_expect(tenant_for(good("version: 1\ntenants: {a: }"), "b") == nullptr);
  cr_expect(name_of(tenant_for(good("version: 1\ntenants: {A: }"), "a")) == "A",
            "own name, lower case");
}

Test(policy, a_copy_finds_its_own_tenants, .timeout = 10) {
  auto first = std::make_unique<Policy>(good(kFull));
  const Policy copy = *first;
  first.reset();
  cr_expect(tenant_for(copy, "cv") == &copy.tenants[0]);
  cr_expect(tenant_for(copy, "else") == &copy.tenants[1]);
}

Test(policy, default_tenant_may_stand_before_tenants, .timeout = 10) {
  cr_expect(good("version: 1\ndefault_tenant: a\ntenants: {a: }\n").default_tenant == "a");
  cr_expect(
      tenant_for(good("version: 1\ntenants: {a: {frameworks: [f]}}\nframeworks: {f: }\n"), "a")
          ->permits("f", ""));
  cr_expect(good("version: 1\ncheckpoint_dir: \"\"\n").checkpoint_dir.empty());
}

Test(policy, checkpoints_are_private_unless_it_says_otherwise, .timeout = 10) {
  cr_expect(good("version: 1\n").checkpoint_access == Access::owner);
  for (const auto& [word, access] :
       {std::pair{"private", Access::owner}, {"group", Access::group}, {"all", Access::all}})
    cr_expect(
        good(std::string("version: 1\ncheckpoint_access: ") + word + "\n").checkpoint_access ==
        access);
}

Test(policy, tenants_share_an_account_by_user_group_and_partition, .timeout = 10) {
  const Policy policy = good(R"(version: 1
tenants:
  persons: {accounts: [x], users: [alice], groups: [cv, "domain users"]}
  fast: {accounts: [x], partitions: ["gpu*", fast]}
  both: {accounts: [x], users: [carol], partitions: [cpu]}
  rest: {accounts: [X]}
)");
  const std::vector<std::string> cv{"staff", "cv"};
  const auto tenant = [&](std::string_view user, const std::vector<std::string>* groups,
                          std::string_view partition) {
    return name_of(policy.tenant_of({"x", user, groups, partition, nullptr}));
  };
  cr_expect(tenant("alice", nullptr, "") == "persons", "by user, groups unknown");
  cr_expect(tenant("bob", &cv, "gpu1") == "persons", "by group; the first in the file wins");
  cr_expect(tenant("bob", nullptr, "gpu1") == "fast");
  cr_expect(tenant("bob", nullptr, "gpu1,fast") == "fast");
  cr_expect(tenant("bob", nullptr, "gpu1,slow") == "rest", "each of the list must be the tenant's");
  cr_expect(tenant("bob", nullptr, "") == "rest", "no partition is in none of them");
  cr_expect(tenant("carol", nullptr, "cpu") == "both");
  cr_expect(tenant("carol", nullptr, "slow") == "rest", "a tenant is narrowed by all it names");
  cr_expect(tenant("", nullptr, "") == "rest");
}

Test(policy, parents_stand_in_for_an_account_of_no_tenant, .timeout = 10) {
  const Policy policy = good(R"(version: 1
tenants:
  top: {accounts: [root], children: true}
  mid: {accounts: [dept], children: true, users: [alice]}
  own: {accounts: [lab]}
  alone: {accounts: [solo]}
  others: {accounts: [], users: [bob]}
default_tenant: others
)");
  const std::vector<std::string> parents{"dept", "root"};
  const std::vector<std::string> solo{"solo"};
  const auto tenant = [&](std::string_view account, std::string_view user,
                          const std::vector<std::string>* above) {
    return name_of(policy.tenant_of({account, user, nullptr, "", above}));
  };
  cr_expect(tenant("lab", "alice", &parents) == "own", "its own tenant before a parent's");
  cr_expect(tenant("new", "alice", &parents) == "mid", "the nearest parent");
  cr_expect(tenant("new", "bob", &parents) == "top", "the nearest that takes the user");
  cr_expect(tenant("new", "bob", &solo) == "others", "no children, no inheritance");
  cr_expect(tenant("new", "carol", &solo) == "none", "the default tenant is narrowed, too");
  cr_expect(tenant("dept", "carol", nullptr) == "none");
}

Test(policy, ten_thousand_tenants_cost_no_more_than_ten, .timeout = 60) {
  const auto seconds = [](int tenants) {
    std::string text = "version: 1\ndefault_tenant: t0\ntenants:\n";
    for (int i = 0; i < tenants; ++i) text += "  t" + std::to_string(i) + ":\n";
    const Policy policy = good(text);
    const std::string last = "t" + std::to_string(tenants - 1);
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 20000; ++i)
        if (name_of(tenant_for(policy, last)) != last || name_of(tenant_for(policy, "?")) != "t0")
          return 1e9;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    return best;
  };
  const double few = seconds(10);
  const double many = seconds(10000);
  // A search through all of them would take hundreds of times as long.
  cr_expect(many < 20 * few, "%.6f s with 10, %.6f s with 10000", few, many);
}

Test(policy, switches, .timeout = 10) {
  cr_expect(not good("version: 1\nenabled: false\n").enabled);
  cr_expect(good("version: 1\nenabled: true\n").enabled);
  cr_expect(good("version: 1\nplain_jobs: refuse\n").plain_jobs == Fallback::refuse);
  const Policy policy =
      good("version: 1\nplain_jobs: {default: pass, partitions: {gpu: refuse, cpu: pass}}\n");
  cr_expect(policy.plain_jobs == Fallback::pass);
  cr_expect(policy.plain_jobs_by_partition.at("gpu") == Fallback::refuse);
  cr_expect(policy.plain_jobs_by_partition.at("cpu") == Fallback::pass);
}

Test(policy, digest_is_of_the_text, .timeout = 10) {
  // XXH3-64, in its canonical form, of "version: 1\n".
  cr_expect(good("version: 1\n").digest == "20a755697f6e22bb");
  cr_expect(good("version: 1 \n").digest != good("version: 1\n").digest);
}

Test(policy, lua_settings, .timeout = 10) {
  const char* const text =
      "version: 1\nlua: {script: a.lua, on_error: pass, instructions: 5000, memory: 2M}\n";
  const auto read = [](const char* yaml, const char* file) {
    auto policy = load_policy(yaml, file);
    cr_assert(policy.ok(), "%s", policy.ok() ? "" : policy.error().text.c_str());
    return policy->lua;
  };
  const LuaSettings lua = read(text, "/etc/slurm/bellows.yaml");
  cr_expect_str_eq(lua.path.c_str(), "/etc/slurm/a.lua");
  cr_expect(lua.source.empty());
  cr_expect(lua.on_error == Fallback::pass && lua.max_instructions == 5000);
  cr_expect(lua.max_memory_kib == 2048);
  cr_expect(read(text, "b.yaml").path == "a.lua");
  const LuaSettings plain = read("version: 1\nlua: {script: /x/a.lua}\n", "/etc/b.yaml");
  cr_expect_str_eq(plain.path.c_str(), "/x/a.lua");
  cr_expect(plain.on_error == Fallback::refuse && plain.max_instructions == 100000);
  cr_expect(plain.max_memory_kib == 1024);
  cr_expect(read("version: 1\nlua: {script: }\n", "b.yaml").path.empty());
}

namespace {

using Texts = std::vector<std::string>;
using Kinds = std::vector<LaunchKind>;
using Variables = std::map<std::string, std::string>;

}  // namespace

Test(policy, versions_inherit_from_their_framework, .timeout = 10) {
  const Policy policy = good(R"(version: 1
frameworks:
  f:
    image: /images/f
    env: {A: "1", B: "1"}
    mounts: ["/data:/data:ro"]
    prefix: numactl --localalloc
    launch: [torch, nccl]
    versions:
      "1.8": {state: removed, hint: "use f:2.1"}
      "2.1":
      "1.13": {state: deprecated, image: /images/f-1.13, env: {B: "2", C: "3"}, mounts: [],
               prefix: , launch: [mpi]}
)");
  const Framework& f = policy.frameworks.at("f");
  cr_expect_str_eq(f.default_version.c_str(), "2.1", "the first that is not removed");
  const FrameworkVersion& plain = *f.find("2.1");
  cr_expect(plain.state == LifeCycle::supported && plain.hint.empty());
  cr_expect(plain.image == "/images/f" && plain.prefix == "numactl --localalloc");
  cr_expect((plain.env == Variables{{"A", "1"}, {"B", "1"}}));
  cr_expect((plain.mounts == Texts{"/data:/data:ro"}));
  cr_expect((plain.launch == Kinds{LaunchKind::torch, LaunchKind::nccl}));
  const FrameworkVersion& old = *f.find("1.13");
  cr_expect(old.state == LifeCycle::deprecated && old.image == "/images/f-1.13");
  cr_expect((old.env == Variables{{"A", "1"}, {"B", "2"}, {"C", "3"}}));
  cr_expect(old.mounts.empty() && old.prefix.empty());
  cr_expect((old.launch == Kinds{LaunchKind::mpi}));
  cr_expect(f.find("1.8")->state == LifeCycle::removed && f.find("1.8")->hint == "use f:2.1");
}

Test(policy, a_tenants_keys_replace_the_defaults, .timeout = 10) {
  const char* const defaults =
      "children: true, users: [alice], groups: [cv], partitions: [gpu], suspended: moving, "
      "frameworks: [g], images: [\"/i/*\"], batch_range: false, pools: {members: 4}";
  const Tenant same = only_tenant("", defaults);
  cr_expect(same.children && same.narrowed() && !same.wide_batch);
  cr_expect(same.pool_members == 4);
  cr_expect(same.users.size() == 1 && same.groups.size() == 1 && same.partitions.size() == 1);
  cr_expect(same.suspended == "moving" && same.images.size() == 1);
  cr_expect(same.permits("g", "") && !same.permits("f", "1"));
  const Tenant other = only_tenant(
      "children: false, users: [bob, carol], suspended: , frameworks: [f], images: [], "
      "batch_range: true, pools: {}",
      defaults);
  cr_expect(!other.children && other.users.size() == 2 && !other.suspended);
  cr_expect(other.images.empty() && other.wide_batch && other.permits("f", "1"));
  cr_expect(other.pool_members == kMostPoolMembers);
  cr_expect(only_tenant("").pool_members == kMostPoolMembers);
  cr_expect(only_tenant("pools: {members: 0}").pool_members == 0);
  cr_expect(only_tenant("suspended: over budget").suspended == "over budget");
  cr_expect(only_tenant("suspended: \"no\"").suspended == "no");
}

Test(policy, the_shipped_sample_is_valid, .timeout = 10) {
  std::ifstream file(TOP_SRCDIR "/etc/bellows.yaml");
  cr_assert(file.good());
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  cr_expect(good(text).tenants.size() == 2);
}

namespace {

class PolicyFile {
 public:
  std::string path() const { return dir_.path() + "/bellows.yaml"; }
  void write(const std::string& text) const {
    std::ofstream(path() + ".new") << text;
    ::rename((path() + ".new").c_str(), path().c_str());
  }
  void remove() const { ::unlink(path().c_str()); }

 private:
  ScratchDir dir_;
};

/// Waits at most 5 s for what `done` says of the watcher's state.
template <typename Done>
bool reaches(const PolicyWatcher& watcher, const Done& done) {
  for (int i = 0; i < 500; ++i) {
    if (done(watcher.current())) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

}  // namespace

Test(watcher, picks_up_a_file_that_appears_and_keeps_it_when_it_breaks, .timeout = 30) {
  const PolicyFile file;
  int reports = 0;
  std::string last;
  PolicyWatcher watcher(file.path(), 5ms, [&](const std::string&, const std::string& problem) {
    ++reports;
    last = problem;
  });
  cr_expect(not watcher.current().policy);
  cr_expect(watcher.current().problem.find("No such file") != std::string::npos);

  file.write("version: 1\ntenants: {a: }\n");
  cr_assert(reaches(watcher, [](const auto& s) { return s.policy && s.problem.empty(); }));

  file.write("version: 1\ntenants: {b: \n");
  cr_assert(reaches(watcher, [](const auto& s) { return !s.problem.empty(); }));
  cr_expect(watcher.current().policy && tenant_for(*watcher.current().policy, "a"),
            "old one stays");

  file.remove();
  cr_assert(reaches(watcher,
                    [](const auto& s) { return s.problem.find("No such") != std::string::npos; }));
  cr_expect(watcher.current().policy && tenant_for(*watcher.current().policy, "a"),
            "old one stays");

  file.write("version: 1\ntenants: {c: }\n");
  cr_assert(reaches(watcher, [](const auto& s) { return tenant_for(*s.policy, "c") != nullptr; }));
  cr_expect(watcher.current().problem.empty());
}

Test(watcher, reports_a_bad_file_once, .timeout = 30) {
  const PolicyFile file;
  file.write("nonsense: 1\n");
  int reports = 0;
  {
    PolicyWatcher watcher(file.path(), 1ms,
                          [&](const std::string&, const std::string&) { ++reports; });
    std::this_thread::sleep_for(50ms);
  }
  cr_expect(reports == 1, "reported %d times", reports);
}

Test(watcher, survives_a_fifo_and_a_directory, .timeout = 30) {
  const PolicyFile file;
  cr_assert(::mkfifo(file.path().c_str(), 0600) == 0);
  PolicyWatcher watcher(file.path(), 5ms, [](const std::string&, const std::string&) {});
  cr_expect(not watcher.current().policy);
  file.remove();
  cr_assert(::mkdir(file.path().c_str(), 0700) == 0);
  cr_expect(reaches(watcher, [](const auto& s) {
    return s.problem.find("Is a directory") != std::string::npos;
  }));
}

Test(policy, versions_that_look_like_numbers_are_kept_and_noted, .timeout = 10) {
  const auto notes = [](const std::string& versions) {
    const Policy policy = good("version: 1\nframeworks: {f: {versions: " + versions + "}}\n");
    return policy.notes.empty() ? "" : policy.notes.at(0);
  };
  const std::string said =
      "is not quoted; Bellows reads it as it is written, but other programs read a number (2.10 is "
      "2.1 to them); write ";
  cr_expect(notes("[2.10]") == "b.yaml:2:29: version 2.10 " + said + "\"2.10\"");
  cr_expect(notes("{\"1.0\": , 3: }") == "b.yaml:2:38: version 3 " + said + "\"3\"", "%s",
            notes("{\"1.0\": , 3: }").c_str());
  cr_expect(notes("[\"2.10\", 2.1.3, v2, 24.05-py3]").empty());
  const Policy policy =
      good("version: 1\nframeworks: {f: {versions: [2.10, 2.1], default: 2.10}}\n");
  const Framework& framework = policy.frameworks.at("f");
  cr_expect(framework.default_version == "2.10" && framework.find("2.1"));
}

Test(policy, a_framework_has_models_for_jobs_that_name_none, .timeout = 10) {
  const Policy policy = good(
      "version: 1\nframeworks:\n  f: {models: [m/8b, n], versions: {\"1\": , \"2\": {models: "
      "[n]}}}\n"
      "  g: {versions: [\"1\"]}\ntenants: {a: , b: }\nmodels:\n"
      "- {name: m/8b, tenant: a, source: /m}\n- {name: n, tenant: b, source: /n}\n");
  const Framework& framework = policy.frameworks.at("f");
  cr_expect(framework.find("1")->models == std::vector<std::string>({"m/8b", "n"}));
  cr_expect(framework.find("2")->models == std::vector<std::string>({"n"}), "its own replace them");
  cr_expect(policy.frameworks.at("g").find("1")->models.empty());
}

Test(policy, models_are_found_by_who_sees_them, .timeout = 10) {
  const Policy policy = good(
      "version: 1\ntenants: {a: , b: , c: }\nmodels:\n"
      "- {name: m/8b, tenant: a, source: /m, visible: [b], user: alice}\n"
      "- {name: m/8b, tenant: b, source: /own}\n"
      "- {name: mine, tenant: a, source: /mine, uid: 7}\n"
      "- {name: all, tenant: a, source: \"s3://b/all\", visible: [\"*\"]}\n");
  cr_assert(policy.models.size() == 4);
  const SiteModel& shown = policy.models[0];
  cr_expect(shown.source == "/m" && shown.user == "alice" && !shown.uid);
  cr_expect(policy.models[2].uid == 7u);
  cr_expect(policy.find_model("a", "m/8b") == &shown);
  cr_expect(policy.find_model("b", "m/8b") == &policy.models[1], "its own comes first");
  cr_expect(policy.find_model("b", "mine") == nullptr);
  cr_expect(policy.find_model("c", "m/8b") == nullptr);
  cr_expect(policy.find_model("c", "all") == &policy.models[3]);
  cr_expect(policy.find_model("c", "none") == nullptr);
}
