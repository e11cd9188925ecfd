// SPDX-License-Identifier: Apache-2.0
/// What bellows explain makes of sbatch's options. The lines of the tables are what sbatch of Slurm
/// 22.05.8 sent to slurmctld for the same options.

#include <criterion/criterion.h>
#include <fmt/core.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/policy/explain.h"
#include "launcher/policy/sbatch_job.h"
#include "launcher/policy/sbatch_script.h"
#include "tests/unit/jobsubmit/policy_support.h"
#include "tests/unit/slurm/gres_spelling.h"

using namespace bellows;

namespace {

using Words = std::vector<std::string>;

Words words(const std::string& line) {
  Words list;
  std::istringstream in(line);
  for (std::string word; in >> word;) list.push_back(word);
  return list;
}

Result<SbatchJob> read(const Words& arguments, const std::string& script = "",
                       const std::map<std::string, std::string>& environment = {}) {
  return read_sbatch(
      arguments,
      [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      [&](const std::string& path) -> Result<std::string> {
        if (path != "job.sh") return Error{ErrorKind::not_found, "no such script"};
        return script;
      });
}

template <typename Value>
void add(std::string& line, const char* name, const std::optional<Value>& value) {
  if (value) line += fmt::format(" {}={}", name, *value);
}

/// What is not as in a request that says nothing.
std::string told(const Request& request) {
  const Sizes& sizes = request.sizes;
  std::string line;
  add(line, "job", sizes.per_job);
  add(line, "node", sizes.per_node);
  add(line, "socket", sizes.per_socket);
  add(line, "task", sizes.per_task);
  add(line, "tasks", sizes.tasks);
  add(line, "minnodes", sizes.min_nodes);
  add(line, "maxnodes", sizes.max_nodes);
  add(line, "tpn", sizes.tasks_per_node);
  add(line, "tpg", sizes.tasks_per_gpu);
  if (sizes.cpus_per_task != 1) line += fmt::format(" cpt={}", sizes.cpus_per_task);
  if (request.cpus_said) line += " cpus";
  if (request.memory_said) line += " mem";
  if (!request.account.empty()) line += " acct=" + request.account;
  if (!request.partition.empty()) line += " part=" + request.partition;
  add(line, "qos", request.qos);
  if (request.time_limit == kUnlimited)
    line += " time=-1";
  else
    add(line, "time", request.time_limit);
  add(line, "framework", request.framework);
  add(line, "range", request.gpus_range);
  add(line, "batch", request.batch_range);
  add(line, "models", request.models);
  add(line, "on", request.model_on);
  add(line, "pool", request.pool);
  if (request.array) line += " array";
  add(line, "class", request.job_class);
  add(line, "container", request.container);
  if (request.requeue_off) line += " norequeue";
  if (request.whole_nodes) line += " whole";
  if (request.signal_said) line += " signal";
  if (request.placement_said) line += " placed";
  if (request.heterogeneous) line += " het";
  return line.empty() ? line : line.substr(1);
}

struct Case {
  const char* options;
  const char* told;
};

template <std::size_t N>
void check(const Case (&cases)[N]) {
  for (const Case& one : cases) {
    const auto job = read(words(for_this_slurm(one.options)));
    cr_assert(job.ok(), "%s: %s", one.options, job.ok() ? "" : job.error().text.c_str());
    const std::string got = for_table(told(job->request));
    cr_expect(got == one.told, "\n    options: %s\n    got: %s\n    not: %s", one.options,
              got.c_str(), one.told);
    cr_expect(job->request.batch);
  }
}

std::string why_not(const std::string& options) {
  const auto job = read(words(options));
  cr_assert(not job.ok(), "taken: %s", options.c_str());
  cr_expect(job.error().kind == ErrorKind::invalid);
  return job.error().text;
}

std::string shown_trace(const Trace& trace) {
  std::string text;
  for (const TraceStep& step : trace) text += step.rule + ": " + step.found + "\n";
  return text;
}

const char* const kPolicy = R"(version: 1
frameworks:
  digits: {versions: ["1.0"]}
  pytorch: {versions: {"2.1": {}, "1.8": {state: deprecated, hint: use 2.1}}, env: {A: B}}
tenants:
  vision: {children: true, gpus: {max: 8, start: 2}, images: ["/own/*"]}
  lab:
    users: [alice]
    groups: [crew]
    gpus: {max: 16, gpus_per_node: 4, sizes: whole_nodes, start: 4, types: [a100]}
    sizing:
      per_gpu: {cpus: 4, memory: 16G, snapshot: 4G}
      time: {default: 4:00:00, max: 2-00:00:00}
      signal_lead: 120
      placement: pack
      partition: gpu
      qos: high
      qos_allowed: [high, low]
      site_factor: 9
default_tenant: vision
plain_jobs: {default: pass, partitions: {gpu: refuse}}
)";

Explanation explained(const std::string& options, const std::string& account = "vision") {
  auto job = read(words(options));
  cr_assert(job.ok(), "%s", job.ok() ? "" : job.error().text.c_str());
  if (job->request.account.empty()) job->request.account = account;
  job->request.user = "alice";
  if (!job->request.account.empty()) job->request.parents = {"vision"};
  return explain(good(kPolicy), job->request);
}

}  // namespace

Test(explain, gpus, .timeout = 10) {
  check({
      {"-G4", "job=gres:gpu:4"},
      {"--gpus a100:2,h100:1", "job=gres:gpu:a100:2,gres:gpu:h100:1"},
      {"--gpus-per-node=2", "node=gres:gpu:2"},
      {"--gpus-per-task=1 -n2", "task=gres:gpu:1 tasks=2"},
      {"--gpus-per-socket=1", "socket=gres:gpu:1"},
      {"--gres=gpu:2,nic", "node=gres:gpu:2,gres:nic"},
      {"--gres=gres:gpu:2", "node=gres:gpu:2"},
      {"--gres=NONE", ""},
      {"--gres=nic:1 --gpus-per-node=2", "node=gres:gpu:2,gres:nic:1"},
      {"--gpus=2 --gpus=4", "job=gres:gpu:4"},
  });
}

Test(explain, sizes_that_sbatch_derives, .timeout = 10) {
  check({
      {"-N2 -n1", "tasks=1 minnodes=1 maxnodes=1"},
      {"-N1-4 -n2", "tasks=2 minnodes=1 maxnodes=2"},
      {"-N2 --ntasks-per-node=3", "tasks=6 minnodes=2 maxnodes=2 tpn=3"},
      {"--ntasks-per-node=2", "tasks=2 tpn=2"},
      {"--ntasks-per-node=2 -N1-2", "minnodes=1 maxnodes=2 tpn=2"},
      {"-G4 --gpus-per-task=1", "job=gres:gpu:4 task=gres:gpu:1 tasks=4"},
      {"-G3 --ntasks-per-gpu=2", "job=gres:gpu:3 tasks=6 tpg=2"},
      {"-Ga:2,b:2 --ntasks-per-gpu=2", "job=gres:gpu:a:2,gres:gpu:b:2 tasks=8 tpg=2"},
      {"-N4 -n1 --ntasks-per-gpu=2", "tasks=1 minnodes=1 maxnodes=1 tpg=2"},
      {"-N2 --ntasks-per-tres=2", "tasks=4 minnodes=2 maxnodes=2 tpg=2"},
      {"-N2 --gpus-per-node=2 --ntasks-per-gpu=2",
       "node=gres:gpu:2 tasks=8 minnodes=2 maxnodes=2 tpg=2"},
      {"-N2 --gpus-per-task=1", "task=gres:gpu:1 tasks=2 minnodes=2 maxnodes=2"},
      {"-N2 --gpus-per-task=1 -c2", "task=gres:gpu:1 minnodes=2 maxnodes=2 cpt=2 cpus"},
      {"-G4 --gpus-per-node=2", "job=gres:gpu:4 node=gres:gpu:2 minnodes=2 maxnodes=2"},
      {"-G2 -N1-4", "job=gres:gpu:2 minnodes=1 maxnodes=2"},
      {"--gpus-per-node=2 --gpus-per-task=1 -n4", "node=gres:gpu:2 task=gres:gpu:1 tasks=4 tpn=2"},
      {"--cpus-per-gpu=3 --gpus-per-task=2 -n2", "task=gres:gpu:2 tasks=2 cpt=6 cpus"},
      {"-w n1,n[2-3],n1", "minnodes=3"},
      {"-N2 --threads-per-core=1", "tasks=2 minnodes=2 maxnodes=2"},
      {"--threads-per-core=1", ""},
      {"-N2 --sockets-per-node=2 --cores-per-socket=3", "tasks=12 minnodes=2 maxnodes=2"},
      {"-B 2:*:2", "tasks=4"},
      {"-N2 --hint=nomultithread", "tasks=2 minnodes=2 maxnodes=2"},
      {"-N2 --hint=multithread", "minnodes=2 maxnodes=2"},
      {"-N2k", "minnodes=2048 maxnodes=2048"},
      {"-N0", ""},
  });
}

Test(explain, terms, .timeout = 10) {
  check({
      {"-A VISION -p a,b -q High", "acct=VISION part=a,b qos=High"},
      {"-t5", "time=5"},
      {"-t 1:30", "time=2"},
      {"-t 2:3:4", "time=124"},
      {"-t 1-", "time=1440"},
      {"-t 1-2", "time=1560"},
      {"-t 1-2:3", "time=1563"},
      {"-t 1-2:3:4", "time=1564"},
      {"-t 0", "time=-1"},
      {"-t -1", "time=-1"},
      {"--time=Unlimited", "time=-1"},
      {"--mem=4GB", "mem"},
      {"--mem-per-cpu=1", "mem"},
      {"--mem-per-gpu=512M", "mem"},
      {"-c4", "cpt=4 cpus"},
      {"--cpus-per-gpu=2", "cpus"},
      {"--mincpus=2", "cpus"},
      {"--exclusive", "whole"},
      {"--exclusive=user", ""},
      {"--exclusive -s", ""},
      {"-s --exclusive", "whole"},
      {"--core-spec=0", "whole"},
      {"--thread-spec=1", "whole"},
      {"--no-requeue", "norequeue"},
      {"--no-requeue --requeue", ""},
      {"--signal=B:USR1@60", "signal"},
      {"--signal=10", "signal"},
      {"--spread-job", "placed"},
      {"--use-min-nodes", "placed"},
      {"--framework=a:1 --gpus-range 1-4 --batch-range=8-64", "framework=a:1 range=1-4 batch=8-64"},
      {"--model=a,b/c --model d", "models=d"},
      {"--job-class=bert-base", "class=bert-base"},
      {"--pool=web:1-8 --array=1-2", "pool=web:1-8 array"},
      {"-n1 : -n1", "tasks=1 het"},
      {"--container-image=/i/a.sqsh --container-mounts /a:/b --container-mounts=/c:/d:ro",
       "container=image:/i/a.sqsh,mount:/a:/b,mount:/c:/d:ro"},
      {"--container-writable --no-container-mount-home", "container=no-mount-home,writable"},
      {"--container=bundle", ""},
  });
}

Test(explain, container_options, .timeout = 10) {
  const auto told_of = [](const Words& arguments, const std::string& script,
                          const std::map<std::string, std::string>& environment) {
    const auto job = read(arguments, script, environment);
    return job ? for_table(told(job->request)) : "! " + job.error().text;
  };
  const std::string script = "#SBATCH --container-image=/i/script --container-writable\n";
  cr_expect(told_of({"job.sh"}, script, {{"PYXIS_CONTAINER_IMAGE", "/i/variable"}}) ==
            "container=image:/i/script,writable");
  cr_expect(told_of({"job.sh"}, script, {{"BELLOWS_CONTAINER_TMP", "1G"}}) ==
            "container=image:/i/script,writable,tmp:1024M");
  cr_expect(told_of({"--container-readonly", "job.sh"}, script, {}) ==
            "! --container-readonly: its opposite --container-writable is given too; give one of "
            "them");
  cr_expect(told_of({}, "", {{"PYXIS_CONTAINER_MOUNTS", "x"}}) ==
            "! PYXIS_CONTAINER_MOUNTS: mount \"x\": the source must be an absolute path, one that "
            "begins with \"./\" or \"../\", tmpfs or umount");
  cr_expect(
      why_not("--container-image=docker://X").starts_with("--container-image: \"docker://X\""));
  cr_expect(why_not("--container-writable=yes").starts_with("sbatch has no option"));
  const auto job = read({"--container-verbose"}, "", {{"PYXIS_CONTAINER_IMAGE", "/i"}});
  cr_assert(job.ok());
  cr_expect(job->looked_at == Words({"PYXIS_CONTAINER_IMAGE=/i", "--container-verbose"}));
}

Test(explain, spellings_of_getopt, .timeout = 10) {
  check({
      {"--accou x", "acct=x"},
      {"-Hn4", "tasks=4"},
      {"-Hn 4", "tasks=4"},
      {"-vvn2 -W", "tasks=2"},
      {"--nice -n2", "tasks=2"},
      {"--wrap true -n2", "tasks=2"},
  });
}

Test(explain, not_looked_at, .timeout = 10) {
  const auto job = read(words("-J a -o b -J c --array=1-3 -n2 --mail-user x"));
  cr_assert(job.ok());
  cr_expect(job->not_looked_at == Words({"--output", "--mail-user"}));
  cr_expect(job->looked_at == Words({"--job-name=a", "--job-name=c", "--array=1-3", "--ntasks=2"}));
  cr_expect(job->for_rules.at("job-name") == "c");
}

Test(explain, what_sbatch_does_not_take, .timeout = 10) {
  for (const char* wrong : {"-N2-",
                            "-N3-2",
                            "-Nx",
                            "-n0",
                            "-n2k",
                            "-n-1",
                            "-c0",
                            "-t:3",
                            "-t1:2:3:4",
                            "-tabc",
                            "-t1.5",
                            "-t1-2-3",
                            "-t ",
                            "--exclusive=foo",
                            "--mem=1x",
                            "--mem=4.5G",
                            "--signal=0",
                            "--signal=foo",
                            "--signal=B:TERM@70000",
                            "--ntasks-per-gpu=0",
                            "--mincpus=0",
                            "--hint=x",
                            "-B x"})
    cr_expect(why_not(wrong).find("sbatch does not accept") == 0 ||
                  why_not(wrong).find("needs a value") != std::string::npos,
              "%s: %s", wrong, why_not(wrong).c_str());
  cr_expect(why_not("-N3-2") == "sbatch does not accept \"3-2\" for --nodes");
  for (const char* unknown : {"--share", "--acc=x", "-Z", "--tres-per-job=2", "--hold=yes"})
    cr_expect(why_not(unknown).find("sbatch has no option") == 0, "%s", unknown);
  cr_expect(why_not("--ntasks") == "--ntasks needs a value");
}

Test(explain, script_environment_and_command_line, .timeout = 10) {
  const std::string script =
      "#!/bin/bash\n"
      "#SBATCH --gpus=1 --ntasks=3 # one each\n"
      "\n"
      "# a remark\n"
      "  # another\n"
      "#SBATCH -A 'a b' --qos=\"q\" --comment=x\\ y\n"
      "##SBATCH --nodes=7\n"
      "export X=1\n"
      "#SBATCH --partition=late\n";
  const std::map<std::string, std::string> environment = {
      {"SBATCH_GPUS", "2"}, {"SBATCH_TIMELIMIT", "7"}, {"SBATCH_EXCLUSIVE", ""}};
  auto job = read({"--time=9", "job.sh", "--nodes=5"}, script, environment);
  cr_assert(job.ok(), "%s", job.ok() ? "" : job.error().text.c_str());
  cr_expect(for_table(told(job->request)) == "job=gres:gpu:2 tasks=3 acct=a b qos=q time=9 whole",
            "%s", told(job->request).c_str());
  cr_expect(job->script == "job.sh");
  cr_expect(job->looked_at.front() == "--gpus=1 (#SBATCH)");
  cr_expect(job->looked_at.back() == "--time=9");

  cr_expect(not read({"other.sh"}).ok());
  cr_expect(read({"--wrap=x", "other.sh"}).ok(), "arguments of --wrap are no script");
  job = read({"job.sh"}, "#SBATCH -n2\n#SBATCH hetjob\n#SBATCH -n9\n");
  cr_assert(job.ok());
  cr_expect(told(job->request) == "tasks=2 het");
}

Test(explain, wrong_scripts, .timeout = 10) {
  auto job = read({"job.sh"}, "#!/bin/sh\n#SBATCH --comment='open\n");
  cr_assert(not job.ok());
  cr_expect(job.error().text == "job.sh: line 2: a quote is not closed");
  job = read({"job.sh"}, "#SBATCH --nodse=2\n");
  cr_assert(not job.ok());
  cr_expect(job.error().text.find("job.sh: sbatch has no option \"--nodse=2\"") == 0);
  job = read({}, "", {{"SBATCH_TIMELIMIT", "x"}});
  cr_assert(not job.ok());
  cr_expect(job.error().text == "SBATCH_TIMELIMIT: sbatch does not accept \"x\" for --time");
}

Test(explain, trace_of_an_admitted_job, .timeout = 10) {
  const Explanation found = explained("--framework=pytorch --gpus-range=4-16:4 -A lab -qLow");
  cr_assert(found.outcome == Explanation::Outcome::admitted, "%s", found.decision.message.c_str());
  const std::string got = shown_trace(found.trace);
  cr_expect(got ==
                "tenant: lab, by account lab, user alice\n"
                "framework: pytorch:2.1, the version for jobs that name none\n"
                "limits: a job of tenant lab may have 4-16:4 GPUs of the types a100\n"
                "range: 4-16:4, of --gpus-range\n"
                "GPU type: a100, the only one open\n"
                "first size: 4 GPUs, the size to start with\n"
                "nodes: 1 node, whole, of 4 GPUs each\n"
                "partition: gpu, the tenant's for jobs that name none\n"
                "QOS: Low; the tenant may use high, low\n"
                "time limit: 4:00:00, the tenant's for jobs that give none\n"
                "CPUs: 4 for each GPU\n"
                "memory: 16384 MiB for each GPU, and 4096 MiB for a checkpoint in flight\n"
                "signal: USR1 to the batch script 120 s before the time limit\n"
                "placement: on few nodes\n"
                "priority: raised by 9\n"
                "requeue: on: a resize and a lost node requeue the job\n",
            "%s", got.c_str());
  cr_expect(changed_options(found.decision) ==
            Words({"--gpus=a100:4", "--ntasks=4", "--nodes=1", "--cpus-per-gpu=4",
                   "--mem-per-gpu=20480M", "--time=4:00:00", "--signal=B:USR1@120",
                   "--partition=gpu", "--use-min-nodes", "--requeue", "priority +9"}));
}

Test(explain, trace_says_by_what, .timeout = 10) {
  const auto first = [](const Explanation& found) { return found.trace.front().found; };
  cr_expect(first(explained("--gpus-range=2", "below")) == "vision, by account vision above below");
  cr_expect(first(explained("--gpus-range=2", "")) == "vision, by default_tenant");
  const Explanation asked = explained("--gpus-range=1-8 --gpus=4 --framework=pytorch:1.8");
  const std::string got = shown_trace(asked.trace);
  cr_expect(got.find("framework: pytorch:1.8; framework pytorch:1.8 is deprecated; use 2.1\n") !=
                std::string::npos,
            "%s", got.c_str());
  cr_expect(got.find("first size: 4 GPUs, of --gpus=4\n") != std::string::npos, "%s", got.c_str());
  const Explanation fixed = explained("--framework=digits --gres=gpu:2 --batch-range=8-16");
  cr_expect(shown_trace(fixed.trace).find("batch range: 8-16\n") != std::string::npos);
  cr_expect(changed_options(fixed.decision) == Words({"--ntasks=2", "--nodes=1", "--requeue"}));
}

Test(explain, trace_of_a_container_without_gpus, .timeout = 10) {
  const Explanation found = explained("--container-image=/own/a.sqsh --container-workdir=/w");
  cr_assert(found.outcome == Explanation::Outcome::admitted, "%s", found.decision.message.c_str());
  const std::string got = shown_trace(found.trace);
  cr_expect(got ==
                "tenant: vision, by account vision\n"
                "container: image /own/a.sqsh; workdir:/w\n"
                "range: no GPUs: the job asks for none, and for a container\n"
                "requeue: on: a resize and a lost node requeue the job\n",
            "%s", got.c_str());
}

Test(explain, trace_ends_with_the_rule_that_refuses, .timeout = 10) {
  const struct {
    const char* options;
    const char* rule;
  } cases[] = {
      {"--framework=a@b", "spelling"},
      {"--gpus-range=x", "spelling"},
      {"--gpus-range=1 --batch-range=x", "spelling"},
      {"--model=a,,b", "spelling"},
      {"--model=none", "models"},
      {"--gpus-range=1 --job-class=a/b", "spelling"},
      {"--pool=a/b", "spelling"},
      {"--gpus-range=1 --exclusive", "kind of job"},
      {"--framework=dgits", "framework"},
      {"--container-image=/other/a.sqsh", "container"},
      {"--gpus-range=1-16", "range"},
      {"-A lab --gpus-range=4 -G h100:4", "GPU type"},
      {"--gpus-range=1-4 -G8", "first size"},
      {"-A lab --gpus-range=4 -G4 -N2", "nodes"},
      {"-A lab --gpus-range=4 -qother", "partition and QOS"},
      {"-A lab --gpus-range=4 -t3-0", "time limit"},
      {"-p gpu", "plain_jobs"},
  };
  for (const auto& one : cases) {
    const Explanation found = explained(one.options);
    cr_assert(found.outcome == Explanation::Outcome::refused, "%s", one.options);
    cr_expect(found.trace.back().rule == one.rule, "%s: %s", one.options,
              found.trace.back().rule.c_str());
    cr_expect(found.trace.back().found == found.decision.message);
  }
}

Test(explain, trace_changes_no_decision, .timeout = 10) {
  const Policy policy = good(kPolicy);
  for (const char* options : {"--gpus-range=1-8", "--framework=pytorch:1.8 -n3", "--gpus-range=9",
                              "-A lab --framework=digits", "--gpus-range=1-4 --no-requeue"}) {
    auto job = read(words(options));
    cr_assert(job.ok());
    if (job->request.account.empty()) job->request.account = "vision";
    Trace trace;
    const Decision with = decide(&policy, "", job->request, &trace);
    const Decision without = decide(&policy, "", job->request);
    cr_expect(with.refused == without.refused && with.message == without.message);
    cr_expect(with.contract == without.contract);
    cr_expect(changed_options(with) == changed_options(without));
    cr_expect(not trace.empty());
  }
}

Test(explain, plain_jobs, .timeout = 10) {
  cr_expect(explained("-n4").outcome == Explanation::Outcome::plain);
  cr_expect(explained("-n4 -p gpu").outcome == Explanation::Outcome::refused);
  const Policy off = good("version: 1\nenabled: false\n");
  Request request;
  request.gpus_range = "1-99";
  const Explanation found = explain(off, request);
  cr_expect(found.outcome == Explanation::Outcome::plain);
  cr_expect(found.trace.at(0).rule == "enabled");
}
