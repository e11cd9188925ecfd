// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "jobsubmit/admission/admission.h"

/// Decisions written as one line each, so that the tables of cases read like a terminal: a job as
/// the user submits it, and what becomes of it.
namespace bellows::admission_test {

/// One decision. `job` is what the user says, see parse_job; `told` what told() makes of the
/// decision.
struct Case {
  const char* job;
  const char* told;
};

/// One change of a job. `contract` without "bellows/1", and `job` as it stands in slurmctld.
struct UpdateCase {
  const char* contract;
  const char* job;
  const char* change;
  const char* told;
};

/// The policy of all tables; each tenant in it is there for one rule.
const Policy& policy();

/// Options of sbatch, and these words: `salloc` (not a batch job), `het`, `twice` (an option with
/// two values), `user=NAME`, `groups=A,B`, `parents=A,B`, `nobody-known`, `default=PARTITION`,
/// `job=TEXT`, `node=TEXT`, `socket=TEXT` and `task=TEXT` (tres_per_job and so on as they are),
/// `cpus=N` (of the whole job), `anynodes` (no upper limit). The account is vision unless -A says
/// otherwise.
Request parse_job(std::string_view text);

/// The same words for the job as it stands, and `put=PARTITION`, where Slurm has put it. A change
/// has -A only where it changes the account, and more words: `cpus/gpu=TEXT`, `mem/gpu=TEXT`,
/// `morecpus` (it says something of CPUs or of a node's memory).
Admitted parse_admitted(const UpdateCase& one);
Update parse_update(const UpdateCase& one);

/// `policy: SENTENCE` (or account, gpus, option, unavailable) for a refusal. Otherwise the contract
/// and, after a bar, all that changes in the job; and a note at the end.
std::string told(const Decision& decision);
std::string told(const UpdateDecision& decision);

/// Decides each, and reports those that come out otherwise.
void check(const Case* cases, std::size_t count);
void check(const UpdateCase* cases, std::size_t count, const Policy* policy);

}  // namespace bellows::admission_test
