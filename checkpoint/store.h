// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  std::string xxh3;              ///< version 1, instead of an index: XXH3-128 of the file
  bool operator==(const ShardFile&) const = default;
};

/// What commits a step: the list of its files with sizes and digests.
struct Manifest {
  std::uint64_t step = 0;
  std::uint32_t world = 0;
  std::string attempt;  ///< who wrote it
  double time = 0;      ///< seconds since 1970
  std::vector<ShardFile> shards;
  int version = 2;  ///< of the format; 1 is only read

  /// corrupt: the text is not a manifest, or was changed after it was written.
  static Result<Manifest> parse(std::string_view text);
  /// In the format of today.
  std::string to_string() const;
};

/// A step that was passed over, and the sentence why (it names the file).
struct SkippedStep {
  std::uint64_t step = 0;
  std::string error;
};

struct NewestStep {
  std::optional<std::uint64_t> step;  ///< the newest that verifies
  std::vector<SkippedStep> skipped;   ///< newer ones that do not, newest first
};

/// The committed steps in DIR, ascending, without a look inside. A missing DIR has none.
Result<std::vector<std::uint64_t>> list_steps(const std::string& dir);

/// How many bytes more have been verified. Called by several threads.
using Progress = std::function<void(std::uint64_t bytes)>;

/// Reads every file of the step and holds size and digests against the manifest. corrupt or
/// not_found: the sentence names the file.
Result<Manifest> verify_step(const std::string& dir, std::uint64_t step,
                             const Progress& progress = {});

/// How far newest_step goes.
struct Search {
  /// Read every block. Else those are for the restore to verify, and only the manifest, the
  /// indexes and the sizes of the files are looked at (of the first format, all).
  bool whole = true;
  std::vector<SkippedStep> bad;  ///< found damaged before: passed over for the reason given
};

/// What is wrong with a step.
using LookAtStep = std::function<Status(std::uint64_t step)>;

/// The newest of ascending steps that is good. Those that are damaged or incomplete are passed
/// over; one that can't be read for another reason, after some tries, is an error: it may be good.
Result<NewestStep> choose_step(const std::vector<std::uint64_t>& steps, const LookAtStep& look);

/// The newest step that verifies. As choose_step; an unreadable DIR is an error, too.
Result<NewestStep> newest_step(const std::string& dir, const Search& search = {});

/// DIR/step-00000000000000000042
std::string step_path(const std::string& dir, std::uint64_t step);

}  // namespace bellows
