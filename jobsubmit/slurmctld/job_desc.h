// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jobsubmit/admission/admission.h"
#include "slurm/compat.h"

namespace bellows {

/// Translates between Slurm's job_desc_msg_t and admission's own types. Every text in a
/// job_desc_msg_t lives in Slurm's heap: only these functions touch it. slurmctld's locks are held
/// by the caller; nothing here asks slurmctld anything that would take them again.

/// Removes what only slurmctld may set from spank_job_env: every BELLOWS_* entry, and options that
/// stand there twice with the same value. True when something was removed.
bool strip_forged(job_desc_msg_t& desc);

/// Takes out of a submission or an update the value that slurmctld divides by: any user could end
/// a slurmctld of 22.05 with it.
void drop_zero_divisor(job_desc_msg_t& desc);

/// Takes out of a submission the flag that says that Slurm chose the partition, which no command
/// sends: with it Slurm would move the job from the partition that it names to a reservation's.
void drop_partition_flag(job_desc_msg_t& desc);

/// The job as submitted, without its account; see settled_account.
Request read_request(const job_desc_msg_t& desc);

/// Account names are lower case in Slurm, but only after job_submit has run; and a job without one
/// gets its user's default account only then. Does both now.
/// Returns the account, or "" when there is none (no accounting, or no default).
std::string settled_account(const job_desc_msg_t& desc);
/// Writes it into the job.
void settle_account(job_desc_msg_t& desc);

/// The user's name as slurmctld's cache of accounting has it, else the name service; or "".
std::string owner_name(std::uint32_t uid);

/// The accounts above one, nearest first; none where slurmctld keeps no associations.
std::vector<std::string> parents_of(const std::string& account);

/// Whether a user coordinates an account, and with it the jobs of others; true where it can't be
/// asked.
bool may_coordinate(std::uint32_t uid, const std::string& account);

/// Where Slurm puts a job that names no partition, or "".
std::string default_partition();

/// Writes an accepted decision into the job: sizes, requeue, contract in spank_job_env and
/// admin_comment, environment.
void apply_decision(job_desc_msg_t& desc, const Decision& decision);

/// For the nodes of a job that stays otherwise as it is.
void add_plain_contract(job_desc_msg_t& desc, const Contract& contract);

/// Has AdminComment show the job's contract, if it has one, before what others keep there.
void show_contract(job_desc_msg_t& desc, std::string_view line);

/// True when the update touches anything that a contract fixes, or the partition; only then is the
/// job looked at.
bool touches_contract(const job_desc_msg_t& update);

struct JobDescDeleter {
  void operator()(job_desc_msg_t* desc) const {
    if (!slurm_free_job_desc_msg) return;
    // A copy of a job has its environment in one block, with no null pointer at the end of the
    // list; slurm_free_job_desc_msg would free each entry by itself and abort slurmctld.
    if (desc->environment) slurm_xfree(reinterpret_cast<void**>(&desc->environment[0]));
    slurm_xfree(reinterpret_cast<void**>(&desc->environment));
    desc->env_size = 0;
    slurm_free_job_desc_msg(desc);
  }
};
using JobDescPtr = std::unique_ptr<job_desc_msg_t, JobDescDeleter>;

/// The contract's line in the job's spank_job_env; nothing when Bellows never admitted it.
std::optional<std::string> contract_line(const job_desc_msg_t& job);
/// The same of a plain job, by which its steps may have containers.
std::optional<std::string> plain_contract_line(const job_desc_msg_t& job);
/// Whether its owner has never named a partition.
bool has_partition_of_slurm(const job_desc_msg_t& job);
Admitted read_admitted(const job_desc_msg_t& job, Contract contract);
Update read_update(const job_desc_msg_t& update);
void apply_changes(job_desc_msg_t& desc, const Changes& changes);

/// Sets a text of Slurm's heap; an empty one clears the field.
void set_text(char*& field, const std::string& text);

}  // namespace bellows
