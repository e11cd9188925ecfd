// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/job_names.h"

#include <filesystem>
#include <system_error>

namespace bellows::pool {

bool is_of_pool_in(const std::string& dir, const SlurmJob& job) {
  // DIR/log/FILE
  const auto its = std::filesystem::path(job.output).parent_path().parent_path();
  std::error_code failure;
  // One directory may have several paths: a keeper that is started again may have another one.
  return its == dir || std::filesystem::equivalent(its, dir, failure);
}

}  // namespace bellows::pool
