// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/container/options.h"
#include "jobsubmit/admission/admission.h"
#include "launcher/policy/sbatch_sizes.h"

namespace bellows {

/// What sbatch's options say, before anything is derived from it.
struct SbatchSaid {
  Request request;
  std::string gpus_per_node;
  std::string gres;
  std::optional<std::uint32_t> cpus_per_task;
  std::optional<std::uint32_t> cpus_per_gpu;
  std::optional<std::uint32_t> hosts;  ///< in --nodelist
  NodeShape shape;
  bool exclusive = false;
  bool core_spec = false;
  bool wrapped = false;                          ///< --wrap: there is no script file
  std::map<std::string, std::string> for_rules;  ///< by the option's name
};

/// One option of sbatch.
struct SbatchOption {
  enum Argument { none, required, optional };

  const char* name;
  char brief;  ///< its letter; 0: none
  Argument argument;
  const char* variable;  ///< what stands for it in sbatch's environment; null: nothing
  /// False: sbatch refuses the value. Null: admission does not look at the option.
  bool (*take)(SbatchSaid& said, std::string_view value);
  /// A --container option, which a container::Collector reads; `take` is then null.
  std::optional<container::Option> container = std::nullopt;
};

/// All options of sbatch 22.05, and those of Bellows.
std::span<const SbatchOption> sbatch_options();

}  // namespace bellows
