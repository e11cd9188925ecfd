// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/fd.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "pool/command/commands.h"
#include "pool/policy/pool_policy.h"
#include "pool/simulate/loads.h"
#include "pool/simulate/number_file.h"
#include "pool/simulate/policy_scaler.h"
#include "pool/simulate/rivals.h"

namespace bellows::pool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNumbers = 7 * 24 * 3600;
/// More would not be read.
constexpr std::size_t kMostRows = 30;
/// Of what a member runs at once, what a policy without targets takes to be right.
constexpr double kUsed = 0.7;

struct Options {
  std::string policy;
  std::string load;
  std::string starts;
  std::optional<std::uint32_t> min;
  std::optional<std::uint32_t> max;
  std::uint32_t peak = 100;
  std::uint32_t call_ms = 500;
  std::optional<std::uint32_t> at_once;
  std::uint32_t seed = 1;
  bool json = false;
};

/// What the pool was like in a second.
struct Seen {
  double load = 0;
  std::uint32_t needed = 0;
  std::uint32_t ready = 0;
  std::uint32_t wanted = 0;
  std::string why;
};

/// The policy, with a record of what it did.
class Recorder final : public Autoscaler {
 public:
  Recorder(PolicyScaler scaler, const Service& service, const std::vector<double>& load)
      : scaler_(std::move(scaler)), service_(service), load_(load) {}

  PoolChoice decide(const PoolView& view) override {
    PoolChoice choice = scaler_.decide(view);
    const double load = load_[static_cast<std::size_t>(view.second)];
    seen.push_back({load, service_.needed(load), view.ready(), choice.wanted, scaler_.why()});
    return choice;
  }

  std::vector<Seen> seen;

 private:
  PolicyScaler scaler_;
  const Service& service_;
  const std::vector<double>& load_;
};

/// A member is loaded as it should be with as many calls as the policy's first target says.
Service service_of(const Options& options, const PoolPolicy& policy) {
  Service service;
  service.min = policy.min;
  service.max = policy.max;
  service.call_s = options.call_ms / 1000.0;
  std::optional<double> target;
  for (const TargetRule& rule : policy.targets)
    if (!target && rule.metric != "waiting")
      target = rule.metric.ends_with(".rate") ? rule.per_member * service.call_s : rule.per_member;
  service.at_once = options.at_once.value_or(target ? *target / kUsed : 1);
  service.target = target.value_or(kUsed * service.at_once);
  return service;
}

Result<std::vector<double>> load_of(const Options& options) {
  auto load = make_load(options.load, options.peak, options.seed);
  if (!load.empty()) return load;
  auto read = read_numbers(options.load, kMostNumbers);
  if (read || read.error().kind != ErrorKind::not_found) return read;
  return Error{ErrorKind::not_found,
               fmt::format("{} is neither a file nor one of the loads steps, cyclic, day and crowd",
                           one_line(options.load, 200))};
}

Json json_of(const PoolFigures& figures) {
  return {{"agility", figures.agility},
          {"calls", figures.calls},
          {"failed", figures.failed},
          {"p99_s", figures.p99_s},
          {"member_hours", figures.member_hours},
          {"starts", figures.starts}};
}

void print_json(const PoolFigures& own, const PoolFigures& bound, const std::vector<Seen>& seen) {
  Json seconds = Json::array();
  for (const Seen& s : seen)
    seconds.push_back(
        {{"load", s.load}, {"needed", s.needed}, {"ready", s.ready}, {"wanted", s.wanted}});
  const Json all = {{"policy", json_of(own)}, {"bound", json_of(bound)}, {"seconds", seconds}};
  fmt::print("{}\n", all.dump(2));
}

void add_row(Table& table, const char* name, const PoolFigures& figures) {
  table.add({name, fmt::format("{:.2f}", figures.agility), fmt::format("{:.0f}", figures.calls),
             fmt::format("{:.0f}", figures.failed), fmt::format("{:.1f}", figures.p99_s),
             fmt::format("{:.1f}", figures.member_hours), std::to_string(figures.starts)});
}

void print_text(const PoolFigures& own, const PoolFigures& bound, const std::vector<Seen>& seen) {
  const std::size_t width = terminal_width(STDOUT_FILENO);
  Table figures({{""},
                 {"OFF BY", true},
                 {"CALLS", true},
                 {"FAILED", true},
                 {"P99 S", true},
                 {"MEMBER-HOURS", true},
                 {"STARTS", true}});
  add_row(figures, "this policy", own);
  add_row(figures, "at once, knowing the load", bound);
  fmt::print("{}\n", figures.text(width));
  Table table({{"SECOND", true},
               {"CALLS A S", true},
               {"NEEDED", true},
               {"READY", true},
               {"WANTED", true},
               {"WHY"}});
  const std::size_t each = std::max<std::size_t>(1, (seen.size() + kMostRows - 1) / kMostRows);
  for (std::size_t second = 0; second < seen.size(); second += each) {
    const Seen& s = seen[second];
    table.add({std::to_string(second), fmt::format("{:.1f}", s.load), std::to_string(s.needed),
               std::to_string(s.ready), std::to_string(s.wanted), s.why});
  }
  fmt::print("{}", table.text(width));
}

int run(const Options& options) {
  const auto text = read_file(options.policy, kMostPolicyBytes);
  if (!text) return fail(text.error());
  auto policy = read_pool_policy(*text, options.policy);
  if (!policy) return fail(policy.error());
  policy->max = options.max.value_or(policy->max);
  policy->min = options.min.value_or(std::min(policy->min, policy->max));
  if (policy->min > policy->max)
    return fail({ErrorKind::invalid, fmt::format("--min {} is more than the most members, {}",
                                                 policy->min, policy->max)});
  if (const std::string complaint = PolicyScaler::complaint(*policy); !complaint.empty())
    return fail({ErrorKind::invalid, options.policy + ": " + complaint});
  const auto load = load_of(options);
  if (!load) return fail(load.error());
  Service service = service_of(options, *policy);
  if (!options.starts.empty()) {
    auto starts = read_numbers(options.starts, kMostNumbers);
    if (!starts) return fail(starts.error());
    service.start_s = std::move(*starts);
  }
  Recorder recorder(PolicyScaler(*policy, service.call_s), service, *load);
  const PoolFigures own = play(service, *load, recorder, options.seed);
  const auto at_once = make_autoscaler("bound", service, *load);
  const PoolFigures bound = play(service, *load, *at_once, options.seed);
  options.json ? print_json(own, bound, recorder.seen) : print_text(own, bound, recorder.seen);
  return kOk;
}

}  // namespace

void add_simulate_command(CommandLine& pool) {
  CommandLine command =
      pool.add_command("simulate", "Show what a policy would do with a load, in simulated time");
  const auto options = std::make_shared<Options>();
  command.add_option("POLICY", options->policy, "A file: bellows-pool(1)").required();
  command
      .add_option("--load", options->load,
                  "A file with the calls of each second, one number a line, or one of the loads "
                  "steps, cyclic, day and crowd")
      .value_name("FILE|NAME")
      .required();
  command.add_option("--min", options->min, "The least members (default: that of the policy, or 1)")
      .value_name("MEMBERS")
      .between(0, 10'000);
  command.add_option("--max", options->max, "The most members (default: that of the policy, or 1)")
      .value_name("MEMBERS")
      .between(1, 10'000);
  command
      .add_option("--starts", options->starts,
                  "A file with the seconds that members take to start, one number a line "
                  "(default: 1)")
      .value_name("FILE");
  command.add_option("--peak", options->peak, "Calls a second at most, of a load by its name")
      .value_name("CALLS")
      .between(1, 1'000'000)
      .show_default();
  command.add_option("--call-ms", options->call_ms, "Milliseconds that a call takes")
      .value_name("MS")
      .between(1, 3'600'000)
      .show_default();
  command
      .add_option("--at-once", options->at_once,
                  "Calls that a member runs at once (default: the first target over 0.7)")
      .value_name("CALLS")
      .between(1, 1'000'000);
  command.add_option("--seed", options->seed, "Of the noise in a load by its name")
      .value_name("N")
      .show_default();
  command.add_flag("--json", options->json, "Print JSON, with each second");
  command.run([options] { return run(*options); });
}

}  // namespace bellows::pool
