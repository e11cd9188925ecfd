// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/gpus_range.h"
#include "common/result.h"

namespace bellows {

/// The job contract: what admission promised a job, fixed at submit.
///
/// One versioned line, `bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/shared/%25u`.
/// slurmctld writes it into spank_job_env (for the nodes) and AdminComment (for people). It holds
/// the range and the rights, never the current size. A value: compares and copies.
struct Contract {
  /// A line longer than this is refused, so that nobody makes a node parse megabytes.
  static constexpr std::size_t kMostBytes = 4096;
  /// The name of the variable in spank_job_env that carries the line.
  static constexpr const char* kVariable = "BELLOWS_CONTRACT";

  std::string tenant;
  std::string framework;          ///< NAME, or empty when the job named none
  std::string framework_version;  ///< empty when the framework has no versions
  GpusRange gpus = GpusRange::between(1, 1);
  std::string checkpoint_dir;  ///< pattern with %u, %a and %j; empty: the launcher's default
  /// Keys of a newer minor version, kept as they were, in order.
  std::vector<std::pair<std::string, std::string>> extra;

  /// invalid: the text is not a contract of this major version; says why.
  static Result<Contract> parse(std::string_view line);
  std::string to_string() const;

  bool operator==(const Contract&) const = default;
};

/// Replaces %u (user), %a (account), %j (job id) and %% in a path pattern. Another % sequence is
/// invalid.
Result<std::string> expand_path(std::string_view pattern, std::string_view user,
                                std::string_view account, std::string_view job_id);

}  // namespace bellows
