// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/simulate/cluster.h"
#include "elastic/simulate/csv.h"
#include "elastic/simulate/workload.h"

namespace bellows {

/// A job as Slurm accounted for it.
struct AccountedJob {
  std::string id;
  std::string name;
  std::int64_t submitted_s = 0;  ///< since 1970, by the clock on the cluster's wall
  std::uint32_t elapsed_s = 0;   ///< that it ran
  std::uint32_t gpus = 0;        ///< that it held
  std::size_t row = 0;           ///< of the table
};

/// Reads what `sacct --parsable2` prints, with the columns JobID, Submit, ElapsedRaw, AllocTRES
/// and, as the last one, JobName, which may be anything. Steps are left out.
Result<std::vector<AccountedJob>> accounted_jobs(const Csv& table);
Result<Csv> parse_accounting(std::string_view text, std::string name);

struct AccountedWorkload {
  std::vector<Submission> submissions;  ///< in the order of time
  std::size_t left_out = 0;             ///< jobs that held no GPU, never ran, or are not to count
};

/// Jobs of sacct's as a workload. `programs`: a table with the columns job_name (a pattern of the
/// shell), application and batch_size; the first row that matches counts, and an application "-"
/// leaves the job out. A job has as much to do as its program would have done in the time that it
/// ran, on its GPUs and with this batch. invalid: no row matches a job, or it can't have run like
/// this on such a cluster.
Result<AccountedWorkload> read_accounting(const std::filesystem::path& path,
                                          const std::filesystem::path& programs,
                                          const Applications& applications,
                                          const ClusterShape& shape);

}  // namespace bellows
