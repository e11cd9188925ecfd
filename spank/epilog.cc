// SPDX-License-Identifier: Apache-2.0
#include "spank/epilog.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "spank/host.h"

namespace bellows::spank {
namespace {

/// The C library calls handlers of fork() without a context of ours.
struct Epilogs {
  pid_t stepd = 0;
  std::atomic<std::uint32_t> tasks{0};
  std::function<Status()> enter;
};
Epilogs epilogs;  // NOLINT: see above

/// Of the thread that forks, and then of its child's only one.
thread_local bool starts_epilog = false;

/// The other threads of slurmstepd start no epilogs. Its tasks, which were forked before, have a
/// copy of all this in which there is none to come.
void before_fork() noexcept {
  starts_epilog = epilogs.tasks > 0 && ::gettid() == epilogs.stepd && ::getpid() == epilogs.stepd;
}

void in_child() noexcept {
  if (!starts_epilog) return;
  try {
    const Status status = epilogs.enter();
    if (status.ok()) return;
    slurm_error("bellows: an epilog is refused, since it can't be in its job's view: %s",
                status.error().text.c_str());
  } catch (...) {
  }
  ::_exit(1);
}

}  // namespace

void take_epilogs(std::uint32_t tasks, std::function<Status()> enter) {
  if (epilogs.stepd != 0) return;
  epilogs.stepd = ::getpid();
  epilogs.enter = std::move(enter);
  // The handlers go with the plugin when that is unloaded.
  if (::pthread_atfork(before_fork, nullptr, in_child) != 0)
    slurm_error("bellows: epilogs of the step will run on the host, outside of its job's view");
  epilogs.tasks = tasks;
}

void epilogs_done() {
  if (epilogs.tasks > 0) --epilogs.tasks;
}

}  // namespace bellows::spank
