// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/text.h"
#include "jobsubmit/policy/policy.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/program_output.h"
#include "launcher/cli/commands.h"
#include "launcher/policy/policy_file.h"
#include "launcher/policy/tenant_plan.h"
#include "launcher/slurm/accounts.h"
#include "slurm/conf_path.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

constexpr std::size_t kMostAnswerBytes = 256 << 20;
constexpr std::size_t kMostSaid = 20;  // lines
constexpr auto kAnswersWithin = 60s;
// slurmdbd holds a change back while it rolls up usage.
constexpr auto kChangesWithin = 300s;

struct Options {
  std::string policy = default_policy_path();
  std::string cluster;
  bool apply = false;
  bool json = false;
};

struct Outcome {
  int status = kOk;
  std::size_t done = 0;
  std::string failure;  ///< of the change after those that are done; empty: none
};

volatile std::sig_atomic_t interrupted = 0;

void on_interrupt(int) { interrupted = 1; }

int status_of_nothing_done(const Error& error) {
  return error.kind == ErrorKind::busy ? kUnreachable : exit_status_of(error);
}

/// What Slurm's commands say about why they failed; they have no exit status for it.
ErrorKind kind_of(const std::string& complaint) {
  const std::string text = to_lower(complaint);
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (has("permission denied") || has("privilege")) return ErrorKind::denied;
  if (has("connection") || has("unable to contact") || has("timed out"))
    return ErrorKind::unavailable;
  return ErrorKind::io;
}

/// One line of an answer after a colon; several below it.
std::string lines_said(const std::string& answer) {
  std::vector<std::string> lines;
  for (std::string_view line : split(answer, '\n'))
    if (lines.size() < kMostSaid && !trim(line).empty()) lines.push_back(one_line(line));
  if (lines.size() == 1) return fmt::format(": {}", trim(lines.front()));
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

/// Runs one of Slurm's commands; what it wrote to standard output.
Result<std::string> call(const std::vector<std::string>& command, std::chrono::seconds limit) {
  auto output = output_of(command, limit, kMostAnswerBytes);
  if (!output) return output.error();
  if (output->exit.ok()) return std::move(output->out);
  const std::string said = output->err + output->out;
  return Error{kind_of(said),
               fmt::format("{} {}{}", command.front(), output->exit.to_string(), lines_said(said))};
}

/// The text of a failure, with what else is to be said of it before the lines of Slurm's commands.
std::string with_remark(const std::string& failure, const std::string& remark) {
  const auto end = std::min(failure.find('\n'), failure.size());
  return failure.substr(0, end) + remark + failure.substr(end);
}

/// How Slurm is set up, if the tenants can be set up in it.
Result<SlurmAccounting> ask_setup(const Options& options, const Policy& policy) {
  auto config = call(ask_accounting(options.cluster), kAnswersWithin);
  if (!config) return config.error();
  auto found = parse_accounting(*config);
  if (!found) return found.error();
  if (found->type != "accounting_storage/slurmdbd")
    return Error{ErrorKind::denied,
                 fmt::format("Slurm keeps no accounts with AccountingStorageType={}; it needs "
                             "accounting_storage/slurmdbd",
                             one_line(found->type))};
  const bool quotas = std::any_of(policy.tenants.begin(), policy.tenants.end(),
                                  [](const Tenant& tenant) { return tenant.quota.has_value(); });
  if (quotas && !found->tres.count("gres/gpu"))
    return Error{ErrorKind::denied,
                 "the policy has quotas, and Slurm does not count GPUs: add gres/gpu to "
                 "AccountingStorageTRES in slurm.conf and restart slurmctld"};
  return found;
}

/// Limits that Slurm knows but does not act on.
void note_enforcement(const SlurmAccounting& setup, const Policy& policy, TenantPlan& plan) {
  const auto enforces = [&](std::initializer_list<const char*> any) {
    return std::any_of(any.begin(), any.end(),
                       [&](const char* one) { return setup.enforce.count(one) > 0; });
  };
  bool quotas = false;
  bool qos = false;
  for (const Tenant& tenant : policy.tenants) {
    quotas = quotas || tenant.quota;
    qos = qos || !named_qos(tenant).empty();
  }
  if (quotas && !enforces({"limits", "safe", "all"}))
    plan.notes.push_back("Slurm does not enforce quotas: AccountingStorageEnforce lacks limits");
  if (qos && !enforces({"qos", "all"}))
    plan.notes.push_back("Slurm lets everybody use every QOS: AccountingStorageEnforce lacks qos");
}

Result<TenantPlan> plan_now(const Policy& policy, const std::string& cluster) {
  auto accounts = call(ask_accounts(cluster), kAnswersWithin);
  if (!accounts) return accounts.error();
  auto qos = call(ask_qos(), kAnswersWithin);
  if (!qos) return qos.error();
  auto present = parse_accounts(*accounts, *qos);
  if (!present) return present.error();
  return plan_tenants(policy, *present, cluster);
}

void print_command(std::FILE* to, const TenantChange& change) {
  fmt::print(to, "# {}\n{}\n", change.why, shell_line(change.command));
  std::fflush(to);
}

/// A signal waits for the end of the change that is under way.
Outcome apply(const TenantPlan& plan, std::FILE* progress) {
  Outcome outcome;
  for (const TenantChange& change : plan.changes) {
    if (interrupted) {
      outcome.status = kInterrupted;
      outcome.failure = "interrupted";
      return outcome;
    }
    print_command(progress, change);
    auto said = call(change.command, kChangesWithin);
    if (!said) {
      outcome.status = outcome.done == 0 ? status_of_nothing_done(said.error()) : kFailed;
      if (said.error().kind == ErrorKind::busy) outcome.status = kTimedOut;
      outcome.failure = said.error().text;
      return outcome;
    }
    ++outcome.done;
  }
  return outcome;
}

/// sacctmgr's success says little: it also reports success when it found nothing to change.
void verify(const Policy& policy, const std::string& cluster, Outcome& outcome) {
  auto left = plan_now(policy, cluster);
  if (left && left->changes.empty()) return;
  outcome.status = kFailed;
  outcome.failure = left
                        ? fmt::format("sacctmgr reported success, but this is still to be done: {}",
                                      shell_line(left->changes.front().command))
                        : "what was changed could not be checked: " + left.error().text;
}

std::string state_of(const Options& options, const Outcome& outcome, std::size_t i) {
  if (!options.apply) return "planned";
  if (i < outcome.done) return "done";
  return i == outcome.done && outcome.status != kInterrupted ? "failed" : "not run";
}

void print_json(const Options& options, const std::string& cluster, const TenantPlan& plan,
                const Outcome& outcome) {
  ordered_json changes = ordered_json::array();
  for (std::size_t i = 0; i < plan.changes.size(); ++i)
    changes.push_back({{"command", plan.changes[i].command},
                       {"why", plan.changes[i].why},
                       {"state", state_of(options, outcome, i)}});
  ordered_json out = {{"cluster", cluster},
                      {"applied", options.apply},
                      {"changes", changes},
                      {"notes", plan.notes},
                      {"error", nullptr}};
  if (!outcome.failure.empty()) out["error"] = outcome.failure;
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

int fail(const Error& error) {
  fmt::print(stderr, "bellows tenants: {}\n", with_remark(error.text, "; nothing was changed"));
  return status_of_nothing_done(error);
}

int sync(const Options& options) {
  auto policy = read_policy(options.policy, "name a copy with --policy");
  if (!policy) return fail(policy.error());
  auto setup = ask_setup(options, *policy);
  if (!setup) return fail(setup.error());
  auto plan = plan_now(*policy, setup->cluster);
  if (!plan) return fail(plan.error());
  note_enforcement(*setup, *policy, *plan);

  std::FILE* progress = options.json ? stderr : stdout;
  Outcome outcome;
  if (options.apply) {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    outcome = apply(*plan, progress);
    if (outcome.failure.empty() && outcome.done > 0) verify(*policy, setup->cluster, outcome);
  } else if (!options.json) {
    for (const TenantChange& change : plan->changes) print_command(progress, change);
  }
  if (options.json)
    print_json(options, setup->cluster, *plan, outcome);
  else
    for (const std::string& note : plan->notes) fmt::print("# note: {}\n", note);
  if (!options.json && plan->changes.empty()) fmt::print("# nothing to change\n");
  std::fflush(stdout);
  if (!outcome.failure.empty())
    fmt::print(stderr, "bellows tenants: {}\n",
               with_remark(outcome.failure,
                           fmt::format("; {} of {} changes {} done", outcome.done,
                                       plan->changes.size(), outcome.done == 1 ? "is" : "are")));
  return outcome.status;
}

}  // namespace

void add_tenants_command(CommandLine& program) {
  auto options = std::make_shared<Options>();
  CommandLine tenants = program.add_command("tenants", "Give Slurm the tenants of a bellows.yaml");
  tenants.require_command();
  CommandLine command = tenants.add_command(
      "sync", "Show the changes that make Slurm's accounts, QOS and quotas match the policy");
  command.add_flag("--apply", options->apply, "Make the changes");
  command.add_option("--policy", options->policy, "The bellows.yaml").show_default();
  command.add_option("--cluster", options->cluster, "A cluster other than the local one");
  command.add_flag("--json", options->json, "Print one JSON object; progress on standard error");
  command.run([options] { return sync(*options); });
}

}  // namespace bellows
