// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "jobsubmit/policy.h"
#include "jobsubmit/watcher.h"
#include "tests/unit/scratch_dir.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

Policy good(const std::string& text) {
  auto policy = load_policy(text, "b.yaml");
  cr_assert(policy.ok(), "%s", policy.ok() ? "" : policy.error().text.c_str());
  return *std::move(policy);
}

void expect_error(const std::string& text, const std::string& message) {
  auto policy = load_policy(text, "b.yaml");
  cr_assert(not policy.ok(), "accepted: %s", text.c_str());
  cr_expect_str_eq(policy.error().text.c_str(), message.c_str());
}

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

Test(policy, reads_every_key, .timeout = 10) {
  const Policy policy = good(kFull);
  cr_expect_str_eq(policy.checkpoint_dir.c_str(), "/shared/%u/%j");
  cr_expect(policy.frameworks.size() == 3);
  cr_expect_str_eq(policy.frameworks.at("digits").default_version.c_str(), "1.0");
  cr_expect_str_eq(policy.frameworks.at("pytorch").default_version.c_str(), "1.13");
  cr_expect_str_eq(policy.frameworks.at("pytorch").env.at("NCCL_DEBUG").c_str(), "WARN");
  cr_expect(policy.frameworks.at("plain").versions.empty());
  const Tenant* vision = policy.tenant_of("cv");
  cr_assert(vision);
  cr_expect_str_eq(vision->name.c_str(), "vision");
  cr_expect(policy.tenant_of("vision") == vision, "accounts are lower-cased");
  cr_expect(vision->gpus.start == 4);
  cr_expect(vision->gpus.sizes().to_string() == "2-8:2");
  cr_expect(policy.resize_site_factor == 500);
}

Test(policy, tenants_permit_by_pattern, .timeout = 10) {
  const Policy policy = good(kFull);
  const Tenant* vision = policy.tenant_of("vision");
  cr_expect(vision->permits("digits", "1.0"));
  cr_expect(vision->permits("pytorch", "2.1"));
  cr_expect(not vision->permits("pytorch", "1.13"));
  cr_expect(not vision->permits("plain", ""));
  cr_expect(policy.tenant_of("speech")->permits("plain", ""), "no list permits all");
  const Policy closed = good("version: 1\nframeworks: {a: }\ntenants: {t: {frameworks: []}}\n");
  cr_expect(not closed.tenant_of("t")->permits("a", ""), "an empty list permits none");
}

Test(policy, tenant_of_falls_back_to_the_default, .timeout = 10) {
  const Policy policy = good(kFull);
  cr_expect_str_eq(policy.tenant_of("physics")->name.c_str(), "speech");
  cr_expect_str_eq(policy.tenant_of("")->name.c_str(), "speech");
  cr_expect(good("version: 1\ntenants: {a: }").tenant_of("b") == nullptr);
  cr_expect(good("version: 1\ntenants: {A: }").tenant_of("a") != nullptr, "own name, lower case");
}

Test(policy, errors_name_the_place, .timeout = 10) {
  expect_error("", "b.yaml:1:1: the key \"version\" is missing; write version: 1");
  expect_error("version: 2\n", "b.yaml:1:10: only version 1 is known; write version: 1");
  expect_error("version: 1\ntenant:\n",
               "b.yaml:2:1: unknown key \"tenant\" in the policy; did you mean \"tenants\"?");
  expect_error("version: 1\nzzzzzzzz: 1\n",
               "b.yaml:2:1: unknown key \"zzzzzzzz\" in the policy; known are version, "
               "checkpoint_dir, frameworks, tenants, default_tenant, resize_site_factor");
  expect_error("version: 1\ntenants:\n  a:\n    gpus: {mx: 4}\n",
               "b.yaml:4:12: unknown key \"mx\" in gpus; did you mean \"max\"?");
  expect_error("version: 1\ntenants: [a]\n",
               "b.yaml:2:10: tenants must be a mapping of key: value");
  expect_error("version: 1\ntenants: {a: {gpus: {max: many}}}\n",
               "b.yaml:2:27: max must be a whole number from 1 to 4096");
  expect_error("version: 1\nframeworks: {-f: }\n",
               "b.yaml:2:14: a framework's name must be 1 to 64 letters, digits, \"_\", \".\", "
               "\"+\" or \"-\", and not begin with one of the last three");
  expect_error("version: 1\ntenants: {a: {gpus: {max: 5000}}}\n",
               "b.yaml:2:27: max must be a whole number from 1 to 4096");
}

Test(policy, refuses_what_does_not_fit_together, .timeout = 10) {
  expect_error("version: 1\ntenants: {a: {gpus: {min: 4, max: 2}}}\n",
               "b.yaml:2:35: max 2 is smaller than min 4");
  expect_error("version: 1\ntenants: {a: {gpus: {min: 2, max: 8, step: 2, start: 3}}}\n",
               "b.yaml:2:54: start 3 is not one of the sizes 2-8:2");
  expect_error("version: 1\ntenants: {a: {accounts: [x]}, b: {accounts: [X]}}\n",
               "b.yaml:2:46: account x already belongs to tenant a");
  expect_error("version: 1\ndefault_tenant: c\ntenants: {a: , b: }\n",
               "b.yaml:2:17: default_tenant \"c\" is not one of the tenants a, b");
  expect_error("version: 1\nframeworks: {f: {versions: [\"1\"], default: \"2\"}}\n",
               "b.yaml:2:44: the default version 2 is not in versions");
  expect_error("version: 1\nframeworks: {f: {versions: [\"1\", \"1\"]}}\n",
               "b.yaml:2:34: version 1 stands twice");
  expect_error("version: 1\nframeworks: {digits: }\ntenants: {a: {frameworks: [digts]}}\n",
               "b.yaml:3:28: \"digts\" matches none of the frameworks of this file; did you mean "
               "\"digits\"?");
}

Test(policy, checkpoint_dir_must_be_a_path_of_each_job, .timeout = 10) {
  expect_error("version: 1\ncheckpoint_dir: ckpt/%j\n",
               "b.yaml:2:17: checkpoint_dir must be an absolute path");
  expect_error("version: 1\ncheckpoint_dir: /ckpt/%u\n",
               "b.yaml:2:17: checkpoint_dir must hold %j, or jobs would overwrite each other's "
               "checkpoints");
  expect_error("version: 1\ncheckpoint_dir: /ckpt/%x\n",
               "b.yaml:2:17: path \"/ckpt/%x\": only %u, %a, %j and %% may stand after %");
  expect_error("version: 1\ncheckpoint_dir: \"/a\\nb/%j\"\n",
               "b.yaml:2:17: checkpoint_dir has a control character");
  cr_expect(good("version: 1\ncheckpoint_dir: \"\"\n").checkpoint_dir.empty());
}

Test(policy, env_may_not_pose_as_slurm_or_bellows, .timeout = 10) {
  expect_error("version: 1\nframeworks: {f: {env: {SLURM_NTASKS: 1}}}\n",
               "b.yaml:2:24: SLURM_NTASKS may not be set here: SLURM_* belongs to Slurm");
  expect_error("version: 1\nframeworks: {f: {env: {BELLOWS_TENANT: x}}}\n",
               "b.yaml:2:24: BELLOWS_TENANT may not be set here: BELLOWS_* belongs to Bellows");
  expect_error("version: 1\nframeworks: {f: {env: {\"A B\": 1}}}\n",
               "b.yaml:2:24: \"A B\" is not the name of an environment variable");
}

Test(policy, default_tenant_may_stand_before_tenants, .timeout = 10) {
  cr_expect(good("version: 1\ndefault_tenant: a\ntenants: {a: }\n").default_tenant == "a");
  cr_expect(good("version: 1\ntenants: {a: {frameworks: [f]}}\nframeworks: {f: }\n")
                .tenant_of("a")
                ->permits("f", ""));
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
  cr_expect(watcher.current().policy && watcher.current().policy->tenant_of("a"), "old one stays");

  file.remove();
  cr_assert(reaches(watcher,
                    [](const auto& s) { return s.problem.find("No such") != std::string::npos; }));
  cr_expect(watcher.current().policy && watcher.current().policy->tenant_of("a"), "old one stays");

  file.write("version: 1\ntenants: {c: }\n");
  cr_assert(reaches(watcher, [](const auto& s) { return s.policy->tenant_of("c") != nullptr; }));
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
