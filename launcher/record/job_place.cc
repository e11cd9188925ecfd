// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/job_place.h"

#include <fmt/core.h>
#include <pwd.h>

#include <algorithm>
#include <array>

#include "launcher/record/job_view.h"

namespace bellows {
namespace {

/// The job that a record is of, as far as its directory depends on it.
SlurmJob job_of(const SlurmRun& run) {
  SlurmJob job;
  job.id = run.job;
  job.account = run.account;
  job.admin_comment = run.admin_comment;
  job.asked.work_dir = run.work_dir;
  std::array<char, 16384> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (getpwnam_r(run.user.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 && found)
    job.uid = found->pw_uid;
  return job;
}

std::string dir_of(const SlurmJob& job) {
  auto contract = contract_of(job);
  if (!contract) return "";
  auto dir = checkpoint_dir_of(job, *contract);
  return dir.ok() ? *dir : "";
}

/// A job array that slurmctld has forgotten: a bare id does not say to which task the records
/// belong.
std::vector<std::string> tasks_in(const std::vector<SlurmRun>& runs) {
  std::vector<std::string> tasks;
  for (const SlurmRun& run : runs)
    if (!run.array_task.empty() &&
        std::find(tasks.begin(), tasks.end(), run.array_task) == tasks.end())
      tasks.push_back(run.array_task);
  return tasks;
}

void ask_accounting(const JobName& name, JobPlace& place) {
  auto runs = load_records(name);
  if (!runs)
    place.missing.push_back(runs.error().text);
  else
    place.runs = std::move(*runs);
}

}  // namespace

Result<JobPlace> find_job(Slurm* slurm, const JobName& name, const std::string& checkpoint_dir,
                          Ask accounting) {
  JobPlace place;
  place.checkpoint_dir = checkpoint_dir;
  if (!name.task) place.id = name.id;
  std::optional<Error> unknown;
  if (slurm) {
    auto job = slurm->job(name);
    if (job.ok())
      place.job = std::move(*job);
    else
      unknown = job.error();
    if (unknown && unknown->kind == ErrorKind::invalid) return *unknown;
    place.unreachable = unknown && unknown->kind == ErrorKind::unavailable;
    if (place.unreachable) place.missing.push_back(unknown->text);
    if (accounting == Ask::always || (!place.job && checkpoint_dir.empty()))
      ask_accounting(name, place);
  }
  if (const auto tasks = tasks_in(place.runs); !name.task && !place.job && !tasks.empty())
    return names_an_array(name, tasks);
  if (!slurm) place.missing.push_back("Slurm's records: it finds no slurm.conf that it can read");
  if (!place.runs.empty()) place.id = place.runs.back().job;
  if (place.job) place.id = place.job->id;
  if (place.checkpoint_dir.empty() && place.job) place.checkpoint_dir = dir_of(*place.job);
  if (place.checkpoint_dir.empty() && !place.runs.empty())
    place.checkpoint_dir = dir_of(job_of(place.runs.back()));
  if (place.id != 0 && (place.job || !place.runs.empty() || !checkpoint_dir.empty())) return place;
  std::string text = unknown ? unknown->text : "Slurm could not be asked";
  if (!place.missing.empty() && !place.unreachable) text += "; " + place.missing.back();
  return Error{place.unreachable || !unknown ? ErrorKind::unavailable : ErrorKind::not_found,
               text + "; for a job that is over, name its --checkpoint-dir"};
}

}  // namespace bellows
