// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "jobsubmit/admission/gpu_request.h"
#include "jobsubmit/admission/trace.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {

/// Why something was refused, as far as a caller that can show only an error number needs to know.
enum class Refusal {
  policy,       ///< a limit or a right of the tenant
  account,      ///< the account has no tenant, or another one
  gpus,         ///< the GPUs are asked for in a way that can't be kept
  option,       ///< an option's text is wrong or contradicts another
  unavailable,  ///< there is no policy to decide by
};

/// Where a job comes from and where it goes: what its tenant is found by.
struct Origin {
  std::string account;  ///< lower case; empty when there is none, not even a default one
  std::string user;     ///< only if the policy names it
  std::vector<std::string> groups;   ///< those of the user that the policy names
  bool person_known = true;          ///< false: user and groups are still being looked up
  std::vector<std::string> parents;  ///< of the account, nearest first
  std::string partition;             ///< as named, also a list with commas; empty: none named
  std::string default_partition;     ///< where Slurm puts such a job; empty: not known
  bool reserved = false;             ///< it names a reservation, so Slurm may put it elsewhere
};

/// Minutes of a job without a limit, as Slurm writes them.
constexpr std::uint32_t kUnlimited = 0xffffffff;

/// A submitted job, as far as admission looks at it. No Slurm types.
struct Request : Origin {
  std::optional<std::string> framework;    ///< value of --framework
  std::optional<std::string> gpus_range;   ///< value of --gpus-range
  std::optional<std::string> batch_range;  ///< value of --batch-range
  std::optional<std::string> job_class;    ///< value of --job-class
  std::optional<std::string> container;    ///< all --container options, see container::spec_text
  std::optional<std::string> models;       ///< value of --model
  std::optional<std::string> model_on;     ///< value of --model-on
  std::optional<std::string> pool;         ///< value of --pool
  bool contradictory = false;              ///< an option came twice with different values
  bool batch = false;                      ///< of sbatch: the only kind that can be resized
  bool heterogeneous = false;
  bool array = false;        ///< --array
  bool requeue_off = false;  ///< --no-requeue
  bool whole_nodes = false;  ///< --exclusive or --core-spec: Slurm adds all GPUs of the nodes
  bool cpus_said = false;    ///< the user said how many CPUs, in whatever way
  bool memory_said = false;
  bool signal_said = false;
  bool placement_said = false;
  std::optional<std::string> qos;
  std::optional<std::uint32_t> time_limit;  ///< minutes, or kUnlimited
  Sizes sizes;

  bool wants_bellows() const {
    return framework || gpus_range || batch_range || job_class || container || models || model_on ||
           pool || contradictory;
  }
  /// The first option besides --container ones, whose services need the host; null: there is none.
  const char* service() const;
  /// Whether it keeps the GPUs it asks for, also when these are none.
  bool keeps_gpus() const {
    return (container || models || model_on || pool) && !framework && !gpus_range && !batch_range &&
           !job_class;
  }
};

/// What to change in the job. Nothing: leave as it is. An empty text clears the field.
struct Changes {
  std::optional<std::string> per_job;
  std::optional<std::string> per_node;
  std::optional<std::string> per_task;
  std::optional<std::uint32_t> tasks;
  std::optional<std::uint32_t> min_nodes;
  std::optional<std::uint32_t> max_nodes;
  std::optional<std::uint32_t> min_cpus;  ///< raise to at least this
  std::optional<std::uint32_t> site_factor;
  std::optional<std::string> cpus_per_gpu;    ///< as Slurm spells it: "gres:gpu:4"
  std::optional<std::string> memory_per_gpu;  ///< the same, in MiB
  std::optional<std::uint32_t> time_limit;    ///< minutes
  std::optional<std::uint16_t> signal_lead;   ///< seconds: USR1 to the batch script
  std::optional<std::string> partition;
  std::optional<std::string> qos;
  PlacementStrategy placement = PlacementStrategy::any;
};

struct Decision {
  std::optional<Refusal> refused;
  std::string message;  ///< one sentence: the refusal, or a note for the user, or empty
  Contract contract;    ///< when not refused
  Changes changes;
  bool requeue = false;                    ///< set requeue, and append to the output unless told
  std::map<std::string, std::string> env;  ///< for the job's environment where the user set nothing
};

/// Holds a job that asks for Bellows against the policy. Pure: no I/O, no clock, any thread.
/// `policy` is null when none could be read; `why_not` then says why. Only for requests with
/// wants_bellows(), and a policy that is enabled. `trace`, unless null, gets the rules that had a
/// say.
Decision decide(const Policy* policy, std::string_view why_not, const Request& request,
                Trace* trace = nullptr);

/// Why a job that uses nothing of Bellows may not go to the partitions of `origin`: a sentence for
/// the user. Nothing: it passes.
std::optional<std::string> refuse_plain(const Policy& policy, const Origin& origin);

/// By which the steps of such a job may have containers. Nothing: its tenant may bring no images.
std::optional<Contract> plain_contract(const Policy& policy, const Origin& origin);

/// A job that has a contract, as slurmctld knows it.
struct Admitted {
  Contract contract;
  Sizes sizes;
  bool has_run = false;  ///< requeued at least once: its update is a resize
  Origin origin;
  std::optional<std::uint32_t> time_limit;  ///< minutes, or kUnlimited
  std::string cpus_per_gpu;
  std::string memory_per_gpu;
  bool partition_by_slurm = false;  ///< its owner has never named one
};

/// A user's change to it. Nothing in a field: unchanged. An empty text: clear.
struct Update {
  Sizes sizes;
  std::optional<std::string> account;  ///< lower case
  std::vector<std::string> parents;    ///< of that account
  bool requeue_off = false;
  std::optional<std::string> partition;
  std::optional<std::string> reservation;
  std::optional<std::string> qos;
  std::optional<std::uint32_t> time_limit;  ///< minutes, or kUnlimited
  std::optional<std::string> cpus_per_gpu;
  std::optional<std::string> memory_per_gpu;
  bool cpus_said = false;  ///< CPUs in whatever way, or the memory of a node
};

struct UpdateDecision {
  std::optional<Refusal> refused;
  std::string message;
  Changes changes;
};

/// Holds an update against the job's contract: the size moves within the range only, the account
/// and the partition within its tenant. `policy` may be null; then a change that needs one is
/// refused.
UpdateDecision decide_update(const Policy* policy, const Admitted& job, const Update& update);

}  // namespace bellows
