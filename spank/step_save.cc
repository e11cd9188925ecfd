// SPDX-License-Identifier: Apache-2.0
#include "spank/step_save.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdint>

namespace bellows::spank {

void note_start(spank_t spank, SavedTasks& tasks) {
  pid_t pid = 0;
  if (spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS)
    tasks.cgroups = container::JobCgroup::of(pid);
}

bool note_end(spank_t spank, SavedTasks& tasks) {
  int status = 0;
  std::uint32_t all = 0;
  if (spank_get_item(spank, S_TASK_EXIT_STATUS, &status) == ESPANK_SUCCESS && WIFSIGNALED(status) &&
      (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM))
    tasks.killed_by = WTERMSIG(status);
  return spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &all) == ESPANK_SUCCESS &&
         ++tasks.ended == all;
}

Result<SaveRequest> step_save(spank_t spank, const Settings& settings, const SavedTasks& tasks) {
  if (tasks.killed_by != 0)
    return Error{ErrorKind::unavailable,
                 fmt::format("the container was not saved, since signal {} ended a task, as when "
                             "the step is cancelled or is out of time or memory",
                             tasks.killed_by)};
  if (!tasks.cgroups)
    return Error{ErrorKind::unavailable,
                 "the container was not saved, since the step's cgroups "
                 "are not known: " +
                     tasks.cgroups.error().text};
  SaveRequest request;
  std::uint32_t step = 0;
  std::uint32_t node = 0;
  std::uint16_t processors = 1;
  gid_t* groups = nullptr;
  int count = 0;
  request.run_dir = settings.run_dir;
  spank_get_item(spank, S_JOB_ID, &request.job);
  spank_get_item(spank, S_JOB_STEPID, &step);
  spank_get_item(spank, S_JOB_NODEID, &node);
  spank_get_item(spank, S_JOB_NCPUS, &processors);
  if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &count) == ESPANK_SUCCESS)
    request.groups.assign(groups, groups + count);
  request.file.program = settings.site.mksquashfs;
  request.file.tag = fmt::format("{}.{}.{}", request.job, step, node);
  request.file.processors = processors;
  request.cgroups = &*tasks.cgroups;
  request.limit = std::chrono::seconds(settings.site.save_seconds);
  return request;
}

}  // namespace bellows::spank
