// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/step_reader.h"
#include "checkpoint/store.h"
#include "common/result.h"

namespace bellows {

/// "shard-00000-of-00002.h5"
std::string shard_name(std::uint32_t rank, std::uint32_t world);

/// "shard-00000-of-00002.index"
std::string index_name(std::uint32_t rank, std::uint32_t world);

/// The step of "step-00000000000000000042"; nothing for any other name.
std::optional<std::uint64_t> parse_step_name(std::string_view name);

/// All names in a directory, in no order; none when it does not exist.
Result<std::vector<std::string>> list_names(const std::string& dir);

/// The manifest in a step's directory, itself verified, the files it lists not. Errors name the
/// path.
Result<Manifest> read_manifest(const std::string& step_dir);

/// A shard's index, held against the manifest. corrupt: names the path.
Result<ShardIndex> read_index(const std::string& step_dir, const Manifest& manifest,
                              const ShardFile& shard);

/// A step whose manifest, indexes and files' sizes are as they should be, to be read.
Result<std::shared_ptr<const StepReader>> open_step(const std::string& dir, std::uint64_t step);

}  // namespace bellows
