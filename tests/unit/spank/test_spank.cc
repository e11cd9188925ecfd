// SPDX-License-Identifier: Apache-2.0
// The node side of the plugin without Slurm: options, environment, rescues.
#include <criterion/criterion.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "common/container/options.h"
#include "spank/controller.h"
#include "spank/environment.h"
#include "spank/leftovers.h"
#include "spank/model_socket.h"
#include "spank/options.h"
#include "spank/rescue.h"
#include "tests/unit/spank/spank_support.h"

using namespace bellows;
using namespace bellows::spank;
using namespace std::chrono_literals;

TestSuite(spank, .timeout = 30);

Test(spank, framework_syntax) {
  cr_assert(*parse_framework("pytorch") == (FrameworkOption{"pytorch", ""}));
  cr_assert(*parse_framework("pytorch:2.1.0+cu118") == (FrameworkOption{"pytorch", "2.1.0+cu118"}));
  for (const char* bad : {"", ":1", "a:", "a:b:c", "a b", "../x", "-x", "a=b", "a,b", "a\nb", "é"})
    cr_expect(!parse_framework(bad).ok(), "\"%s\" must be refused", bad);
  cr_assert(*parse_framework("c++:_2") == (FrameworkOption{"c++", "_2"}));
  cr_expect(parse_framework(std::string(64, 'x')).ok());
  cr_expect(!parse_framework(std::string(65, 'x')).ok());
}

Test(spank, every_option_has_its_variables) {
  const auto& names = option_variables();
  const auto has = [&names](const std::string& name) {
    return std::count(names.begin(), names.end(), name) == 1;
  };
  cr_expect(option_variable("gpus-range") == "_SLURM_SPANK_OPTION_bellows_gpus_range");
  for (const char* option :
       {"framework", "gpus_range", "batch_range", "job_class", "model", "model_on", "pool",
        "container", "container_image", "no_container_mount_home", "container_entrypoint_log"}) {
    const std::string bare = std::string("_SLURM_SPANK_OPTION_bellows_") + option;
    cr_expect(has(bare) && has("SLURM_SPANK_" + bare), "%s", option);
  }
  cr_expect(names.size() == 2 * (8 + container::kOptionCount));
}

Test(spank, settings_never_fail) {
  std::string good = "run_dir=/var/x", relative = "run_dir=x", dots = "run_dir=/a/../b";
  std::string other = "debug", empty = "run_dir=", store = "model_store=/run/x/control";
  std::vector<std::string> complaints;
  char* one[] = {good.data()};
  cr_assert(read_settings(1, one, complaints).run_dir == "/var/x");
  char* second[] = {store.data()};
  cr_assert(read_settings(1, second, complaints).model_store == "/run/x/control");
  cr_assert(complaints.empty());
  char* wrong[] = {relative.data(), dots.data(), other.data(), empty.data()};
  cr_assert(read_settings(4, wrong, complaints).run_dir == "/run/bellows");
  cr_assert(complaints.size() == 4);
  cr_assert(read_settings(0, nullptr, complaints).run_dir == "/run/bellows");
}

Test(spank, variables_of_a_job) {
  const JobVariables variables = job_variables(kContract, 17, "/run/bellows/17/user");
  cr_assert(variables.status.ok());
  const Map map = as_map(variables.changes);
  cr_assert(map.at("BELLOWS_CONTRACT") ==
            "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/ck/%25u/%25a/%25j");
  cr_assert(map.at("BELLOWS_TENANT") == "vision");
  cr_assert(map.at("BELLOWS_FRAMEWORK") == "digits");
  cr_assert(map.at("BELLOWS_FRAMEWORK_VERSION") == "1.0");
  cr_assert(map.at("BELLOWS_GPUS_RANGE") == "1-8");
  cr_assert(map.at("BELLOWS_CHECKPOINT_DIR") == "/ck/alice/dept/17");
  cr_assert(map.at("BELLOWS_RUN_DIR") == "/run/bellows/17/user");
  cr_assert(map.at("BELLOWS_MODEL_SOCKET") == "(unset)");
  cr_assert(map.size() == 8);
}

Test(spank, only_a_job_with_models_has_a_socket_for_them) {
  const Contract with = contract_of("bellows/1 tenant=v gpus=2 models=a,b/c");
  cr_expect(model_socket_of(kContract, "/run/bellows/17/user") == "");
  const std::string socket = model_socket_of(with, "/run/bellows/17/user");
  cr_expect(socket == "/run/bellows/17/models.sock");
  const Map map = as_map(job_variables(with, 17, "/run/bellows/17/user", socket).changes);
  cr_expect(map.at("BELLOWS_MODEL_SOCKET") == socket);
}

Test(spank, what_the_contract_leaves_out_is_unset) {
  const Map map = as_map(job_variables(contract_of("bellows/1 tenant=v gpus=2"), 1, "/r").changes);
  cr_assert(map.at("BELLOWS_FRAMEWORK") == "(unset)");
  cr_assert(map.at("BELLOWS_FRAMEWORK_VERSION") == "(unset)");
  cr_assert(map.at("BELLOWS_CHECKPOINT_DIR") == "(unset)");
  const Map none = as_map(no_job_variables());
  cr_assert(none.size() == 8);
  for (const auto& [name, value] : none) cr_expect(value == "(unset)", "%s", name.c_str());
}

Test(spank, a_wrong_checkpoint_pattern_spoils_only_itself) {
  const auto variables =
      job_variables(contract_of("bellows/1 tenant=v gpus=2 ckpt=/ck/%25x"), 1, "/r");
  cr_assert(!variables.status.ok());
  const Map map = as_map(variables.changes);
  cr_assert(map.at("BELLOWS_CHECKPOINT_DIR") == "(unset)");
  cr_assert(map.at("BELLOWS_TENANT") == "v");
}

Test(spank, gpus_are_counted) {
  cr_expect(count_gpus("cpu=4,mem=1G,node=2,billing=4,gres/gpu=6", "") == 6);
  cr_expect(count_gpus("cpu=4,gres/gpu=6,gres/gpu:a100=4,gres/gpu:h100=2", "") == 6);
  cr_expect(count_gpus("gres/gpu:a100=4,gres/gpu:h100=2", "") == 6);
  cr_expect(count_gpus("cpu=4", "gpu:a100:2,gpu:h100:1,nic:4") == 3);
  cr_expect(count_gpus("", "gpu:2(IDX:0-1)") == 2);
  cr_expect(count_gpus("cpu=4,mem=1G", "") == 0);
  cr_expect(count_gpus("gres/gpu=99999999999999", "gpu:x") == 0);
  cr_expect(count_gpus("gres/gpumem=80", "") == 0);
}

Test(spank, stale_sizes_are_corrected) {
  const Map map = as_map(size_corrections({8, 2}, true,
                                          lookup_in({{"SLURM_NTASKS", "2"},
                                                     {"SLURM_NPROCS", "2"},
                                                     {"SLURM_GPUS", "2"},
                                                     {"SLURM_NTASKS_PER_NODE", "2"},
                                                     {"SLURM_GPUS_PER_NODE", "a100:2"},
                                                     {"SLURM_GPUS_PER_TASK", "2"},
                                                     {"SLURM_NTASKS_PER_SOCKET", "1"}})));
  cr_assert(map == (Map{{"SLURM_NTASKS", "8"},
                        {"SLURM_NPROCS", "8"},
                        {"SLURM_GPUS", "8"},
                        {"BELLOWS_SIZE", "8/2"},
                        {"SLURM_NTASKS_PER_NODE", "(unset)"},
                        {"SLURM_GPUS_PER_NODE", "(unset)"},
                        {"SLURM_GPUS_PER_TASK", "(unset)"},
                        {"SLURM_NTASKS_PER_SOCKET", "(unset)"}}));
}

Test(spank, what_still_fits_stays) {
  const Map map = as_map(size_corrections({8, 2}, true,
                                          lookup_in({{"SLURM_NTASKS", "8"},
                                                     {"SLURM_NTASKS_PER_NODE", "4"},
                                                     {"SLURM_GPUS_PER_NODE", "gpu:4"},
                                                     {"SLURM_GPUS_PER_TASK", "1"},
                                                     {"SLURM_NTASKS_PER_SOCKET", "4"}})));
  cr_assert(map == (Map{{"SLURM_NTASKS", "8"}, {"SLURM_NPROCS", "8"}, {"BELLOWS_SIZE", "8/2"}}));
  // Three GPUs on two nodes: no number for each node fits.
  const Map odd = as_map(size_corrections(
      {3, 2}, true, lookup_in({{"SLURM_NTASKS_PER_NODE", "1"}, {"SLURM_GPUS_PER_NODE", "junk"}})));
  cr_assert(odd.at("SLURM_NTASKS_PER_NODE") == "(unset)");
  cr_assert(odd.at("SLURM_GPUS_PER_NODE") == "(unset)");
}

Test(spank, an_unknown_size_changes_nothing) {
  cr_assert(size_corrections({0, 2}, true, lookup_in({{"SLURM_NTASKS", "2"}})).empty());
  cr_assert(size_corrections({2, 0}, true, lookup_in({{"SLURM_NTASKS", "2"}})).empty());
}

Test(spank, a_fixed_job_keeps_its_number_of_tasks) {
  for (const char* name : {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU"})
    cr_expect(as_map(size_corrections({1, 1}, false, lookup_in({{name, "8"}}))) ==
                  (Map{{"BELLOWS_SIZE", "1/1"}}),
              "%s", name);
  cr_assert(as_map(size_corrections({4, 1}, false, lookup_in({{"SLURM_GPUS", "4"}}))) ==
            (Map{{"SLURM_NTASKS", "4"},
                 {"SLURM_NPROCS", "4"},
                 {"SLURM_GPUS", "4"},
                 {"BELLOWS_SIZE", "4/1"}}));
}

namespace {

/// A slurmctld that says the same each time, until the job is requeued.
struct Rescued {
  JobInfo info;
  int requeues = 0;
  std::vector<NextStart> changes;
  std::chrono::milliseconds slept{0};
  Status change_answer;

  RescueReport run(const BatchEnd& end, std::optional<std::uint32_t> gpus = std::nullopt) {
    RescueHands hands;
    hands.look = [this] { return Result<JobInfo>(info); };
    hands.requeue = [this] {
      ++requeues;
      info.running = false;
      info.requeued = true;
      ++info.restarts;
      info.completing = true;
      return Status();
    };
    hands.set_next_run = [this](const NextStart& next) {
      changes.push_back(next);
      return next.gpus ? change_answer : Status();
    };
    hands.time = {[this] { return RequeueRoad::Clock::time_point(slept); },
                  [this](std::chrono::milliseconds time) { slept += time; }};
    return rescue(end, gpus, hands);
  }
};

Rescued running_job() {
  Rescued job;
  job.info.running = true;
  job.info.restarts = 2;
  job.info.batch_host = "n1";
  job.info.clock = 1000;
  return job;
}

}  // namespace

Test(spank, a_job_is_rescued_only_while_this_run_of_it_runs, .timeout = 10) {
  Rescued job = running_job();
  cr_expect(job.run({2, "n1", 0}).requeued && job.requeues == 1);
  cr_expect(job.changes.size() == 1 && job.changes[0].start == 1010);
  job = running_job();
  job.info.running = false;
  cr_expect(!job.run({2, "n1", 0}).requeued && job.requeues == 0);
  job = running_job();
  job.info.restarts = 3;
  cr_expect(!job.run({2, "n1", 0}).requeued && job.requeues == 0);
  job = running_job();
  job.info.batch_host = "n2";
  cr_expect(job.run({2, "n1", 0}).text == "its batch script runs on n2 now" && job.requeues == 0);
  job = running_job();
  cr_expect(job.run({2, "n1", kMostRescues - 1}).requeued);
  job = running_job();
  cr_expect(!job.run({2, "n1", kMostRescues}).requeued && job.requeues == 0);
  job = running_job();
  cr_expect(job.run({std::nullopt, "n1", 0}).requeued);
}

Test(spank, a_rescue_moves_to_the_planned_size, .timeout = 10) {
  Rescued job = running_job();
  cr_expect(job.run({2, "n1", 0}, 4).requeued);
  cr_expect(job.changes.size() == 1 && job.changes[0].gpus == 4u);
  job = running_job();
  job.change_answer = Error{ErrorKind::invalid, "no such size"};
  const auto report = job.run({2, "n1", 0}, 4);
  cr_expect(report.requeued && !report.failed && report.text.ends_with("no such size"));
  cr_expect(job.changes.size() == 2 && !job.changes[1].gpus && job.changes[1].start == 1010);
}

Test(spank, a_requeue_without_a_start_time_gets_one, .timeout = 10) {
  for (std::int64_t begin : {900, 1000, 1007}) {
    Rescued job;
    job.info.requeued = true;
    job.info.restarts = 3;
    job.info.clock = 1000;
    job.info.begin = begin;
    cr_expect(!job.run({2, "n1", kMostRescues}).failed);
    cr_expect(job.changes.size() == 1 && job.changes[0].start == 1010, "%d", (int)begin);
  }
  for (std::uint32_t restarts : {3u, 4u}) {
    Rescued job;
    job.info.requeued = true;
    job.info.restarts = restarts;
    job.info.clock = 1000;
    job.info.begin = restarts == 3 ? 1008 : 900;
    job.run({2, "n1", 0});
    cr_expect(job.changes.empty(), "%s",
              restarts == 3 ? "someone else has set it" : "not the run after this one");
  }
}

Test(spank, a_run_that_slurmctld_lost_is_outlasted, .timeout = 10) {
  Rescued job;
  job.info.requeued = true;
  job.info.restarts = 2;
  job.info.clock = 1000;
  job.run({2, "n1", kMostRescues});
  cr_expect(job.changes.size() == 1 && job.changes[0].start == 1020 && job.slept == 6s);
  job.changes.clear();
  job.slept = 0s;
  job.info.begin = 1015;
  job.run({2, "n1", 0});
  cr_expect(job.changes.size() == 1 && job.changes[0].start == 1020 && job.slept == 6s,
            "its launcher set that time, but was killed before it had lasted long enough");
}

Test(spank, a_jobs_cgroups_end_with_the_job) {
  const std::vector<std::string> v1 = {"6:freezer:/slurm_n1/uid_20001/job_17",
                                       "5:devices:/slurm_n1/uid_20001/job_17"};
  cr_expect(job_cgroups(17,
                        "9:pids:/\n6:freezer:/slurm_n1/uid_20001/job_17\n"
                        "5:devices:/slurm_n1/uid_20001/job_17/step_0\n"
                        "3:cpuset:/slurm_n1/uid_20001/job_171/step_0\n0::/\n") == v1);
  cr_expect(job_cgroups(17, "0::/system.slice/n1.scope/job_17/step_extern/slurm\n") ==
            (std::vector<std::string>{"0::/system.slice/n1.scope/job_17"}));
  cr_expect(job_cgroups(17, "0::/system.slice/job_1/job_7\n").empty());
  cr_expect(job_cgroups(17, "").empty());
  // By the name of the run, as on cgroup v2 from Slurm 26.05 on.
  cr_expect(job_cgroups(17, "0::/n1.scope/s0GZJ5PK8YD3E0/step_0/slurm\n") ==
            std::vector<std::string>{"0::/n1.scope/s0GZJ5PK8YD3E0"});
  cr_expect(job_cgroups(17, "0::/s0GZJ5PK8YD3E0/n1.scope\n").empty());
  cr_expect(job_cgroups(17, "0::/n1.scope/s0GZJ5PK8YD3EO/step_0\n").empty());  // no digit O
  cr_expect(job_cgroups(17, "1:cpuset:/s0GZJ5PK8YD3E0/step_0\n").empty());
  cr_expect(job_cgroups(17, "0::/job_17/step_0/n1/job_17/step_extern\n") ==
            std::vector<std::string>{"0::/job_17/step_0/n1/job_17"});
}

Test(spank, without_slurm_in_the_process_reads_fail_softly) {
  const auto info = read_job(1);
  cr_assert(!info.ok());
  cr_assert(info.error().kind == ErrorKind::unavailable);
  cr_assert(!requeue_running(1).ok());
}
