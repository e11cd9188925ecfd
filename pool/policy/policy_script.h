// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {
class LuaSandbox;
}

namespace bellows::pool {

/// What ready members say of one metric.
struct ScriptMetric {
  double sum = 0;
  double median = 0;
  double largest = 0;
  std::uint32_t known = 0;
  std::uint32_t missing = 0;  ///< members of which it is missing, or too old
};

/// What a script is asked about. A value.
struct ScriptSignals {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  std::uint32_t wanted = 0;  ///< members, by the last decision
  std::uint32_t ready = 0;
  std::uint32_t starting = 0;
  std::int64_t votes = 0;
  std::map<std::string, ScriptMetric> metrics;  ///< those that the script names
};

/// A policy in Lua: a script that defines members(signals), which returns how many members are
/// needed. It runs in the sandbox of the site's hooks, and each call runs the whole script again,
/// so nothing stays between two calls. One thread at a time.
class PolicyScript {
 public:
  /// invalid: "FILE:LINE: what is wrong"
  static Result<std::unique_ptr<PolicyScript>> load(std::string source, const std::string& file);
  PolicyScript(const PolicyScript&) = delete;
  PolicyScript& operator=(const PolicyScript&) = delete;
  ~PolicyScript();

  /// The metrics that it names in its list `metrics`: those that it sees, and agents scrape for it.
  const std::vector<std::string>& names() const { return names_; }
  /// Not negative, and no fraction is cut off. invalid: why it gave no such number.
  Result<double> members(const ScriptSignals& signals);

 private:
  PolicyScript(std::string source, std::string file);
  Status prepare();
  Error of_script(std::string_view text) const;
  Result<double> run(const ScriptSignals* signals, std::vector<std::string>* names);

  const std::string source_;
  const std::string file_;
  std::vector<std::string> names_;
  std::unique_ptr<LuaSandbox> sandbox_;  ///< null: to be made by the next call
};

}  // namespace bellows::pool
