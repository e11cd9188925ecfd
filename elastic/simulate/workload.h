// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "elastic/simulate/application.h"
#include "elastic/simulate/csv.h"
#include "elastic/simulate/job.h"

namespace bellows {

/// Measured programs by their names. Submissions refer to them, so they must stay where they are.
using Applications = std::map<std::string, Application>;

/// Reads a folder with a folder for each application. `terms`: a table with the columns
/// application, largest_gpus, smallest_batch and largest_local_batch, where 0 is no limit; an empty
/// path: none.
Result<Applications> read_applications(const std::filesystem::path& folder,
                                       const std::filesystem::path& terms);

/// The application that a cell names; invalid: nothing was measured of it.
Result<const Application*> application_at(const Csv& csv, std::size_t row, std::size_t column,
                                          const Applications& applications);

/// A batch that the application was measured with.
Result<std::uint32_t> batch_at(const Csv& csv, std::size_t row, std::size_t column,
                               const Application& application);

/// Reads a table with the columns name, time (of the submission, in seconds), application,
/// num_replicas (GPUs asked for) and batch_size (samples in a step); and perhaps tenant. In the
/// order of time.
Result<std::vector<Submission>> read_workload(const std::filesystem::path& path,
                                              const Applications& applications);

}  // namespace bellows
