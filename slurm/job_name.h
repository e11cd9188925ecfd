// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace bellows {

/// A job as users write it: 123, or 123_4 for task 4 of the job array 123.
struct JobName {
  std::uint32_t id = 0;
  std::optional<std::uint32_t> task;

  std::string to_string() const;
};
std::optional<JobName> parse_job_name(const std::string& text);

/// Of an array's own id: Slurm gives it also to one of the tasks, so to take it for that task would
/// do to it what was meant for others. invalid; `tasks`: "123_4", "123_[5-9]".
Error names_an_array(const JobName& name, const std::vector<std::string>& tasks);

}  // namespace bellows
