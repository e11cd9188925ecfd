// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/sbatch_table.h"

#include <iterator>
#include <vector>

#include "common/text.h"
#include "launcher/policy/sbatch_values.h"

namespace bellows {
namespace {

using Said = SbatchSaid;
using View = std::string_view;

bool set(std::optional<std::uint32_t>& field, std::optional<std::uint32_t> value) {
  if (value) field = value;
  return value.has_value();
}

bool take_nodes(Said& said, View value) {
  const auto nodes = parse_nodes(value);
  if (!nodes) return false;
  said.request.sizes.min_nodes = nodes->first;
  said.request.sizes.max_nodes.reset();
  if (nodes->second > 0) said.request.sizes.max_nodes = nodes->second;
  return true;
}

bool take_memory(Said& said, View value) {
  said.request.memory_said = true;
  return is_memory(value);
}

bool take_exclusive(Said& said, View value) {
  const std::string word = to_lower(value);
  said.exclusive = word.empty() || word == "exclusive";
  return said.exclusive || word == "user" || word == "mcs" || word == "oversubscribe";
}

bool take_core_spec(Said& said, View value) {
  said.core_spec = true;
  return parse_uint(value).has_value();
}

bool take_mincpus(Said& said, View value) {
  said.request.cpus_said = true;
  return set(said.request.sizes.node_cpus, parse_count(value));
}

/// SOCKETS[:CORES[:THREADS]], each a number or *.
bool take_shape(Said& said, View value) {
  const auto parts = split(value, ':');
  std::optional<std::uint32_t>* const fields[] = {&said.shape.sockets, &said.shape.cores,
                                                  &said.shape.threads};
  said.shape.given = true;
  for (std::size_t i = 0; i < parts.size() && i < std::size(fields); ++i)
    if (parts[i] != "*" && !set(*fields[i], parse_count(parts[i]))) return false;
  return parts.size() <= std::size(fields);
}

bool take_hint(Said& said, View value) {
  if (value == "memory_bound") said.shape.cores = 1;
  if (value != "multithread") said.shape.threads = 1;
  return value == "multithread" || value == "nomultithread" || value == "compute_bound" ||
         value == "memory_bound";
}

constexpr char kArray[] = "array";
constexpr char kComment[] = "comment";
constexpr char kConstraint[] = "constraint";
constexpr char kJobName[] = "job-name";
constexpr char kPriority[] = "priority";

template <const char* Name>
bool take_for_rules(Said& said, View value) {
  said.for_rules[Name] = value;
  return true;
}

bool take_array(Said& said, View value) {
  said.request.array = !value.empty();
  return take_for_rules<kArray>(said, value);
}

bool take_placement(Said& said, View) { return said.request.placement_said = true; }

constexpr auto kNone = SbatchOption::none;
constexpr auto kRequired = SbatchOption::required;
constexpr auto kOptional = SbatchOption::optional;

constexpr SbatchOption kOptions[] = {
    {"account", 'A', kRequired, "SBATCH_ACCOUNT",
     [](Said& s, View v) { return s.request.account = v, true; }},
    {"batch-range", 0, kRequired, nullptr,
     [](Said& s, View v) { return s.request.batch_range = v, true; }},
    {"cores-per-socket", 0, kRequired, nullptr,
     [](Said& s, View v) { return set(s.shape.cores, parse_count(v)); }},
    {"core-spec", 'S', kRequired, "SBATCH_CORE_SPEC", take_core_spec},
    {"cpus-per-gpu", 0, kRequired, "SBATCH_CPUS_PER_GPU",
     [](Said& s, View v) { return set(s.cpus_per_gpu, parse_count(v)); }},
    {"cpus-per-task", 'c', kRequired, nullptr,
     [](Said& s, View v) { return set(s.cpus_per_task, parse_count(v)); }},
    {"exclusive", 0, kOptional, "SBATCH_EXCLUSIVE", take_exclusive},
    {"extra-node-info", 'B', kRequired, nullptr, take_shape},
    {"framework", 0, kRequired, nullptr,
     [](Said& s, View v) { return s.request.framework = v, true; }},
    {"gpus", 'G', kRequired, "SBATCH_GPUS",
     [](Said& s, View v) { return s.request.sizes.per_job = spell_gpu_option(v), true; }},
    {"gpus-per-node", 0, kRequired, "SBATCH_GPUS_PER_NODE",
     [](Said& s, View v) { return s.gpus_per_node = spell_gpu_option(v), true; }},
    {"gpus-per-socket", 0, kRequired, "SBATCH_GPUS_PER_SOCKET",
     [](Said& s, View v) { return s.request.sizes.per_socket = spell_gpu_option(v), true; }},
    {"gpus-per-task", 0, kRequired, "SBATCH_GPUS_PER_TASK",
     [](Said& s, View v) { return s.request.sizes.per_task = spell_gpu_option(v), true; }},
    {"gpus-range", 0, kRequired, nullptr,
     [](Said& s, View v) { return s.request.gpus_range = v, true; }},
    {"gres", 0, kRequired, "SBATCH_GRES",
     [](Said& s, View v) { return s.gres = spell_gres(v), true; }},
    {"hint", 0, kRequired, "SBATCH_HINT", take_hint},
    {"job-class", 0, kRequired, nullptr,
     [](Said& s, View v) { return s.request.job_class = v, true; }},
    {"mem", 0, kRequired, "SBATCH_MEM_PER_NODE", take_memory},
    {"mem-per-cpu", 0, kRequired, "SBATCH_MEM_PER_CPU", take_memory},
    {"mem-per-gpu", 0, kRequired, "SBATCH_MEM_PER_GPU", take_memory},
    {"mincpus", 0, kRequired, nullptr, take_mincpus},
    {"model", 0, kRequired, nullptr, [](Said& s, View v) { return s.request.models = v, true; }},
    {"model-on", 0, kRequired, nullptr,
     [](Said& s, View v) { return s.request.model_on = v, true; }},
    {"no-requeue", 0, kNone, "SBATCH_NO_REQUEUE",
     [](Said& s, View) { return s.request.requeue_off = true; }},
    {"nodelist", 'w', kRequired, nullptr,
     [](Said& s, View v) { return set(s.hosts, count_hosts(v)); }},
    {"nodes", 'N', kRequired, nullptr, take_nodes},
    {"ntasks", 'n', kRequired, nullptr,
     [](Said& s, View v) { return set(s.request.sizes.tasks, parse_count(v)); }},
    {"ntasks-per-gpu", 0, kRequired, nullptr,
     [](Said& s, View v) { return set(s.request.sizes.tasks_per_gpu, parse_count(v)); }},
    {"ntasks-per-node", 0, kRequired, nullptr,
     [](Said& s, View v) { return set(s.request.sizes.tasks_per_node, parse_count(v)); }},
    {"ntasks-per-tres", 0, kRequired, nullptr,
     [](Said& s, View v) { return set(s.request.sizes.tasks_per_gpu, parse_count(v)); }},
    {"oversubscribe", 's', kNone, nullptr, [](Said& s, View) { return s.exclusive = false, true; }},
    {"partition", 'p', kRequired, "SBATCH_PARTITION",
     [](Said& s, View v) { return s.request.partition = v, true; }},
    {"pool", 0, kRequired, nullptr, [](Said& s, View v) { return s.request.pool = v, true; }},
    {"qos", 'q', kRequired, "SBATCH_QOS", [](Said& s, View v) { return s.request.qos = v, true; }},
    {"requeue", 0, kNone, "SBATCH_REQUEUE",
     [](Said& s, View) { return s.request.requeue_off = false, true; }},
    {"reservation", 0, kRequired, "SBATCH_RESERVATION",
     [](Said& s, View v) {
       s.for_rules["reservation"] = v;
       return s.request.reserved = !v.empty(), true;
     }},
    {"signal", 0, kRequired, "SBATCH_SIGNAL",
     [](Said& s, View v) { return (s.request.signal_said = true) && is_signal(v); }},
    {"sockets-per-node", 0, kRequired, nullptr,
     [](Said& s, View v) { return set(s.shape.sockets, parse_count(v)); }},
    {"spread-job", 0, kNone, "SBATCH_SPREAD_JOB", take_placement},
    {"tasks-per-node", 0, kRequired, nullptr,
     [](Said& s, View v) { return set(s.request.sizes.tasks_per_node, parse_count(v)); }},
    {"thread-spec", 0, kRequired, "SBATCH_THREAD_SPEC", take_core_spec},
    {"threads-per-core", 0, kRequired, "SBATCH_THREADS_PER_CORE",
     [](Said& s, View v) { return set(s.shape.threads, parse_count(v)); }},
    {"time", 't', kRequired, "SBATCH_TIMELIMIT",
     [](Said& s, View v) { return set(s.request.time_limit, parse_time_limit(v)); }},
    {"use-min-nodes", 0, kNone, "SBATCH_USE_MIN_NODES", take_placement},
    {"wrap", 0, kRequired, nullptr, [](Said& s, View) { return s.wrapped = true; }},

    // These only a site's rules can see.
    {"array", 'a', kRequired, "SBATCH_ARRAY_INX", take_array},
    {"comment", 0, kRequired, nullptr, take_for_rules<kComment>},
    {"constraint", 'C', kRequired, "SBATCH_CONSTRAINT", take_for_rules<kConstraint>},
    {"job-name", 'J', kRequired, "SBATCH_JOB_NAME", take_for_rules<kJobName>},
    {"priority", 0, kRequired, nullptr, take_for_rules<kPriority>},

    {"acctg-freq", 0, kRequired, nullptr, nullptr},
    {"batch", 0, kRequired, nullptr, nullptr},
    {"bb", 0, kRequired, nullptr, nullptr},
    {"bbf", 0, kRequired, nullptr, nullptr},
    {"begin", 'b', kRequired, nullptr, nullptr},
    {"chdir", 'D', kRequired, nullptr, nullptr},
    {"cluster", 0, kRequired, nullptr, nullptr},
    {"cluster-constraint", 0, kRequired, nullptr, nullptr},
    {"clusters", 'M', kRequired, nullptr, nullptr},
    {"container", 0, kRequired, nullptr, nullptr},
    {"context", 0, kRequired, nullptr, nullptr},
    {"contiguous", 0, kNone, nullptr, nullptr},
    {"cpu-freq", 0, kRequired, nullptr, nullptr},
    {"deadline", 0, kRequired, nullptr, nullptr},
    {"delay-boot", 0, kRequired, nullptr, nullptr},
    {"dependency", 'd', kRequired, nullptr, nullptr},
    {"distribution", 'm', kRequired, nullptr, nullptr},
    {"error", 'e', kRequired, nullptr, nullptr},
    {"exclude", 'x', kRequired, nullptr, nullptr},
    {"export", 0, kRequired, nullptr, nullptr},
    {"export-file", 0, kRequired, nullptr, nullptr},
    {"get-user-env", 0, kOptional, nullptr, nullptr},
    {"gid", 0, kRequired, nullptr, nullptr},
    {"gpu-bind", 0, kRequired, nullptr, nullptr},
    {"gpu-freq", 0, kRequired, nullptr, nullptr},
    {"gres-flags", 0, kRequired, nullptr, nullptr},
    {"help", 'h', kNone, nullptr, nullptr},
    {"hold", 'H', kNone, nullptr, nullptr},
    {"ignore-pbs", 0, kNone, nullptr, nullptr},
    {"input", 'i', kRequired, nullptr, nullptr},
    {"kill-on-invalid-dep", 0, kRequired, nullptr, nullptr},
    {"licenses", 'L', kRequired, nullptr, nullptr},
    {"mail-type", 0, kRequired, nullptr, nullptr},
    {"mail-user", 0, kRequired, nullptr, nullptr},
    {"mcs-label", 0, kRequired, nullptr, nullptr},
    {"mem-bind", 0, kRequired, nullptr, nullptr},
    {"network", 0, kRequired, nullptr, nullptr},
    {"nice", 0, kOptional, nullptr, nullptr},
    {"no-kill", 'k', kOptional, nullptr, nullptr},
    {"nodefile", 'F', kRequired, nullptr, nullptr},
    {"ntasks-per-core", 0, kRequired, nullptr, nullptr},
    {"ntasks-per-socket", 0, kRequired, nullptr, nullptr},
    {"open-mode", 0, kRequired, nullptr, nullptr},
    {"output", 'o', kRequired, nullptr, nullptr},
    {"overcommit", 'O', kNone, nullptr, nullptr},
    {"parsable", 0, kNone, nullptr, nullptr},
    {"power", 0, kRequired, nullptr, nullptr},
    {"prefer", 0, kRequired, nullptr, nullptr},
    {"profile", 0, kRequired, nullptr, nullptr},
    {"propagate", 0, kOptional, nullptr, nullptr},
    {"quiet", 'Q', kNone, nullptr, nullptr},
    {"reboot", 0, kNone, nullptr, nullptr},
    {"switches", 0, kRequired, nullptr, nullptr},
    {"test-only", 0, kNone, nullptr, nullptr},
    {"time-min", 0, kRequired, nullptr, nullptr},
    {"tmp", 0, kRequired, nullptr, nullptr},
    {"uid", 0, kRequired, nullptr, nullptr},
    {"usage", 0, kNone, nullptr, nullptr},
    {"verbose", 'v', kNone, nullptr, nullptr},
    {"version", 'V', kNone, nullptr, nullptr},
    {"wait", 'W', kNone, nullptr, nullptr},
    {"wait-all-nodes", 0, kRequired, nullptr, nullptr},
    {"wckey", 0, kRequired, nullptr, nullptr},
};

}  // namespace

std::span<const SbatchOption> sbatch_options() {
  static const std::vector<SbatchOption> all = [] {
    std::vector<SbatchOption> options(std::begin(kOptions), std::end(kOptions));
    for (const container::OptionInfo& info : container::options())
      options.push_back(
          {info.name, 0, info.argument ? kRequired : kNone, nullptr, nullptr, info.option});
    return options;
  }();
  return all;
}

}  // namespace bellows
