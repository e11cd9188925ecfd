// SPDX-License-Identifier: Apache-2.0
/// A site's Lua rules, tried on sample jobs before slurmctld reads them.

#include <criterion/criterion.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <string>

#include "launcher/policy/explain.h"
#include "launcher/policy/rehearsal.h"
#include "tests/unit/jobsubmit/policy_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

namespace {

const char* const kPolicy = R"(version: 1
frameworks: {digits: {versions: ["1.0"]}, other: }
tenants:
  vision: {gpus: {max: 8, start: 2}, sizing: {partitions: [gpu, small]}}
  speech: {users: [bob], frameworks: [other], partitions: ["a*"]}
plain_jobs: {partitions: {gpu: refuse}}
)";

/// A policy with this script in a directory of its own.
struct Site {
  ScratchDir dir;
  Policy policy = good(kPolicy);
  std::optional<LuaHook> hook;

  explicit Site(const std::string& source) {
    policy.lua.path = dir.path() + "/site.lua";
    std::ofstream(policy.lua.path) << source;
    auto loaded = load_rules(policy);
    cr_assert(loaded.ok(), "%s", loaded.ok() ? "" : loaded.error().text.c_str());
    hook = *std::move(loaded);
  }

  /// What is wrong, each without its directory.
  std::string wrong() {
    std::string all;
    for (const std::string& one : rehearse_samples(*hook, policy).wrong)
      all += one.substr(dir.path().size() + 1) + "\n";
    return all;
  }
  Explanation explained(Request request, const OptionsForRules& more = {}) {
    request.batch = true;
    request.account = "vision";
    request.default_partition = "small";
    return explain(policy, request, &*hook, more);
  }
};

std::string submit(const std::string& body) {
  return "function submit(job, tenant)\n" + body + "\nend\n";
}

struct Case {
  std::string source;
  const char* wrong;
};

Request digits() {
  Request request;
  request.framework = "digits";
  return request;
}

std::string last(const Explanation& found) {
  return found.trace.back().rule + ": " + found.trace.back().found;
}

}  // namespace

Test(rehearsal, finds_what_only_a_call_shows, .timeout = 30) {
  const Case cases[] = {
      {submit("if job.gpu > 4 then return 'no' end"),
       "site.lua:2: job has no field gpu; did you mean gpus? (submit of a sample job: tenant "
       "vision, framework none)\n"},
      {submit("if tenant == 'vision' then return 'no' end"),
       "site.lua:2: tenant is not a text and never equals one; did you mean tenant.name? (submit "
       "of a "
       "sample job: tenant vision, framework none)\n"},
      {submit("if job.framework == 'other' and tenant.nam == 'x' then end"),
       "site.lua:2: tenant has no field nam; did you mean name? (submit of a sample job: tenant "
       "vision, framework other)\n"},
      {submit("if job.time_limit and job.time_limit < '4' then end"),
       "site.lua:2: attempt to compare number with string (submit of a sample job: tenant vision, "
       "framework none)\n"},
      {submit("if job.time_limit > 4 then end"),
       "site.lua:2: attempt to compare number with nil (submit of a sample job: tenant vision, "
       "framework none)\n"},
      {submit("if job.framework and job.time_limit > 4 then end"),
       "site.lua:2: attempt to compare number with nil (submit of a sample job: tenant vision, "
       "framework digits)\n"},
      {"function modify(job, change, tenant)\n  if change.gpus and change.gpu > 4 then end\nend",
       "site.lua:2: change has no field gpu; did you mean gpus? (modify of a sample job: tenant "
       "vision, framework none)\n"},
      {"function modify(job, change)\n  if change.comment then change.job = 1 end\nend",
       "site.lua:2: change has no field job (modify of a sample job: tenant vision, framework "
       "none)\n"},
      {submit("return 'no'"), ""},
      {submit("if tenant.name == 'vision' and job.name:starts('s') then job.comment = 'x' end"),
       ""},
  };
  for (const Case& one : cases) {
    Site site(one.source);
    const std::string got = site.wrong();
    cr_expect(got == one.wrong, "%s: %s", one.source.c_str(), got.c_str());
  }
}

Test(rehearsal, the_examples_are_good, .timeout = 30) {
  for (const char* name : {"office-hours.lua", "route-by-framework.lua", "user-cap.lua"}) {
    std::ifstream file(std::string(TOP_SRCDIR "/lua/") + name);
    Site site(std::string(std::istreambuf_iterator<char>(file), {}));
    cr_expect(site.wrong().empty(), "%s: %s", name, site.wrong().c_str());
  }
}

Test(rehearsal, explain_shows_what_the_script_does, .timeout = 30) {
  Site site(
      submit("if job.comment == 'stop' then return 'not today' end\n"
             "if job.comment == 'move' then job.partition = 'far' end\n"
             "if job.comment == 'slip' and tenant == 'vision' then end\n"
             "if job.comment == 'fail' then return job.nme end"));
  cr_expect(last(site.explained(digits(), {{"comment", "stop"}})) == "Lua: not today");
  const Explanation moved = site.explained(digits(), {{"comment", "move"}});
  cr_expect(moved.outcome == Explanation::Outcome::refused);
  cr_expect(moved.decision.message ==
            "partition \"far\" is not open to tenant vision; it may use gpu, small");
  const Explanation failed = site.explained(digits(), {{"comment", "fail"}});
  cr_expect(failed.outcome == Explanation::Outcome::refused);
  cr_expect(failed.decision.message.find("site.lua:5: job has no field nme; did you mean name?") !=
            std::string::npos);
  site.policy.lua.on_error = Fallback::pass;
  cr_expect(site.explained(digits(), {{"comment", "fail"}}).outcome ==
            Explanation::Outcome::admitted);
  const Explanation slip = site.explained(digits(), {{"comment", "slip"}});
  cr_expect(slip.outcome == Explanation::Outcome::admitted);
  cr_expect(slip.trace.end()[-2].rule == "Lua mistake" && last(slip) == "Lua: changes nothing");
  cr_expect(site.explained({}, {{"comment", "stop"}}).outcome == Explanation::Outcome::refused,
            "jobs that use nothing of Bellows are shown to it too");
  cr_expect(site.explained({}).outcome == Explanation::Outcome::plain);
}
