// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/index.h"
#include "common/result.h"

namespace bellows {

/// One rank's files in a step, as the manifest lists them.
struct ShardFile {
  std::uint32_t rank = 0;
  std::string file;              ///< name inside the step's directory
  std::uint64_t size = 0;        ///< bytes
  std::string index;             ///< name of its index
  std::uint64_t index_size = 0;  ///< bytes
  std::string index_xxh3;        ///< XXH3-128 of the index, 32 lower-case hexadecimal digits
  bool operator==(const ShardFile&) const = default;
};

/// What commits a step: the list of its files with sizes and digests.
struct Manifest {
  std::uint64_t step = 0;
  std::uint32_t world = 0;
  std::string attempt;  ///< who wrote it
  double time = 0;      ///< seconds since 1970
  std::vector<ShardFile> shards;

  /// corrupt: the text is not a manifest, or was changed after it was written.
  static Result<Manifest> parse(std::string_view text);
  std::string to_string() const;
};

/// A step that was skipped, and a sentence that says why (it names the file).
struct SkippedStep {
  std::uint64_t step = 0;
  std::string error;
};

/// How many bytes more have been verified. Called by several threads.
using Progress = std::function<void(std::uint64_t bytes)>;

/// DIR/step-00000000000000000042
std::string step_path(const std::string& dir, std::uint64_t step);

/// "shard-00000-of-00002.h5"
std::string shard_name(std::uint32_t rank, std::uint32_t world);

/// "shard-00000-of-00002.index"
std::string index_name(std::uint32_t rank, std::uint32_t world);

/// The step of "step-00000000000000000042"; nothing for any other name.
std::optional<std::uint64_t> parse_step_name(std::string_view name);

/// The manifest in a step's directory, itself verified, the files it lists not. Errors name the
/// path.
Result<Manifest> read_manifest(const std::string& step_dir);

/// A shard's index, checked against the manifest. corrupt: names the path.
Result<ShardIndex> read_index(const std::string& step_dir, const Manifest& manifest,
                              const ShardFile& shard);

/// The same of an index whose text was read before; its path is for the sentence.
Result<ShardIndex> parse_index(const std::string& path, std::string_view text,
                               const Manifest& manifest, const ShardFile& shard);

}  // namespace bellows
