// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/jobsubmit/admission_support.h"

#include <criterion/criterion.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <sstream>
#include <vector>

#include "common/text.h"
#include "tests/unit/slurm/gres_spelling.h"

namespace bellows::admission_test {
namespace {

const char* const kPolicy = R"(version: 1
frameworks:
  digits: {versions: ["1.0"]}
  plain:
  pytorch:
    default: "2.1"
    image: /images/pytorch.sqsh
    env: {NCCL_DEBUG: WARN}
    versions:
      "2.1": {}
      "2.0": {image: /images/old.sqsh, env: {OMP_NUM_THREADS: "4"}}
      "1.13": {state: deprecated, hint: "use pytorch:2.1"}
      "1.8": {state: removed, hint: "use pytorch:2.1"}
  jax:
    versions: ["0.4"]
    prefix: apptainer run
    launch: [mpi, plain]
    mounts: ["/data:/data:ro", "/a,b:/c"]
  gone:
    versions:
      "1": {state: removed, hint: use plain}
      "2": {}
  served: {models: [llama/8b, secret, digits], versions: {"1": , "2": {models: [digits]}, "3": {models: []}}}
tenants:
  vision: {gpus: {max: 8, start: 2}}
  speech: {frameworks: [digits], gpus: {min: 2, max: 8, step: 2}}
  some: {frameworks: ["pytorch:2.0", "pytorch:1.*", "gone:1"], gpus: {max: 4}}
  none: {frameworks: []}
  shut: {suspended: "over budget until December; ask ops@example.org"}
  rules:
    gpus: {max: 16}
    framework_limits: {"pytorch:2.0": {gpus: {max: 2}}, "pytorch*": {gpus: {max: 4, start: 3}}}
  powers: {gpus: {max: 16, sizes: powers_of_two}}
  listed: {gpus: {sizes: [1, 3, 5], start: 3}}
  typed: {gpus: {max: 8, types: [a100, h100], start: 2}}
  a100: {gpus: {max: 8, types: [a100]}}
  ranged: {gpus: {max: 8, start: 2, range: "1-4"}}
  grow: {gpus: {max: 8, start: 2, shrink_below_start: false}}
  growing: {gpus: {max: 8, start: 2, range: "1-4", shrink_below_start: false}}
  two: {gpus: {max: 64, max_nodes: 2}}
  whole: {gpus: {min: 4, max: 16, sizes: whole_nodes, gpus_per_node: 4, max_nodes: 3}}
  narrow: {batch_range: false}
  served: {pools: {members: 4}}
  lonely: {pools: {members: 0}}
  shares: {sizing: {per_gpu: {cpus: 4, memory: 16G, snapshot: 4G}}}
  kinds: {sizing: {per_gpu: {default: {cpus: 2}, a100: {cpus: 8, memory: 1G}}}}
  timed: {sizing: {time: {default: "4:00:00", max: 2-00:00:00}}}
  capped: {sizing: {time: {max: 60}, signal_lead: 120}}
  warned: {sizing: {signal_lead: 300}}
  packed: {sizing: {placement: pack}}
  wide: {sizing: {placement: spread}}
  placed: {sizing: {partition: gpu, partitions: ["gpu*"], qos: normal, qos_allowed: [normal, "hi*"]}}
  fenced: {sizing: {partitions: ["gpu*", long], qos_allowed: [normal]}}
  first: {sizing: {site_factor: 40}}
  alice: {accounts: [lab], users: [alice], gpus: {max: 16}}
  crew: {accounts: [lab], groups: [crew], gpus: {max: 8}}
  fast: {accounts: [lab], partitions: ["fast*"], gpus: {max: 4}}
  lab: {gpus: {max: 2}}
  sent: {partitions: [gpu], sizing: {partition: gpu}}
  dept: {children: true, gpus: {max: 6}}
  brings: {images: ["/own/*", "/home/*/*.sqsh"], gpus: {max: 4, start: 2, types: [a100]}}
  nodes: {images: ["*"], gpus: {min: 4, max: 16, sizes: whole_nodes, gpus_per_node: 4, max_nodes: 3},
          sizing: {per_gpu: {cpus: 4, memory: 16G}}}
models:
  - {name: llama/8b, tenant: vision, source: /m/llama, visible: [speech]}
  - {name: secret, tenant: lab, source: /m/secret}
  - {name: digits, tenant: vision, source: /m/digits, visible: ["*"]}
resize_site_factor: 700
plain_jobs: {default: pass, partitions: {gpu: refuse}}
)";

std::uint32_t number(std::string_view text) {
  if (text == "UNLIMITED") return kUnlimited;
  const auto value = parse_uint(text);
  cr_assert(value, "not a number: %s", std::string(text).c_str());
  return static_cast<std::uint32_t>(*value);
}

void take_nodes(Sizes& sizes, std::string_view value) {
  const auto dash = value.find('-');
  sizes.min_nodes = number(value.substr(0, dash));
  sizes.max_nodes = dash == std::string_view::npos ? sizes.min_nodes
                    : dash + 1 == value.size()     ? std::optional<std::uint32_t>()
                                                   : number(value.substr(dash + 1));
}

std::string gres(std::string_view value) { return fmt::format(BELLOWS_GRES "gpu:{}", value); }

std::vector<std::string> list(std::string_view value) {
  std::vector<std::string> words;
  for (std::string_view word : split(value, ',')) words.emplace_back(word);
  return words;
}

using Taker = std::function<void(Request&, std::string_view)>;

const std::map<std::string, Taker, std::less<>>& options() {
  using V = std::string_view;
  static const std::map<std::string, Taker, std::less<>> table = {
      {"-A", [](Request& r, V v) { r.account = v == "NONE" ? "" : v; }},
      {"-p", [](Request& r, V v) { r.partition = v; }},
      {"--reservation", [](Request& r, V v) { r.reserved = !v.empty(); }},
      {"-q", [](Request& r, V v) { r.qos = v; }},
      {"-t", [](Request& r, V v) { r.time_limit = number(v); }},
      {"-N", [](Request& r, V v) { take_nodes(r.sizes, v); }},
      {"-n", [](Request& r, V v) { r.sizes.tasks = number(v); }},
      {"-c",
       [](Request& r, V v) {
         r.sizes.cpus_per_task = number(v);
         r.cpus_said = true;
       }},
      {"--mem", [](Request& r, V) { r.memory_said = true; }},
      {"--signal", [](Request& r, V) { r.signal_said = true; }},
      {"--spread-job", [](Request& r, V) { r.placement_said = true; }},
      {"--no-requeue", [](Request& r, V) { r.requeue_off = true; }},
      {"--exclusive", [](Request& r, V) { r.whole_nodes = true; }},
      {"--framework", [](Request& r, V v) { r.framework = v; }},
      {"--gpus-range", [](Request& r, V v) { r.gpus_range = v; }},
      {"--batch-range", [](Request& r, V v) { r.batch_range = v; }},
      {"--model", [](Request& r, V v) { r.models = v; }},
      {"--model-on", [](Request& r, V v) { r.model_on = v; }},
      {"--pool", [](Request& r, V v) { r.pool = v; }},
      {"array", [](Request& r, V) { r.array = true; }},
      {"--job-class", [](Request& r, V v) { r.job_class = v; }},
      {"--gpus", [](Request& r, V v) { r.sizes.per_job = gres(v); }},
      {"--gpus-per-node", [](Request& r, V v) { r.sizes.per_node = gres(v); }},
      {"--gpus-per-task", [](Request& r, V v) { r.sizes.per_task = gres(v); }},
      {"--gpus-per-socket", [](Request& r, V v) { r.sizes.per_socket = gres(v); }},
      {"--gres", [](Request& r, V v) { r.sizes.per_node = v; }},
      {"--ntasks-per-node", [](Request& r, V v) { r.sizes.tasks_per_node = number(v); }},
      {"--ntasks-per-gpu", [](Request& r, V v) { r.sizes.tasks_per_gpu = number(v); }},
      {"--container", [](Request& r, V v) { r.container = v; }},
      {"--mincpus", [](Request& r, V v) { r.sizes.node_cpus = number(v); }},
      {"cpus", [](Request& r, V v) { r.sizes.min_cpus = number(v); }},
      {"task", [](Request& r, V v) { r.sizes.per_task = v; }},
      {"socket", [](Request& r, V v) { r.sizes.per_socket = v; }},
      {"job", [](Request& r, V v) { r.sizes.per_job = v; }},
      {"node", [](Request& r, V v) { r.sizes.per_node = v; }},
      {"anynodes", [](Request& r, V) { r.sizes.max_nodes = 0; }},
      {"salloc", [](Request& r, V) { r.batch = false; }},
      {"het", [](Request& r, V) { r.heterogeneous = true; }},
      {"twice", [](Request& r, V) { r.contradictory = true; }},
      {"user", [](Request& r, V v) { r.user = v; }},
      {"groups", [](Request& r, V v) { r.groups = list(v); }},
      {"parents", [](Request& r, V v) { r.parents = list(v); }},
      {"nobody-known", [](Request& r, V) { r.person_known = false; }},
      {"default", [](Request& r, V v) { r.default_partition = v; }},
      {"put", [](Request& r, V v) { r.partition = v; }},
  };
  return table;
}

const char* word_for(Refusal why) {
  switch (why) {
    case Refusal::policy:
      return "policy";
    case Refusal::account:
      return "account";
    case Refusal::gpus:
      return "gpus";
    case Refusal::option:
      return "option";
    case Refusal::unavailable:
      break;
  }
  return "unavailable";
}

/// Words of a line, each "NAME=VALUE".
class Line {
 public:
  template <typename Value>
  void add(std::string_view name, const std::optional<Value>& value) {
    if (value) text_ += fmt::format("{}{}={}", text_.empty() ? "" : " ", name, *value);
  }
  void add(std::string_view word) { text_ += (text_.empty() ? "" : " ") + std::string(word); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string told(const Changes& changes) {
  Line line;
  line.add("job", changes.per_job);
  line.add("node", changes.per_node);
  line.add("task", changes.per_task);
  line.add("tasks", changes.tasks);
  line.add("cpus", changes.min_cpus);
  line.add("minnodes", changes.min_nodes);
  line.add("maxnodes", changes.max_nodes);
  line.add("cpus/gpu", changes.cpus_per_gpu);
  line.add("mem/gpu", changes.memory_per_gpu);
  line.add("time", changes.time_limit);
  line.add("usr1", changes.signal_lead);
  line.add("partition", changes.partition);
  line.add("qos", changes.qos);
  line.add("factor", changes.site_factor);
  if (changes.placement == PlacementStrategy::pack) line.add("pack");
  if (changes.placement == PlacementStrategy::spread) line.add("spread");
  return line.text();
}

}  // namespace

const Policy& policy() {
  static const Policy read = [] {
    auto policy = load_policy(kPolicy, "b.yaml");
    cr_assert(policy.ok(), "%s", policy.ok() ? "" : policy.error().text.c_str());
    return *std::move(policy);
  }();
  return read;
}

Request parse_job(std::string_view text) {
  Request request;
  request.batch = true;
  request.account = "vision";
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    // "-N2" and "--name=value"
    const bool brief = word[0] == '-' && word[1] != '-';
    const auto cut = brief ? 2 : word.find('=');
    const auto found = options().find(word.substr(0, cut));
    cr_assert(found != options().end(), "unknown option: %s", word.c_str());
    std::string_view value = word;
    value.remove_prefix(cut == std::string::npos ? word.size() : cut + (brief ? 0 : 1));
    found->second(request, value);
  }
  return request;
}

std::string told(const Decision& decision) {
  if (decision.refused) return fmt::format("{}: {}", word_for(*decision.refused), decision.message);
  std::string line = decision.contract.to_string();
  cr_expect(*Contract::parse(line) == decision.contract, "%s reads back", line.c_str());
  line.erase(0, std::string_view("bellows/1 tenant=").size());
  const std::string changes = told(decision.changes);
  line += " |";
  if (!changes.empty()) line += " " + changes;
  if (decision.requeue) line += " requeue";
  for (const auto& [name, value] : decision.env) line += fmt::format(" {}={}", name, value);
  if (!decision.message.empty()) line += " | " + decision.message;
  return line;
}

std::string told(const UpdateDecision& decision) {
  cr_expect(decision.refused.has_value() == !decision.message.empty());
  return decision.refused ? fmt::format("{}: {}", word_for(*decision.refused), decision.message)
                          : told(decision.changes);
}

void check(const Case* cases, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const Request request = parse_job(for_this_slurm(cases[i].job));
    cr_expect(request.wants_bellows(), "%s", cases[i].job);
    const std::string got = for_table(told(decide(&policy(), "", request)));
    cr_expect(got == cases[i].told, "\n    job: %s\n    got: %s\n    not: %s", cases[i].job,
              got.c_str(), cases[i].told);
    cr_expect(got.find('\n') == std::string::npos, "one sentence");
  }
}

Admitted parse_admitted(const UpdateCase& one) {
  auto contract = Contract::parse(std::string("bellows/1 ") + one.contract);
  cr_assert(contract.ok(), "%s", one.contract);
  const Request now = parse_job(one.job);
  const bool put = std::string_view(one.job).find("put=") != std::string_view::npos;
  return {*contract, now.sizes, !now.signal_said, now, now.time_limit, BELLOWS_GRES "gpu:4",
          "",        put};
}

Update parse_update(const UpdateCase& one) {
  Update update;
  std::string rest = "-A";
  std::istringstream words(one.change);
  for (std::string word; words >> word;) {
    if (word.starts_with("cpus/gpu="))
      update.cpus_per_gpu = word.substr(9);
    else if (word.starts_with("mem/gpu="))
      update.memory_per_gpu = word.substr(8);
    else if (word == "morecpus")
      update.cpus_said = true;
    else if (word.starts_with("--reservation="))
      update.reservation = word.substr(14);
    else
      rest += " " + word;
  }
  const Request to = parse_job(rest);
  update.sizes = to.sizes;
  if (!to.account.empty()) update.account = to.account;
  update.parents = to.parents;
  update.requeue_off = to.requeue_off;
  if (!to.partition.empty()) update.partition = to.partition;
  update.qos = to.qos;
  update.time_limit = to.time_limit;
  return update;
}

void check(const UpdateCase* cases, std::size_t count, const Policy* policy) {
  for (std::size_t i = 0; i < count; ++i) {
    const UpdateCase& one = cases[i];
    const std::string job = for_this_slurm(one.job);
    const std::string change = for_this_slurm(one.change);
    const UpdateCase asked{one.contract, job.c_str(), change.c_str(), one.told};
    const std::string got =
        for_table(told(decide_update(policy, parse_admitted(asked), parse_update(asked))));
    cr_expect(got == one.told,
              "\n    contract: %s\n    job: %s\n    change: %s\n    got: %s\n    not: %s",
              one.contract, one.job, one.change, got.c_str(), one.told);
  }
}

}  // namespace bellows::admission_test
