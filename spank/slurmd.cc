// SPDX-License-Identifier: Apache-2.0
#include "spank/slurmd.h"

#include <cstdlib>
#include <optional>
#include <string>

#include "common/contract.h"
#include "spank/controller.h"
#include "spank/environment.h"
#include "spank/isolation.h"
#include "spank/job_store.h"

namespace bellows::spank {
namespace {

constexpr std::int64_t kOldSeconds = 7 * 24 * 3600;
constexpr std::size_t kMostCollected = 4;
/// A job that runs longer costs slurmctld one question for each such time in which it starts steps.
constexpr std::int64_t kNoteSeconds = 3600;
constexpr std::size_t kMostNotes = 100;

struct PrologJob {
  std::uint32_t id = 0;
  uid_t uid = 0;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// What the prolog's environment says, with the user and account added that slurmctld vouches for.
Result<std::optional<Contract>> sent_contract() {
  std::string line = variable("SPANK_BELLOWS_CONTRACT");
  if (line.empty()) line = variable("SPANK_BELLOWS_PLAIN_CONTRACT");
  if (line.empty()) return std::optional<Contract>();
  auto contract = Contract::parse(line);
  if (!contract) return contract.error();
  // Slurm's own variables, which the options of a job can't reach: those get a SPANK_ in front.
  add_extra(*contract, kUserKey, variable("SLURM_JOB_USER"));
  add_extra(*contract, kAccountKey, variable("SLURM_JOB_ACCOUNT"));
  return std::optional<Contract>(*std::move(contract));
}

/// What is kept already was written for this job, or for one of the same number whose slurmctld
/// has lost its state since. Only slurmctld can tell.
bool may_replace(const PrologJob& job, const std::optional<Contract>& sent) {
  init_slurm();
  const auto view = read_promise(job.id);
  if (!view) return false;
  const auto line = Contract::line_in(view->admin_comment);
  if (line.empty()) return !sent || sent->is_plain();
  const auto promised = Contract::parse(line);
  if (!promised) return false;
  return sent && admitted_line(*promised) == admitted_line(*sent);
}

void collect_old(const JobStore& store) {
  const auto old = store.older_than(kOldSeconds, kMostCollected);
  if (!old.empty()) init_slurm();
  for (std::uint32_t id : old) {
    const auto view = read_job(id);
    if (view) {
      store.touch(id);
      continue;
    }
    if (view.error().kind != ErrorKind::not_found) return;
    if (auto status = store.remove(id); !status.ok()) {
      slurm_error("bellows: %s", status.error().text.c_str());
      // What can't be removed must not keep its place before all that can.
      store.touch(id);
    }
  }
}

bool are_same(const std::optional<Contract>& kept, const std::optional<Contract>& sent) {
  if (!kept || !sent) return !kept && !sent;
  return admitted_line(*kept) == admitted_line(*sent);
}

/// Where nothing can be kept, the job's steps ask slurmctld.
void keep(const JobStore& store, const PrologJob& job, const std::optional<Contract>& sent) {
  const auto loaded = store.load(job.id, job.uid);
  const bool kept = loaded && loaded->has_value();
  const bool same = loaded && are_same(*loaded, sent);
  if (kept && !same && !may_replace(job, sent)) {
    slurm_error(
        "bellows: job %u: the contract sent with the prolog is not the one kept here; the kept one "
        "remains",
        job.id);
    return;
  }
  // The contract is unreadable, or belongs to another user or to an earlier job with this number:
  // ignore all of it.
  if (!same) {
    if (auto status = store.remove(job.id); !status.ok())
      slurm_error("bellows: job %u: %s", job.id, status.error().text.c_str());
  }
  const Status status = sent ? store.store(job.id, job.uid, *sent) : store.store_none(job.id);
  if (!status.ok())
    slurm_error("bellows: job %u: the contract can't be kept: %s", job.id,
                status.error().text.c_str());
}

}  // namespace

void job_prolog(spank_t spank, const Settings& settings) {
  // Removes the views of jobs whose slurmstepds on this node were all killed.
  collect_views(settings);
  PrologJob job;
  if (spank_get_item(spank, S_JOB_ID, &job.id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &job.uid) != ESPANK_SUCCESS) {
    slurm_error("bellows: the prolog does not say for whose job it runs");
    return;
  }
  const JobStore store(settings.run_dir);
  if (const auto sent = sent_contract()) {
    keep(store, job, *sent);
  } else {
    slurm_error("bellows: job %u: %s", job.id, sent.error().text.c_str());
    (void)store.remove(job.id);
  }
  collect_old(store);
  store.forget_none(kNoteSeconds, kMostNotes);
}

}  // namespace bellows::spank
