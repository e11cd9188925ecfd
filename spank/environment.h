// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract.h"
#include "common/result.h"

namespace bellows::spank {

/// One change of an environment: set to a value, or unset without one. A value.
struct Change {
  std::string name;
  std::optional<std::string> value;

  bool operator==(const Change&) const = default;
};

/// Keys under which job_prolog adds to the stored contract what slurmctld told it of the job,
/// since a step's own environment can be forged.
inline constexpr const char* kUserKey = "user";
inline constexpr const char* kAccountKey = "account";

/// Adds one unless the contract has that key already or the value is empty.
void add_extra(Contract& contract, const char* key, std::string value);

/// The line as admission wrote it, without those two: what AdminComment and the tasks show.
std::string admitted_line(Contract contract);

/// Every BELLOWS_ variable that describes the job: set from the contract, or unset. Whatever the
/// user's environment said of them is gone. invalid: the checkpoint directory's pattern is wrong;
/// `changes` are still complete, without that directory, so that a caller can continue.
struct JobVariables {
  std::vector<Change> changes;
  Status status;
};
JobVariables job_variables(const Contract& contract, std::uint32_t job_id,
                           const std::string& user_dir, const std::string& model_socket = "");

/// The same variables for a job without a contract: all unset.
std::vector<Change> no_job_variables();

/// What a job holds now, as slurmctld says. A value.
struct HeldSize {
  std::uint32_t gpus = 0;
  std::uint32_t nodes = 0;

  bool operator==(const HeldSize&) const = default;
};

/// Reads the GPUs from a TRES list (`cpu=4,gres/gpu=2,gres/gpu:a100=2`) or, when it names none,
/// from a GRES list (`gpu:a100:2`, `gpu:2`). 0: there are none.
std::uint32_t count_gpus(std::string_view tres, std::string_view gres);

/// Marks the size for which an environment was corrected, "GPUS/NODES", so that srun can tell a
/// stale environment from one that the script changed on purpose.
inline constexpr const char* kSizeVariable = "BELLOWS_SIZE";
/// In the batch script: how often the job had been requeued when this run of it began.
inline constexpr const char* kRunVariable = "BELLOWS_RUN";
std::string size_marker(HeldSize held);

/// What to change in a job's environment so that a plain srun starts one task for each GPU the job
/// holds. Variables that still fit stay. A size without GPUs or nodes changes nothing. A job that
/// is not `elastic` keeps what its user said about tasks: its size is never stale.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
std::vector<Change> size_corrections(HeldSize held, bool elastic, const Lookup& lookup);

/// Whether admission promised more than one size.
bool is_elastic(const Contract& contract);

}  // namespace bellows::spank
