// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jobsubmit/lua/hook.h"
#include "slurm/compat.h"

namespace bellows {

/// What a job_desc_msg_t does not say by itself, or not as scripts see it. Nothing: nil in Lua.
struct JobFacts {
  std::optional<std::string> account;  ///< lower case
  std::optional<std::string> array;
  std::optional<bool> batch;
  std::optional<std::string> framework;  ///< empty: a job of Bellows that names none
  std::optional<std::string> framework_version;
  std::optional<std::string> gpus_range;
  std::optional<std::uint32_t> gpus;
  std::optional<std::uint32_t> gpus_min;
  std::optional<std::uint32_t> gpus_max;
  std::optional<std::uint32_t> user_id;
  std::string user_name;  ///< empty: looked up by user_id when a script asks
};

/// A job of slurmctld, or a change to one, as Lua hooks see it; lua/README.md describes the fields.
/// What a hook writes stays in here until apply(): a hook that refuses or fails has changed
/// nothing.
class JobFields final : public LuaFields {
 public:
  enum class Access { read, write };

  static std::span<const LuaField> table();

  /// `desc` outlives the object and is only read.
  JobFields(const job_desc_msg_t& desc, JobFacts facts, Access access);

  std::optional<LuaValue> get(std::size_t index) const override;
  /// invalid: a value that Slurm could not take; or the job is only to be read.
  Status set(std::size_t index, std::optional<LuaValue> value) override;

  /// The names of the fields that were written.
  std::vector<std::string> written() const;
  /// Whether any field is set, apart from what JobFacts says.
  bool any() const;
  /// Forgets what was written.
  void drop() { written_.clear(); }
  void apply(job_desc_msg_t& desc) const;

 private:
  const job_desc_msg_t& desc_;
  const JobFacts facts_;
  const Access access_;
  std::map<std::size_t, std::optional<LuaValue>> written_;
};

}  // namespace bellows
