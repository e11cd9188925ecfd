// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/lost_halt.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/store/store_place.h"
#include "launcher/record/history.h"
#include "launcher/record/job_view.h"

namespace bellows {
namespace {

Status append(const SlurmJob& job, const std::string& event, const std::string& cause,
              std::uint32_t gpus, EventNote note = EventNote::none) {
  auto contract = contract_of(job);
  if (!contract) return {};
  auto dir = checkpoint_dir_of(job, *contract);
  if (!dir) return {};
  const Access access =
      *contract ? access_named((*contract)->extra_value(Contract::kAccessKey)) : Access::owner;
  auto log = EventLog::open(*dir, access, job.uid);
  if (!log) return log.error().kind == ErrorKind::not_found ? Status() : Status(log.error());
  JobEvent line{wall_clock(), job.id, job.restarts, 0, event, cause, gpus, {}};
  line.note = note;
  return log->append(line);
}

}  // namespace

bool halt_was_lost(const std::vector<JobEvent>& events, std::uint32_t restarts) {
  const JobEvent* asked = nullptr;
  for (const JobEvent& event : events) {
    // Run 0 of a job must not carry out the halt of an older job with the same number.
    const bool begins_anew =
        is_submission(event) && (event.restart == 0 || event.note == EventNote::resumed);
    if (event.note == EventNote::halting)
      asked = &event;
    else if (closes_run(event) || begins_anew || event.note == EventNote::ranks_go_on ||
             event.event == "DEPLOYING")
      asked = nullptr;
  }
  // One that took effect looks the same when the file system had no room for more. Slurm counts
  // each requeue, so that of a held job too, and forgets a hold with its release: only the count
  // can end this. A run that slurmctld forgot comes back with its old one.
  return asked && asked->restart <= restarts && restarts <= asked->restart + 1;
}

Status record_halt_of_waiting(const SlurmJob& job) {
  return append(job, "HALTED", "halted by " + user_name(getuid()), job.requested_gpus(),
                EventNote::halted_in_queue);
}

Status record_refused_run(const SlurmJob& job, const std::string& cause) {
  auto contract = contract_of(job);
  auto dir = contract ? checkpoint_dir_of(job, *contract) : Result<std::string>(contract.error());
  if (!dir) return dir.error();
  // Only its own directory, where nobody else could have made those above it, or may replace it.
  const bool checked = *contract && !(*contract)->checkpoint_dir.empty();
  const auto place = [&](const std::string& path) {
    return checked ? StorePlace::below(fixed_part((*contract)->checkpoint_dir), path)
                   : StorePlace(path);
  };
  const std::string above = std::filesystem::path(*dir).parent_path();
  if (Status status = check_place(place(above)); !status) return status;
  (void)mkdir(dir->c_str(), 0700);
  if (Status status = check_place(place(*dir)); !status) return status;
  return append(job, "FAILED", cause, job.gpus());
}

Status record_resume(const SlurmJob& job, std::uint32_t gpus) {
  return append(job, "QUEUED", "resumed by " + user_name(getuid()), gpus, EventNote::resumed);
}

}  // namespace bellows
