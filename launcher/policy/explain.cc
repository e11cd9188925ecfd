// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/model_names.h"
#include "common/pool_option.h"
#include "common/text.h"
#include "jobsubmit/admission/sentence.h"
#include "slurm/gres.h"
#include "spank/options.h"

namespace bellows {
namespace {

/// What sbatch's plugin says about the options' texts, before slurmctld sees the job.
std::string misspelled(const Request& request) {
  const auto check = [](const char* option, const auto& parsed) {
    return parsed.ok() ? "" : fmt::format("{}: {}", option, shown(parsed.error().text, 512));
  };
  std::string why;
  if (request.framework) why = check("--framework", spank::parse_framework(*request.framework));
  if (why.empty() && request.gpus_range)
    why = check("--gpus-range", GpusRange::parse(*request.gpus_range));
  if (why.empty() && request.batch_range)
    why = check("--batch-range", BatchRange::parse(*request.batch_range));
  if (why.empty() && request.models) why = check("--model", parse_model_names(*request.models));
  if (why.empty() && request.model_on) why = check("--model-on", parse_model_on(*request.model_on));
  if (why.empty() && request.pool) why = check("--pool", PoolOption::parse(*request.pool));
  if (why.empty() && request.job_class)
    why = check("--job-class", parse_job_class(*request.job_class));
  return why;
}

Explanation refused(Explanation so_far, Refusal why, const char* rule, std::string sentence) {
  so_far.trace.push_back({rule, sentence});
  so_far.outcome = Explanation::Outcome::refused;
  so_far.decision.refused = why;
  so_far.decision.message = std::move(sentence);
  return so_far;
}

/// "gres:gpu:a100:2,gres:nic" without what Slurm puts before each part.
std::string without_prefix(std::string_view field, std::string_view prefix) {
  std::string out(field);
  for (std::size_t at = 0; (at = out.find(prefix, at)) != std::string::npos;)
    if (at == 0 || out[at - 1] == ',')
      out.erase(at, prefix.size());
    else
      ++at;
  return out;
}

class Options {
 public:
  void add(std::string_view name, std::string_view value) {
    list_.push_back(fmt::format("{}={}", name, value));
  }
  template <typename Value>
  void add(std::string_view name, const std::optional<Value>& value) {
    if (value) list_.push_back(fmt::format("{}={}", name, *value));
  }
  void add(std::string_view flag) { list_.emplace_back(flag); }
  void add_gpus(std::string_view name, const std::optional<std::string>& field,
                std::string_view prefix) {
    if (field)
      list_.push_back(field->empty() ? fmt::format("no {}", name)
                                     : fmt::format("{}={}", name, without_prefix(*field, prefix)));
  }
  std::vector<std::string> list_;
};

void add_nodes(Options& options, const Changes& changes) {
  if (changes.min_nodes && changes.max_nodes && *changes.min_nodes != *changes.max_nodes)
    options.add("--nodes", fmt::format("{}-{}", *changes.min_nodes, *changes.max_nodes));
  else if (changes.min_nodes)
    options.add("--nodes", changes.min_nodes);
  else if (changes.max_nodes)
    options.add(fmt::format("at most {}", counted(*changes.max_nodes, "node")));
}

}  // namespace

namespace {

/// What the policy makes of a job, after what `so_far` found.
Explanation judge(const Policy& policy, const Request& request, Explanation so_far) {
  if (!request.wants_bellows()) {
    so_far.trace.push_back(
        {"kind of job",
         "plain: it has none of --framework, --gpus-range, --batch-range, --job-class, --model, "
         "--pool and --container options"});
    if (auto why = refuse_plain(policy, request))
      return refused(std::move(so_far), Refusal::policy, "plain_jobs", *std::move(why));
    return so_far;
  }
  so_far.decision = decide(&policy, "", request, &so_far.trace);
  so_far.outcome =
      so_far.decision.refused ? Explanation::Outcome::refused : Explanation::Outcome::admitted;
  return so_far;
}

Explanation failed(const Policy& policy, const HookOutcome& outcome, Explanation so_far) {
  const std::string first(split(*outcome.failure, '\n').front());
  if (policy.lua.on_error == Fallback::refuse)
    return refused(std::move(so_far), Refusal::unavailable, "Lua",
                   first +
                       "; slurmctld logs this, and users are told that this site's rules could not "
                       "be applied");
  so_far.trace.push_back({"Lua", first + "; on_error: pass lets the job pass"});
  return so_far;
}

/// As job_submit/bellows, which asks the rules only about jobs that the policy admits.
Explanation ask_rules(const Policy& policy, Request request, const OptionsForRules& more,
                      LuaHook& hook, Explanation so_far) {
  const Rehearsal rehearsal = rehearse(hook, policy, request, more, so_far.decision);
  const HookOutcome& outcome = rehearsal.outcome;
  for (const std::string& line : outcome.log) so_far.trace.push_back({"Lua log", line});
  for (const std::string& slip : outcome.slips) so_far.trace.push_back({"Lua mistake", slip});
  if (outcome.failure) so_far = failed(policy, outcome, std::move(so_far));
  if (so_far.outcome == Explanation::Outcome::refused) return so_far;
  if (outcome.refused) return refused(std::move(so_far), Refusal::policy, "Lua", outcome.message);
  const std::string what = rehearsal.written.empty()
                               ? "changes nothing"
                               : fmt::format("changes {}", fmt::join(rehearsal.written, ", "));
  if (!outcome.failure) so_far.trace.push_back({"Lua", what});
  if (rehearsal.written.empty() && request.wants_bellows()) return so_far;
  so_far.decision = {};
  return judge(policy, request, std::move(so_far));
}

}  // namespace

Explanation explain(const Policy& policy, const Request& request, LuaHook* hook,
                    const OptionsForRules& more) {
  Explanation found;
  if (std::string why = misspelled(request); !why.empty())
    return refused(std::move(found), Refusal::option, "spelling", std::move(why));
  if (!policy.enabled) {
    found.trace.push_back({"enabled", "false: every job passes as it is"});
    return found;
  }
  const bool asks = hook && hook->has_submit();
  if (request.wants_bellows() || !asks) found = judge(policy, request, std::move(found));
  if (!asks || found.outcome == Explanation::Outcome::refused) return found;
  return ask_rules(policy, request, more, *hook, std::move(found));
}

std::vector<std::string> changed_options(const Decision& decision) {
  const Changes& changes = decision.changes;
  Options options;
  options.add_gpus("--gpus", changes.per_job, BELLOWS_GRES "gpu:");
  options.add_gpus("--gres", changes.per_node, BELLOWS_GRES);
  options.add_gpus("--gpus-per-task", changes.per_task, BELLOWS_GRES "gpu:");
  options.add("--ntasks", changes.tasks);
  add_nodes(options, changes);
  if (changes.cpus_per_gpu)
    options.add_gpus("--cpus-per-gpu", changes.cpus_per_gpu, BELLOWS_GRES "gpu:");
  if (changes.memory_per_gpu)
    options.add("--mem-per-gpu",
                without_prefix(*changes.memory_per_gpu, BELLOWS_GRES "gpu:") + "M");
  if (changes.time_limit) options.add("--time", duration(*changes.time_limit));
  if (changes.signal_lead) options.add("--signal", fmt::format("B:USR1@{}", *changes.signal_lead));
  options.add("--partition", changes.partition);
  options.add("--qos", changes.qos);
  if (changes.placement == PlacementStrategy::pack) options.add("--use-min-nodes");
  if (changes.placement == PlacementStrategy::spread) options.add("--spread-job");
  if (decision.requeue) options.add("--requeue");
  if (changes.site_factor) options.add(fmt::format("priority +{}", *changes.site_factor));
  return options.list_;
}

}  // namespace bellows
