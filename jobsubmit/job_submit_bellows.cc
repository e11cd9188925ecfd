// SPDX-License-Identifier: Apache-2.0
/// Entry points of job_submit/bellows, which slurmctld loads. Only routes: see plugin.h.

#include <cerrno>
#include <exception>
#include <memory>

#include "jobsubmit/slurmctld/plugin.h"

#define BELLOWS_EXPORT extern "C" __attribute__((visibility("default")))

BELLOWS_EXPORT const char plugin_name[] = "Bellows admission";
BELLOWS_EXPORT const char plugin_type[] = "job_submit/bellows";
BELLOWS_EXPORT const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;

namespace {

/// The one place of state: Slurm's plugin interface passes none.
std::unique_ptr<bellows::AdmissionPlugin> plugin;

/// slurmctld would abort on an exception that leaves a callback.
template <typename Call>
int guarded(const char* what, const Call& call) noexcept {
  try {
    return call();
  } catch (const std::exception& e) {
    slurm_error("job_submit/bellows: %s: %s", what, e.what());
  } catch (...) {
    slurm_error("job_submit/bellows: %s: unknown exception", what);
  }
  return SLURM_ERROR;
}

}  // namespace

BELLOWS_EXPORT int init() noexcept {
  return guarded("init", [] {
    plugin = std::make_unique<bellows::AdmissionPlugin>();
    return SLURM_SUCCESS;
  });
}

BELLOWS_EXPORT int fini() noexcept {
  return guarded("fini", [] {
    plugin.reset();
    return SLURM_SUCCESS;
  });
}

BELLOWS_EXPORT int job_submit(job_desc_msg_t* job_desc, std::uint32_t, char** err_msg) noexcept {
  return guarded("job_submit", [&] { return plugin->submit(*job_desc, err_msg); });
}

BELLOWS_EXPORT int job_modify(BELLOWS_JOB_MODIFY_ARGUMENTS) noexcept {
  const int code = guarded("job_modify", [&] {
    return plugin->modify(*job_desc, job, submit_uid, BELLOWS_JOB_MODIFY_ERR_MSG);
  });
  // Without accounting slurmctld takes whatever errno says next, such as EAGAIN of a socket, for
  // why an account or partition is refused.
  errno = 0;
  return code;
}
