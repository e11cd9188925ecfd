// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/access.h"
#include "common/contract.h"
#include "common/result.h"

namespace bellows {

/// CHECKPOINT_DIR/batch.json: the batch that the job was last ordered to use. It lies beside the
/// checkpoints, since it says how their training continues, and Slurm's record of a job has no
/// place for it. FORMAT.md describes the file, which is its user's and may hold anything.
class BatchRecord {
 public:
  explicit BatchRecord(const std::string& checkpoint_dir, Access access = Access::owner);

  /// Nothing: none was ordered. corrupt: the file is not such a record; denied: the contract does
  /// not have that batch; other errors: it can't be read now.
  Result<std::optional<std::uint64_t>> read(const std::optional<Contract>& contract) const;
  /// Atomic and durable. Nothing: removes the record.
  Status write(std::optional<std::uint64_t> batch) const;

  /// corrupt: says what is wrong with the text.
  static Result<std::uint64_t> parse(std::string_view text);

 private:
  std::string dir_;
  std::string path_;
  Access access_;
};

}  // namespace bellows
