// SPDX-License-Identifier: Apache-2.0
#include "slurm/client.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "common/text.h"
#include "slurm/compat.h"
#include "slurm/error_kind.h"
#include "slurm/gres.h"
#include "slurm/job_size.h"

namespace bellows {
namespace {

constexpr useconds_t kLookEvery = 2000;
constexpr int kMostLooks = 5000;
constexpr std::uint16_t kWhole = SHOW_ALL | SHOW_DETAIL;

std::string text_of(const char* text) { return text ? text : ""; }

Error slurm_error(const std::string& what) {
  const int code = errno;
  return Error{slurm_error_kind(code), fmt::format("{}: {}", what, slurm_strerror(code))};
}

struct FreeJobs {
  void operator()(job_info_msg_t* jobs) const { slurm_free_job_info_msg(jobs); }
};
using JobsMessage = std::unique_ptr<job_info_msg_t, FreeJobs>;

struct FreeSteps {
  void operator()(job_step_info_response_msg_t* steps) const {
    slurm_free_job_step_info_response_msg(steps);
  }
};

class HostList {
 public:
  explicit HostList(const char* text) : list_(slurm_hostlist_create(text)) {}
  HostList(const HostList&) = delete;
  HostList& operator=(const HostList&) = delete;
  ~HostList() {
    if (list_) slurm_hostlist_destroy(list_);
  }
  std::optional<std::string> shift() {
    char* host = list_ ? slurm_hostlist_shift(list_) : nullptr;
    if (!host) return std::nullopt;
    std::string name = host;
    free(host);
    return name;
  }

 private:
  // A pointer: the name of its type differs between releases.
  decltype(slurm_hostlist_create(nullptr)) list_;
};

SlurmState state_of(std::uint32_t state) {
  std::uint32_t base = state & JOB_STATE_BASE;
  return base < JOB_END ? static_cast<SlurmState>(base) : SlurmState::unknown;
}

std::string reason_of(const slurm_job_info_t& info) {
  if (info.state_desc && *info.state_desc) return info.state_desc;
  const std::string word = reason_word(info.state_reason);
  // What libslurm makes of a number that is newer than itself.
  if (word == "InvalidReason" || parse_uint(word))
    return fmt::format("reason {}, for which this machine's Slurm has no name", info.state_reason);
  return word;
}

// The GRES details follow the order of the host list; scontrol shows them the same way.
std::vector<NodeShare> shares_of(const slurm_job_info_t& info) {
  std::vector<NodeShare> shares;
  if (!info.nodes || !*info.nodes || state_of(info.job_state) == SlurmState::pending) return shares;
  HostList hosts(info.nodes);
  while (auto host = hosts.shift()) {
    NodeShare share{*host, 0, 0};
    std::size_t i = shares.size();
    if (i < info.gres_detail_cnt && info.gres_detail_str && info.gres_detail_str[i])
      share.gpus = gpus_in_gres(info.gres_detail_str[i]);
    const int cpus = cpus_on_node(info, share.node.c_str());
    if (cpus > 0) share.cpus = static_cast<std::uint32_t>(cpus);
    shares.push_back(std::move(share));
  }
  return shares;
}

std::vector<std::string> hosts_in(const char* text) {
  std::vector<std::string> names;
  if (!text || !*text) return names;
  HostList hosts(text);
  while (auto host = hosts.shift()) names.push_back(std::move(*host));
  return names;
}

std::uint32_t count_or_zero(std::uint32_t value) {
  return value == NO_VAL || value == INFINITE ? 0 : value;
}

std::string output_of(slurm_job_info_t& info) {
  std::array<char, PATH_MAX> path = {};
  if (info.batch_flag) slurm_get_job_stdout(path.data(), path.size(), &info);
  return path.data();
}

SlurmJob job_of(slurm_job_info_t& info, std::time_t now) {
  SlurmJob job;
  job.id = info.job_id;
  job.array.job = info.array_job_id;
  if (info.array_job_id != 0 && info.array_task_id != NO_VAL) job.array.task = info.array_task_id;
  job.array.waiting = text_of(info.array_task_str);
  job.name = text_of(info.name);
  job.partition = text_of(info.partition);
  job.account = text_of(info.account);
  job.uid = info.user_id;
  job.state = state_of(info.job_state);
  job.completing = info.job_state & JOB_COMPLETING;
  job.configuring = info.job_state & JOB_CONFIGURING;
  if (job.state == SlurmState::pending) job.reason = reason_of(info);
  job.nodes = shares_of(info);
  // slurmctld names these alone then.
  if (job.completing) job.not_done = hosts_in(info.nodes);
  job.batch_host = text_of(info.batch_host);
  job.asked.required_nodes = hosts_in(info.req_nodes);
  job.cpus = count_or_zero(info.num_cpus);
  job.asked.num_tasks = count_or_zero(info.num_tasks);
  job.restarts = info.restart_cnt;
  job.priority = info.priority;
  job.asked.cpus_per_task =
      info.cpus_per_task == 0 || info.cpus_per_task == NO_VAL16 ? 1 : info.cpus_per_task;
  job.admin_comment = text_of(info.admin_comment);
  job.asked.tres_per_job = text_of(info.tres_per_job);
  job.asked.tres_per_node = text_of(info.tres_per_node);
  job.asked.tres = text_of(info.tres_req_str);
  job.asked.cpus_per_tres = text_of(info.cpus_per_tres);
  job.asked.min_nodes = count_or_zero(info.num_nodes);
  job.times.submit = info.submit_time;
  job.times.begin = info.eligible_time;
  job.times.start = info.start_time;
  job.times.end = info.end_time;
  job.times.preempt = info.preempt_time;
  job.qos = text_of(info.qos);
  job.reservation = text_of(info.resv_name);
  job.asked.work_dir = text_of(info.work_dir);
  job.exit_status = info.exit_code;
  job.output = output_of(info);
  job.kind.batch = info.batch_flag;
  job.kind.may_requeue = info.requeue;
  job.kind.cron = info.bitflags & CRON_JOB;
  job.kind.het = info.het_job_id != 0;
  job.times.now = now;
  return job;
}

struct FreeConf {
  void operator()(slurm_conf_t* conf) const { free_conf(conf); }
};
struct FreePartitions {
  void operator()(partition_info_msg_t* message) const { slurm_free_partition_info_msg(message); }
};
struct FreeAssociations {
  void operator()(assoc_mgr_info_msg_t* message) const { slurm_free_assoc_mgr_info_msg(message); }
};

Result<SlurmGrace> partition_grace(const SlurmJob& job, std::uint32_t mode) {
  partition_info_msg_t* raw = nullptr;
  if (slurm_load_partitions(0, &raw, SHOW_ALL) != SLURM_SUCCESS)
    return slurm_error("cannot read the partitions from slurmctld");
  std::unique_ptr<partition_info_msg_t, FreePartitions> message(raw);
  SlurmGrace grace;
  std::uint32_t own_tier = 0;
  std::uint32_t highest_tier = 0;
  for (std::uint32_t i = 0; i < message->record_count; ++i) {
    const partition_info_t& partition = message->partition_array[i];
    highest_tier = std::max<std::uint32_t>(highest_tier, partition.priority_tier);
    if (text_of(partition.name) != job.partition) continue;
    own_tier = partition.priority_tier;
    grace.preempt = count_or_zero(partition.grace_time);
    if (partition.preempt_mode != NO_VAL16) mode = partition.preempt_mode;
  }
  grace.preempts = (mode & PREEMPT_MODE_REQUEUE) && highest_tier > own_tier;
  return grace;
}

Result<SlurmGrace> qos_grace(const SlurmJob& job, std::uint32_t mode) {
  assoc_mgr_info_request_msg_t request = {};
  request.flags = ASSOC_MGR_INFO_FLAG_QOS;
  assoc_mgr_info_msg_t* raw = nullptr;
  if (slurm_load_assoc_mgr_info(&request, &raw) != SLURM_SUCCESS)
    return slurm_error("cannot read the QOS from slurmctld");
  std::unique_ptr<assoc_mgr_info_msg_t, FreeAssociations> message(raw);
  SlurmGrace grace;
  std::vector<const slurmdb_qos_rec_t*> all;
  const slurmdb_qos_rec_t* own = nullptr;
  if (!message->qos_list) return grace;
  auto* each = slurm_list_iterator_create(message->qos_list);
  while (auto* qos = static_cast<slurmdb_qos_rec_t*>(slurm_list_next(each))) {
    all.push_back(qos);
    if (text_of(qos->name) == job.qos) own = qos;
  }
  slurm_list_iterator_destroy(each);
  if (!own) return grace;
  grace.preempt = count_or_zero(own->grace_time);
  if (own->preempt_mode != 0) mode = own->preempt_mode;
  grace.preempts = (mode & PREEMPT_MODE_REQUEUE) &&
                   std::any_of(all.begin(), all.end(), [own](const slurmdb_qos_rec_t* other) {
                     return other->preempt_bitstr && slurm_bit_test(other->preempt_bitstr, own->id);
                   });
  return grace;
}

std::vector<SlurmJob> jobs_in(const JobsMessage& message) {
  std::vector<SlurmJob> jobs;
  jobs.reserve(message->record_count);
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    jobs.push_back(job_of(message->job_array[i], message->last_update));
  return jobs;
}

/// slurmctld answers for a job array with all its tasks.
Result<JobsMessage> load_job(const JobName& name) {
  job_info_msg_t* raw = nullptr;
  if (slurm_load_job(&raw, job_named(name.id), kWhole) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot read job {} from slurmctld", name.to_string()));
  return JobsMessage(raw);
}

Error no_such_job(const JobName& name) {
  return Error{ErrorKind::not_found,
               fmt::format("there is no job {}{}", name.to_string(),
                           name.task ? ", or it still waits with other tasks of its array" : "")};
}

/// In the order of the array; those that are over only when all are.
std::vector<std::string> names_of_tasks(std::vector<SlurmJob> tasks) {
  const auto over = [](const SlurmJob& task) { return task.finished(); };
  if (!std::all_of(tasks.begin(), tasks.end(), over)) std::erase_if(tasks, over);
  std::sort(tasks.begin(), tasks.end(), [](const SlurmJob& a, const SlurmJob& b) {
    return a.array.task.value_or(NO_VAL) < b.array.task.value_or(NO_VAL);
  });
  std::vector<std::string> names;
  for (const SlurmJob& task : tasks) names.push_back(task.shown_id());
  return names;
}

}  // namespace

Status SlurmClient::usable() {
  const Error unusable{
      ErrorKind::unavailable,
      "Slurm cannot be used on this machine: it finds no slurm.conf that it can read"};
  // libslurm would look at it again for a minute.
  if (const char* conf = std::getenv("SLURM_CONF"); conf && access(conf, R_OK) != 0)
    return unusable;
  const pid_t pid = fork();
  if (pid < 0)
    return Error{ErrorKind::unavailable, "cannot start a process to look for slurm.conf"};
  if (pid == 0) {
    slurm_init(nullptr);
    _exit(0);
  }
  int status = 0;
  for (int waited = 0; waitpid(pid, &status, WNOHANG) == 0; ++waited) {
    if (waited == kMostLooks) kill(pid, SIGKILL);
    usleep(kLookEvery);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Status() : Status(unusable);
}

SlurmClient::SlurmClient() {
  // libslurm's state is the process's, and 24.11 crashes in the first call after slurm_fini().
  static std::once_flag once;
  std::call_once(once, [] { slurm_init(nullptr); });
}

uid_t SlurmClient::slurm_user() const { return slurm_conf.slurm_user_id; }

std::string SlurmClient::auth_info() const { return text_of(slurm_conf.authinfo); }

std::string SlurmClient::state_save_location() const {
  return text_of(slurm_conf.state_save_location);
}

bool SlurmClient::has_plugin(const std::string& name) const {
  const std::string dirs = text_of(slurm_conf.plugindir);
  for (std::string_view dir : split(dirs, ':'))
    if (access(fmt::format("{}/{}.so", dir, name).c_str(), F_OK) == 0) return true;
  return false;
}

Result<SlurmJob> SlurmClient::job(std::uint32_t id) {
  auto message = load_job(JobName{id, std::nullopt});
  if (!message) return message.error();
  for (std::uint32_t i = 0; i < (*message)->record_count; ++i)
    if ((*message)->job_array[i].job_id == id)
      return job_of((*message)->job_array[i], (*message)->last_update);
  return no_such_job(JobName{id, std::nullopt});
}

Result<SlurmJob> SlurmClient::job(const JobName& name) {
  auto message = load_job(name);
  if (!message) return message.error();
  std::vector<SlurmJob> tasks;
  for (std::uint32_t i = 0; i < (*message)->record_count; ++i) {
    slurm_job_info_t& info = (*message)->job_array[i];
    const bool of_array = info.array_job_id == name.id;
    const bool meant = name.task ? of_array && info.array_task_id == *name.task
                                 : !of_array && info.job_id == name.id;
    if (meant) {
      SlurmJob job = job_of(info, (*message)->last_update);
      job.asked_as = name.to_string();
      return job;
    }
    if (of_array) tasks.push_back(job_of(info, (*message)->last_update));
  }
  if (name.task || tasks.empty()) return no_such_job(name);
  return names_an_array(name, names_of_tasks(std::move(tasks)));
}

Result<std::vector<SlurmJob>> SlurmClient::jobs() {
  job_info_msg_t* raw = nullptr;
  if (slurm_load_jobs(0, &raw, kWhole) != SLURM_SUCCESS)
    return slurm_error("cannot read the jobs from slurmctld");
  return jobs_in(JobsMessage(raw));
}

Result<std::vector<SlurmJob>> SlurmClient::jobs_of(uid_t user) {
  job_info_msg_t* raw = nullptr;
  if (slurm_load_job_user(&raw, user, kWhole) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot read the jobs of user {} from slurmctld", user));
  return jobs_in(JobsMessage(raw));
}

Result<std::vector<SlurmStep>> SlurmClient::steps(std::uint32_t job) {
  job_step_info_response_msg_t* raw = nullptr;
  if (load_steps(job, &raw) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot read the steps of job {} from slurmctld", job));
  std::unique_ptr<job_step_info_response_msg_t, FreeSteps> message(raw);
  std::vector<SlurmStep> steps;
  for (std::uint32_t i = 0; i < message->job_step_count; ++i) {
    const job_step_info_t& step = message->job_steps[i];
    if (step.step_id.job_id != job || step.step_id.step_id > SLURM_MAX_NORMAL_STEP_ID) continue;
    steps.push_back({step.step_id.step_id, text_of(step.name)});
  }
  return steps;
}

Result<SlurmGrace> SlurmClient::grace_of(const SlurmJob& job) {
  slurm_conf_t* raw_conf = nullptr;
  if (slurm_load_ctl_conf(0, &raw_conf) != SLURM_SUCCESS)
    return slurm_error("cannot read the configuration of slurmctld");
  std::unique_ptr<slurm_conf_t, FreeConf> conf(raw_conf);
  const std::string type = text_of(conf->preempt_type);
  Result<SlurmGrace> grace = SlurmGrace{};
  if (type.ends_with("partition_prio")) grace = partition_grace(job, conf->preempt_mode);
  if (type.ends_with("qos")) grace = qos_grace(job, conf->preempt_mode);
  if (grace) grace->kill_wait = conf->kill_wait;
  return grace;
}

Status SlurmClient::requeue_running(std::uint32_t id) {
  if (slurm_requeue(job_named(id), JOB_RUNNING) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot requeue job {}", id));
  return {};
}

Status SlurmClient::requeue(std::uint32_t id) {
  // When an answer was lost, the job may be queued already.
  if (slurm_requeue(job_named(id), 0) != SLURM_SUCCESS && errno != ESLURM_JOB_PENDING)
    return slurm_error(fmt::format("cannot requeue job {}", id));
  return {};
}

Status SlurmClient::requeue_held(std::uint32_t id) {
  if (slurm_requeue(job_named(id), JOB_RUNNING | JOB_REQUEUE_HOLD) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot requeue and hold job {}", id));
  return {};
}

namespace {

/// Keeps the texts that a request points to.
struct ChangeRequest {
  job_desc_msg_t desc;
  std::string tres;
  std::string reservation;

  ChangeRequest() { slurm_init_job_desc_msg(&desc); }
  ChangeRequest(const ChangeRequest&) = delete;
  ChangeRequest& operator=(const ChangeRequest&) = delete;

  Status set_size(const SlurmJob& job, std::uint32_t gpus) {
    const AskedSize asked{job.asked.tres_per_job, job.asked.tres_per_node, job.asked.cpus_per_task,
                          job.asked.cpus_per_tres};
    return set_job_size(job.id, asked, gpus, desc, tres);
  }
};

}  // namespace

Status SlurmClient::change(const SlurmJob& job, const SlurmJobChange& change) {
  ChangeRequest request;
  BELLOWS_JOB_DESC_ID(&request.desc) = job.id;
  if (change.gpus)
    if (Status status = request.set_size(job, *change.gpus); !status) return status;
  if (change.begin_time) request.desc.begin_time = *change.begin_time;
  if (change.held) {
    request.desc.priority = *change.held ? 0 : INFINITE;
    if (*change.held) request.desc.alloc_sid = ALLOC_SID_USER_HOLD;
  }
  if (change.reservation) {
    request.reservation = *change.reservation;
    request.desc.reservation = request.reservation.data();
  }
  if (slurm_update_job(&request.desc) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot change job {}", job.shown_id()));
  return {};
}

// slurmctld refuses to change the size of a running job, but only after it has asked the policy,
// and before it changes anything.
Status SlurmClient::may_change_size(const SlurmJob& job, std::uint32_t gpus) {
  ChangeRequest request;
  BELLOWS_JOB_DESC_ID(&request.desc) = job.id;
  if (Status status = request.set_size(job, gpus); !status) return status;
  if (slurm_update_job(&request.desc) == SLURM_SUCCESS || errno == ESLURM_JOB_NOT_PENDING)
    return {};
  return slurm_error(fmt::format("cannot change job {}", job.shown_id()));
}

bool SlurmClient::requeues_the_finished() const {
  // Nobody preempts without a PreemptMode.
  return kRemembersGrace && (slurm_conf.preempt_mode & ~PREEMPT_MODE_GANG) != PREEMPT_MODE_OFF;
}

Status SlurmClient::signal_step(std::uint32_t job, std::uint32_t step, int signal) {
  if (kill_step(job, step, static_cast<std::uint16_t>(signal)) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot signal step {}.{}", job, step));
  return {};
}

}  // namespace bellows
