// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/policy_query.h"

#include <fmt/core.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>

#include "common/fd.h"

// Exported by libslurm, and named in slurm.h, but not declared there.
extern "C" void slurm_free_will_run_response_msg(will_run_response_msg_t* message);

namespace bellows {
namespace {

/// libslurm 22.05 does not return the message of a refused will-run but prints it, so standard
/// error is redirected to memory during the call.
class CapturedStderr {
 public:
  CapturedStderr() : memory_(memfd_create("stderr", MFD_CLOEXEC)), saved_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    if (memory_ && saved_) dup2(memory_.get(), STDERR_FILENO);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;
  ~CapturedStderr() { restore(); }

  std::string finish() {
    restore();
    std::array<char, 8 * kMostAnswer> buffer;
    const ssize_t got = memory_ ? pread(memory_.get(), buffer.data(), buffer.size(), 0) : 0;
    return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : "";
  }

 private:
  void restore() {
    std::fflush(stderr);
    if (saved_) dup2(saved_.get(), STDERR_FILENO);
    saved_.reset();
  }
  Fd memory_;
  Fd saved_;
};

/// Slurm numbers the errors of communication below those that slurmctld gives.
bool no_answer(int code) { return code < ESLURM_INVALID_PARTITION_NAME; }

}  // namespace

Result<PolicyStatus> ask_policy_status(Slurm&) {
  std::string entry(kStatusQuery);
  std::array<char*, 1> entries = {entry.data()};
  std::string name = "bellows-status";
  std::string directory = "/";
  job_desc_msg_t desc;
  slurm_init_job_desc_msg(&desc);
  desc.user_id = getuid();
  desc.group_id = getgid();
  desc.name = name.data();
  desc.work_dir = directory.data();
  desc.spank_job_env = entries.data();
  desc.spank_job_env_size = entries.size();
  CapturedStderr captured;
  will_run_response_msg_t* response = nullptr;
  const int rc = slurm_job_will_run2(&desc, &response);
  const int code = errno;
  const std::string text = captured.finish();
  slurm_free_will_run_response_msg(response);
  if (const auto status = parse_status(text)) return *status;
  if (rc != SLURM_SUCCESS && no_answer(code))
    return Error{ErrorKind::unavailable,
                 fmt::format("ask slurmctld for its policy: {}", slurm_strerror(code))};
  return Error{ErrorKind::not_found,
               fmt::format("slurmctld gave no answer from job_submit/bellows ({}); is it in "
                           "JobSubmitPlugins, and of this version?",
                           rc == SLURM_SUCCESS ? "the job could run" : slurm_strerror(code))};
}

}  // namespace bellows
