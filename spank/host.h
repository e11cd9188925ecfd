// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

// spank.h declares the callbacks outside its own extern "C", and this tree hides symbols by
// default.
#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
}
#pragma GCC visibility pop

#include <exception>

#include "spank/options.h"

namespace bellows::spank {

/// Runs one callback. An exception that got out would abort sbatch, slurmd or slurmstepd, and a
/// failure of ours must never stop a job, so this logs and returns 0 in every case.
template <typename Callback>
int guarded(const char* name, Callback callback) noexcept {
  try {
    callback();
  } catch (const std::exception& e) {
    slurm_error("bellows: %s: %s", name, e.what());
  } catch (...) {
    slurm_error("bellows: %s: unknown exception", name);
  }
  return 0;
}

}  // namespace bellows::spank
