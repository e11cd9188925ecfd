// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

namespace bellows {

/// Slurm's job states without their flags.
enum class SlurmState {
  pending,
  running,
  suspended,
  completed,
  cancelled,
  failed,
  timeout,
  node_fail,
  preempted,
  boot_fail,
  deadline,
  out_of_memory,
  unknown,
};

/// Slurm's own word for a state ("RUNNING").
const char* slurm_state_name(SlurmState state);

/// What a job holds on one node.
struct NodeShare {
  std::string node;
  std::uint32_t gpus = 0;
  std::uint32_t cpus = 0;

  bool operator==(const NodeShare&) const = default;
};

/// Where a job stands in a job array.
struct SlurmArrayPlace {
  std::uint32_t job = 0;  ///< 0: it is not a task of a job array
  std::optional<std::uint32_t> task{};
  std::string waiting{};  ///< tasks that no record stands for yet: "3-10%2"
};

/// What was asked for with a job. Strings are empty and numbers 0 where nothing was.
struct SlurmRequest {
  std::vector<std::string> required_nodes{};  ///< of --nodelist
  std::uint32_t num_tasks = 0;
  std::uint16_t cpus_per_task = 1;
  std::string tres_per_job{};   ///< e.g. "gres:gpu:4"
  std::string tres_per_node{};  ///< e.g. "gres:gpu:2"
  std::string tres{};           ///< in all, as Slurm works it out: "cpu=4,node=1,gres/gpu=4"
  std::string cpus_per_tres{};  ///< CPUs for each GPU, e.g. "gres:gpu:2"
  std::uint32_t min_nodes = 0;
  std::string work_dir{};
};

/// By slurmctld's clock; 0: there is none.
struct SlurmTimes {
  std::time_t submit = 0;  ///< a requeue sets it again
  std::time_t begin = 0;   ///< the job may not start before
  std::time_t start = 0;   ///< pending: when Slurm plans to start it; completing too: never past
  std::time_t end = 0;
  std::time_t preempt = 0;  ///< when its preemption began; 0: none is under way
  std::time_t now = 0;      ///< when slurmctld answered
};

/// What Slurm can do with a job.
struct SlurmJobKind {
  bool batch = false;
  bool may_requeue = false;
  bool cron = false;  ///< made by scrontab: Slurm lets nobody change it
  bool het = false;   ///< component of a heterogeneous job
};

/// One job as slurmctld described it at `times.now`. A value; holds no Slurm memory.
struct SlurmJob {
  std::uint32_t id = 0;
  std::string asked_as;  ///< how a user named it; empty: nobody did
  std::string name;
  std::string partition;
  std::string account;
  std::string qos;
  uid_t uid = 0;
  SlurmJobKind kind;
  SlurmArrayPlace array;
  SlurmRequest asked;
  SlurmTimes times;
  SlurmState state = SlurmState::unknown;
  bool completing = false;            ///< Slurm still cleans up the last run
  bool configuring = false;           ///< nodes are booting or their Prolog runs
  std::string reason;                 ///< why it waits, in Slurm's word; empty when it runs
  std::vector<NodeShare> nodes;       ///< in the order of ranks; empty while pending
  std::vector<std::string> not_done;  ///< nodes that the last run still has, while it completes
  std::string batch_host;
  std::uint32_t cpus = 0;
  std::uint32_t restarts = 0;
  std::uint32_t priority = 0;  ///< 0: held
  std::string admin_comment;
  std::string reservation;        ///< that it is to run in; empty: none
  std::string output;             ///< where the batch script's output goes
  std::uint32_t exit_status = 0;  ///< of the batch script, as wait(2) gives it

  /// GPUs held now (0 while pending).
  std::uint32_t gpus() const;
  /// GPUs asked for: what a pending job will hold.
  std::uint32_t requested_gpus() const;
  /// As the user named it, else "123", "123_4" for a task of a job array, or "123_[5-10]" for those
  /// that wait together.
  std::string shown_id() const;
  /// Over for good: no state follows.
  bool finished() const;
};

/// Whether `now`, which is what Slurm says, is a later run than `run` of the same job. A slurmctld
/// that was killed may count both the same.
inline bool is_later_run(const SlurmJob& now, const SlurmJob& run) {
  return now.state != SlurmState::pending &&
         (now.restarts > run.restarts || now.times.start > run.times.start);
}

/// New values of a job's fields; what is not set stays.
struct SlurmJobChange {
  std::optional<std::uint32_t> gpus;  ///< also sets tasks, CPUs and nodes to match
  std::optional<std::time_t> begin_time;
  std::optional<bool> held = std::nullopt;                ///< true: by its user; false: released
  std::optional<std::string> reservation = std::nullopt;  ///< empty: none
};

/// How much warning Slurm gives before it ends a job, besides the time limit.
struct SlurmGrace {
  bool preempts = false;      ///< a job of this partition and QOS may be preempted and come back
  std::uint32_t preempt = 0;  ///< GraceTime in seconds
  /// KillWait: seconds from SIGTERM to SIGKILL, which a job that is requeued at once still has.
  std::uint32_t kill_wait = 0;
  bool operator==(const SlurmGrace&) const = default;
};

struct SlurmStep {
  std::uint32_t id = 0;
  std::string name;
};

}  // namespace bellows
