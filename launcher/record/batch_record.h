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

/// The batches that a job was ordered to use. A value.
struct OrderedBatch {
  /// Of a plan of bellowsd, which chose it for a size: a job that comes back with another one,
  /// since bellowsd died or its user wants it so, may not have the memory for it.
  struct Planned {
    std::uint64_t batch = 0;
    std::uint32_t gpus = 0;
    bool operator==(const Planned&) const = default;
  };

  std::optional<std::uint64_t> batch;  ///< by the job's user; nothing: the program's own
  std::optional<Planned> planned{};

  /// With so many GPUs.
  std::optional<std::uint64_t> at(std::uint32_t gpus) const {
    return planned && planned->gpus == gpus ? planned->batch : batch;
  }
  bool any() const { return batch || planned; }
  bool operator==(const OrderedBatch&) const = default;
};

/// CHECKPOINT_DIR/batch.json: the batches that the job was last ordered to use. It lies beside the
/// checkpoints, since it says how their training continues, and Slurm's record of a job has no
/// place for it. FORMAT.md describes the file, which is its user's and may hold anything.
class BatchRecord {
 public:
  explicit BatchRecord(const std::string& checkpoint_dir, Access access = Access::owner);

  /// Nothing: none was ordered. corrupt: the file is not such a record; denied: the contract does
  /// not have that batch; other errors: it can't be read now.
  Result<OrderedBatch> read(const std::optional<Contract>& contract) const;
  /// Atomic and durable. Without any batch: removes the record.
  Status write(const OrderedBatch& ordered) const;

  /// corrupt: says what is wrong with the text.
  static Result<OrderedBatch> parse(std::string_view text);
  static std::string to_json(const OrderedBatch& ordered);

 private:
  std::string dir_;
  std::string path_;
  Access access_;
};

}  // namespace bellows
