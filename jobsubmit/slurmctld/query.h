// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jobsubmit/slurmctld/watcher.h"

namespace bellows {

/// The policy in force in slurmctld, as `bellows status --cluster` shows it. A value.
struct PolicyStatus {
  std::string digest;      ///< empty: none was ever read
  std::int64_t since = 0;  ///< when it came into force: seconds since 1970
  bool enabled = true;     ///< false: the kill switch is on
  std::uint64_t tenants = 0;
  bool lua = false;                   ///< a script of the site is in force, too
  std::string controller;             ///< bellowsd's address; empty: the site has none
  bool people_known = true;           ///< false: users and groups are still being looked up
  std::string problem;                ///< why a newer file was rejected; empty: none was
  std::optional<PolicyRecord> other;  ///< another controller's, when it differs

  bool operator==(const PolicyStatus&) const = default;
};

/// slurmctld has no port for questions about a plugin. So a client asks whether a job could run,
/// with this entry in the job's spank_job_env; the plugin refuses, and its message is the answer.
constexpr std::string_view kStatusQuery = "BELLOWS_QUERY=status";
constexpr std::size_t kMostAnswer = 1024;

/// Whether there is such an entry. `entries` may be null.
bool asks_status(const char* const* entries, std::uint32_t count);

/// One line of at most kMostAnswer bytes, printable ASCII only.
std::string answer_status(const PolicyWatcher::State& state);

/// Finds the answer in whatever text surrounds it. Nothing: there is none.
std::optional<PolicyStatus> parse_status(std::string_view text);

}  // namespace bellows
