// SPDX-License-Identifier: Apache-2.0
#include "spank/controller.h"

#include <fmt/core.h>

#include <cerrno>
#include <chrono>
#include <memory>

#include "common/contract.h"
#include "slurm/compat.h"
#include "slurm/error_kind.h"
#include "spank/owner.h"

// Resolved inside the process that loads the plugin, which has Slurm's own library; linking
// libslurm as well would bring a second copy of its globals. Weak, so that a process without them
// can still load the plugin.
extern "C" {
[[gnu::weak]] decltype(slurm_init) slurm_init;
[[gnu::weak]] decltype(slurm_load_job) slurm_load_job;
[[gnu::weak]] decltype(slurm_free_job_info_msg) slurm_free_job_info_msg;
[[gnu::weak]] decltype(slurm_requeue) slurm_requeue;
[[gnu::weak]] decltype(slurm_update_job) slurm_update_job;
[[gnu::weak]] decltype(slurm_init_job_desc_msg) slurm_init_job_desc_msg;
[[gnu::weak]] decltype(slurm_strerror) slurm_strerror;
}

namespace bellows::spank {
namespace {

/// slurmctld answered a moment before.
constexpr std::chrono::seconds kOwnersLimit{30};

struct FreeJobs {
  void operator()(job_info_msg_t* message) const { slurm_free_job_info_msg(message); }
};
using Jobs = std::unique_ptr<job_info_msg_t, FreeJobs>;

bool have_slurm() {
  return slurm_load_job != nullptr && slurm_free_job_info_msg != nullptr &&
         slurm_requeue != nullptr && slurm_update_job != nullptr &&
         slurm_init_job_desc_msg != nullptr && slurm_strerror != nullptr;
}

Error slurm_failure(std::string_view what, std::uint32_t job) {
  const int code = errno;
  return Error{slurm_error_kind(code),
               fmt::format("cannot {} job {}: {}", what, job, slurm_strerror(code))};
}

Error no_slurm() {
  return Error{ErrorKind::unavailable, "this process has no Slurm library loaded"};
}

std::string text(const char* value) { return value == nullptr ? "" : value; }

}  // namespace

void init_slurm() {
  if (slurm_init != nullptr) slurm_init(nullptr);
}

Result<JobInfo> read_job(std::uint32_t job) {
  if (!have_slurm()) return no_slurm();
  job_info_msg_t* response = nullptr;
  if (slurm_load_job(&response, job_named(job), SHOW_ALL) != SLURM_SUCCESS)
    return slurm_failure("read", job);
  const Jobs jobs(response);
  for (std::uint32_t i = 0; i < jobs->record_count; ++i) {
    const job_info_t& record = jobs->job_array[i];
    if (record.job_id != job) continue;
    JobInfo info;
    info.running = record.job_state == JOB_RUNNING;
    info.requeued = (record.job_state & JOB_STATE_BASE) == JOB_PENDING && record.priority != 0 &&
                    (record.job_state & (JOB_REQUEUE_HOLD | JOB_SPECIAL_EXIT)) == 0;
    info.completing = (record.job_state & JOB_COMPLETING) != 0;
    info.begin = record.eligible_time;
    info.restarts = record.restart_cnt;
    info.batch_host = text(record.batch_host);
    info.account = text(record.account);
    info.admin_comment = text(record.admin_comment);
    info.held.gpus = count_gpus(text(record.tres_alloc_str), text(record.gres_total));
    info.held.nodes = record.num_nodes;
    info.asked = {text(record.tres_per_job), text(record.tres_per_node),
                  record.cpus_per_task == 0 || record.cpus_per_task == NO_VAL16
                      ? static_cast<std::uint16_t>(1)
                      : record.cpus_per_task,
                  text(record.cpus_per_tres)};
    info.clock = jobs->last_update;
    return info;
  }
  return Error{ErrorKind::not_found, fmt::format("slurmctld does not know job {}", job)};
}

Result<JobInfo> read_promise(std::uint32_t job) {
  auto info = read_job(job);
  // slurmctld keeps the line through every change: where there is nothing at all, there was none.
  // That spares it a change of each plain job.
  if (!info || info->admin_comment.empty() || !Contract::line_in(info->admin_comment).empty())
    return info;
  job_desc_msg_t update;
  slurm_init_job_desc_msg(&update);
  BELLOWS_JOB_DESC_ID(&update) = job;
  update.admin_comment = info->admin_comment.data();
  if (slurm_update_job(&update) == SLURM_SUCCESS) return read_job(job);
  // Nobody can have put something else in its place either.
  if (errno == ESLURM_CANNOT_MODIFY_CRON_JOB) return info;
  return slurm_failure("ask for the contract of", job);
}

Status requeue_running(std::uint32_t job) {
  if (!have_slurm()) return no_slurm();
  // The state among the flags makes slurmctld skip a job that has left it meanwhile; without it a
  // job cancelled a moment ago would come back to life.
  if (slurm_requeue(job_named(job), JOB_RUNNING) == SLURM_SUCCESS) return {};
  return slurm_failure("requeue", job);
}

Status set_next_run(std::uint32_t job, const NextStart& next, container::JobOwner owner) {
  if (!have_slurm()) return no_slurm();
  job_desc_msg_t update;
  slurm_init_job_desc_msg(&update);
  BELLOWS_JOB_DESC_ID(&update) = job;
  update.begin_time = next.start;
  std::string tres;
  if (next.gpus) {
    if (auto status = set_job_size(job, next.asked, *next.gpus, update, tres); !status)
      return status;
  }
  const auto code = as_owner(owner, kOwnersLimit, [&update] {
    if (slurm_update_job(&update) == SLURM_SUCCESS) return SLURM_SUCCESS;
    return errno == 0 ? SLURM_ERROR : errno;
  });
  if (code && *code == SLURM_SUCCESS) return {};
  if (!code) return code.error();
  errno = *code;
  return slurm_failure("set the start time of", job);
}

}  // namespace bellows::spank
