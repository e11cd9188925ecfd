// SPDX-License-Identifier: Apache-2.0
// Submits held batch jobs through libslurm as fast as it can: submit_load THREADS ACCOUNT
// [--admitted]. Reads numbers of jobs from standard input; submits that many, cancels them, and
// answers with a line of JSON: the seconds that the submissions took and the last job's id. With
// --admitted the jobs are what admission makes of them, for a slurmctld that does not; only
// AdminComment, which users may not give, is the comment.
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "slurm/gres.h"
#include "tests/bench/sample_job.h"
#include "tests/cluster/slurm_names.h"

namespace {

using Ids = std::vector<std::uint32_t>;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "submit_load: %s: %s\n", what, slurm_strerror(errno));
  std::_Exit(1);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  return result;
}

/// What admission makes of the sample job by the policy of parts/submit_policy.py, which compares.
class AdmittedForm {
 public:
  void give(job_desc_msg_t& job) {
    job.comment = line_.data();
    job.cpus_per_tres = cpus_.data();
    job.mem_per_tres = memory_.data();
    job.max_nodes = 4;
    job.min_cpus = 2;
    job.bitflags |= USE_MIN_NODES;
    job.requeue = 1;
    job.open_mode = OPEN_MODE_APPEND;
  }
  void give(std::vector<std::string>& environment, std::vector<std::string>& options) const {
    environment.insert(environment.end(), {"NCCL_DEBUG=WARN", "OMP_NUM_THREADS=4"});
    options.push_back("BELLOWS_CONTRACT=" + line_);
  }

 private:
  std::string line_ =
      "bellows/1 tenant=tenant49 framework=framework7:2.1 gpus=1-8 "
      "ckpt=/shared/checkpoints/%25u/%25j image=/images/framework7-2.1.sqsh launch=torch,nccl";
  std::string cpus_ = BELLOWS_GRES "gpu:4";
  std::string memory_ = BELLOWS_GRES "gpu:1536";
};

void submit(std::size_t count, std::string account, bool admitted, Ids& ids) {
  AdmittedForm form;
  std::vector<std::string> environment = bellows::sample_environment();
  std::vector<std::string> options = {bellows::kSampleFramework, bellows::kSampleRange};
  if (admitted) form.give(environment, options);
  std::vector<char*> environment_of = pointers(environment);
  std::vector<char*> options_of = pointers(options);
  std::string script = bellows::sample_script();
  std::string size = bellows::kSampleSize;
  char name[] = "train";
  char directory[] = "/tmp";
  char partition[] = "main";
  job_desc_msg_t job;
  slurm_init_job_desc_msg(&job);
  job.name = name;
  job.account = account.data();
  job.partition = partition;
  job.user_id = getuid();
  job.group_id = getgid();
  job.work_dir = directory;
  job.script = script.data();
  job.environment = environment_of.data();
  job.env_size = static_cast<std::uint32_t>(environment_of.size());
  job.spank_job_env = options_of.data();
  job.spank_job_env_size = static_cast<std::uint32_t>(options_of.size());
  job.tres_per_job = size.data();
  job.num_tasks = 2;
  job.time_limit = 240;
  job.priority = 0;  // held: nothing is scheduled
  if (admitted) form.give(job);
  for (std::size_t i = 0; i < count; ++i) {
    submit_response_msg_t* response = nullptr;
    if (slurm_submit_batch_job(&job, &response) != SLURM_SUCCESS) fail("submission");
    ids.push_back(response->JOB_ID_FIELD);
    slurm_free_submit_response_response_msg(response);
  }
}

void cancel(const Ids& ids) {
  for (std::uint32_t id : ids)
    if (slurm_kill_job2(std::to_string(id).c_str(), SIGKILL, 0, nullptr) != SLURM_SUCCESS)
      fail("cancellation");
}

/// Runs work(i) in each of `count` threads.
template <typename Work>
void in_threads(std::size_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const bool admitted = argc == 4 && std::strcmp(argv[3], "--admitted") == 0;
  const std::size_t threads = argc == 3 || admitted ? std::strtoul(argv[1], nullptr, 10) : 0;
  if (threads == 0) {
    std::fprintf(stderr, "usage: submit_load THREADS ACCOUNT [--admitted]\n");
    return 2;
  }
  slurm_init(nullptr);
  unsigned long jobs = 0;
  while (std::scanf("%lu", &jobs) == 1 && jobs >= threads) {
    std::vector<Ids> ids(threads);
    const auto begin = std::chrono::steady_clock::now();
    in_threads(threads, [&](std::size_t i) { submit(jobs / threads, argv[2], admitted, ids[i]); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    in_threads(threads, [&](std::size_t i) { cancel(ids[i]); });
    std::printf("{\"jobs\": %zu, \"seconds\": %.6f, \"last\": %u}\n", jobs / threads * threads,
                seconds.count(), ids.back().back());
    std::fflush(stdout);
  }
  slurm_fini();
  return 0;
}
