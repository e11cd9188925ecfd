// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/text.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/slurmctld/people.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"
#include "launcher/policy/explain.h"
#include "launcher/policy/policy_file.h"
#include "launcher/policy/sbatch_job.h"
#include "slurm/conf_path.h"

namespace bellows {
namespace {

constexpr std::size_t kMostScript = 4 << 20;

struct ExplainOptions {
  std::string policy = default_policy_path();
  std::string account;
  std::string user;
  std::vector<std::string> groups;
  std::vector<std::string> parents;
  std::string default_partition;
  bool json = false;
  std::vector<std::string> arguments;
};

int complain(const Error& error, int status) {
  fmt::print(stderr, "bellows explain: {}\n", error.text);
  return status;
}

/// Fills in where the job comes from, as job_submit/bellows does.
Status identify(const ExplainOptions& options, const Policy& policy, Origin& origin) {
  origin.account = to_lower(origin.account.empty() ? options.account : origin.account);
  origin.default_partition = options.default_partition;
  if (!origin.account.empty())
    for (const std::string& parent : options.parents) origin.parents.push_back(to_lower(parent));
  const passwd* entry = options.user.empty() ? getpwuid(geteuid()) : getpwnam(options.user.c_str());
  origin.user = entry ? entry->pw_name : options.user;
  origin.groups = options.groups;
  if (!entry || !options.groups.empty()) return {};
  const uid_t uid = entry->pw_uid;
  const gid_t gid = options.user.empty() ? getegid() : entry->pw_gid;
  const auto people = People::look_up(policy);
  if (!people) return people.error();
  origin.groups = people->find(uid, gid).groups;
  return {};
}

const char* outcome_word(Explanation::Outcome outcome) {
  switch (outcome) {
    case Explanation::Outcome::admitted:
      return "admitted";
    case Explanation::Outcome::refused:
      return "refused";
    case Explanation::Outcome::plain:
      break;
  }
  return "plain";
}

void print_line(std::string_view what, std::string_view text) {
  fmt::print("{:<18} {}\n", what, text);
}

void print_list(std::string_view what, const std::vector<std::string>& words) {
  if (!words.empty()) print_line(what, fmt::format("{}", fmt::join(words, " ")));
}

std::vector<std::string> pairs(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> list;
  for (const auto& [name, value] : environment) list.push_back(name + "=" + shown(value, 256));
  return list;
}

void print_text(const ExplainOptions& options, const Policy& policy, const SbatchJob& job,
                const Explanation& found) {
  print_line("policy", fmt::format("{}, digest {}", options.policy, policy.digest));
  for (const std::string& option : job.looked_at) print_line("option", option);
  print_list("not looked at", job.not_looked_at);
  const bool refused = found.outcome == Explanation::Outcome::refused;
  // The last rule of a refusal has the sentence that ends the output anyway.
  for (std::size_t i = 0; i + (refused ? 1 : 0) < found.trace.size(); ++i)
    print_line(found.trace[i].rule, found.trace[i].found);
  if (refused) print_line("refused by", found.trace.back().rule);
  fmt::print("{}\n", refused                                        ? "REFUSED"
                     : found.outcome == Explanation::Outcome::plain ? "PASSES as it is"
                                                                    : "ADMITTED");
  if (refused) print_line("because", found.decision.message);
  if (found.outcome != Explanation::Outcome::admitted) return;
  if (!found.decision.message.empty()) print_line("note", found.decision.message);
  print_list("changes", changed_options(found.decision));
  print_list("environment", pairs(found.decision.env));
  print_line("contract", found.decision.contract.to_string());
}

void print_json(const ExplainOptions& options, const Policy& policy, const SbatchJob& job,
                const Explanation& found) {
  nlohmann::ordered_json rules = nlohmann::ordered_json::array();
  for (const TraceStep& step : found.trace)
    rules.push_back({{"rule", step.rule}, {"found", step.found}});
  nlohmann::ordered_json out = {
      {"policy", options.policy}, {"digest", policy.digest},
      {"options", job.looked_at}, {"not_looked_at", job.not_looked_at},
      {"rules", rules},           {"outcome", outcome_word(found.outcome)},
  };
  const bool admitted = found.outcome == Explanation::Outcome::admitted;
  const std::string& message = found.decision.message;
  out["refusal"] = nullptr;
  out["contract"] = nullptr;
  out["note"] = nullptr;
  if (found.decision.refused) out["refusal"] = message;
  if (admitted) out["contract"] = found.decision.contract.to_string();
  if (admitted && !message.empty()) out["note"] = message;
  out["changes"] = admitted ? changed_options(found.decision) : std::vector<std::string>();
  out["environment"] = found.decision.env;
  out["lua"] = policy.lua.path;
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Nothing: there are none, or they are switched off.
Result<std::optional<LuaHook>> rules_of(const Policy& policy) {
  if (policy.lua.path.empty() || !policy.enabled) return std::optional<LuaHook>();
  auto hook = load_rules(policy);
  if (!hook) return hook.error();
  return std::optional<LuaHook>(*std::move(hook));
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

int explain_job(const ExplainOptions& options) {
  const auto policy = read_policy(
      options.policy,
      "name a copy with --policy; 'sbatch --test-only' with the job's options asks slurmctld "
      "whether it would admit the job");
  if (!policy) return complain(policy.error(), kFailed);
  auto job = read_sbatch(
      options.arguments, [](const char* name) { return std::getenv(name); },
      [](const std::string& path) { return read_file(path, kMostScript); });
  if (!job) return complain(job.error(), kUsage);
  if (auto known = identify(options, *policy, job->request); !known)
    return complain(known.error(), kFailed);
  auto rules = rules_of(*policy);
  if (!rules) return complain(rules.error(), kFailed);
  job->for_rules.try_emplace("job-name", job->script.empty() ? "wrap" : base_name(job->script));
  const Explanation found =
      explain(*policy, job->request, *rules ? &**rules : nullptr, job->for_rules);
  if (options.json)
    print_json(options, *policy, *job, found);
  else
    print_text(options, *policy, *job, found);
  return found.outcome == Explanation::Outcome::refused ? kRefused : kOk;
}

}  // namespace

void add_explain_command(CommandLine& program) {
  auto options = std::make_shared<ExplainOptions>();
  CommandLine command =
      program.add_command("explain", "Show what a bellows.yaml does with an sbatch job, and why");
  command.footer("For example: bellows explain --account=vision -- --gpus-range=1-8 job.sh");
  command.add_option("--policy", options->policy, "The bellows.yaml").show_default();
  command.add_option("--account", options->account, "The account of a job that names none");
  command.add_option("--user", options->user, "Who submits, instead of you");
  command.add_option("--group", options->groups, "The user's groups, instead of the true ones")
      .one_value_each();
  command.add_option("--parent", options->parents, "The accounts above the job's, nearest first")
      .one_value_each();
  command.add_option("--partition-default", options->default_partition,
                     "The partition of a job that names none");
  command.add_flag("--json", options->json, "Print one JSON object");
  command.add_option("OPTION", options->arguments, "Options of sbatch, and the batch script");
  command.positionals_at_end();
  command.run([options] { return explain_job(*options); });
}

}  // namespace bellows
