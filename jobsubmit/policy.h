// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/gpus_range.h"
#include "common/result.h"

namespace bellows {

/// What bellows.yaml says about one framework.
struct Framework {
  std::vector<std::string> versions;       ///< empty: the framework has no versions to choose from
  std::string default_version;             ///< one of `versions`; the first when the file is silent
  std::map<std::string, std::string> env;  ///< set in batch jobs where the user did not set them
};

/// The sizes a tenant's jobs may have: min, min + step, ... up to max.
struct GpuLimits {
  std::uint32_t min = 1;
  std::uint32_t max = GpusRange::kMost;
  std::uint32_t start = 1;  ///< first size of a job that gives only a range
  std::uint32_t step = 1;

  GpusRange sizes() const { return GpusRange::between(min, max, step); }
};

struct Tenant {
  std::string name;
  std::vector<std::string> accounts;    ///< Slurm accounts, lower case
  std::vector<std::string> frameworks;  ///< fnmatch patterns on NAME or NAME:VERSION
  GpuLimits gpus;

  bool permits(std::string_view framework, std::string_view version) const;
};

/// bellows.yaml, checked: every name it refers to exists. A value; safe to read from many threads.
struct Policy {
  std::map<std::string, Framework> frameworks;
  std::vector<Tenant> tenants;
  std::string default_tenant;            ///< for accounts that no tenant lists; empty: refuse them
  std::string checkpoint_dir;            ///< pattern with %u, %a, %j; empty: the launcher's default
  std::uint32_t resize_site_factor = 0;  ///< 0: a resize leaves the job's priority alone

  /// The tenant that lists `account` (lower case), else the default one, else nullptr.
  const Tenant* tenant_of(std::string_view account) const;
};

/// Reads a policy. `filename` only names the source in messages.
/// invalid: "FILE:LINE:COLUMN: what is wrong", with the nearest known key for an unknown one.
Result<Policy> load_policy(std::string_view text, const std::string& filename);

}  // namespace bellows
