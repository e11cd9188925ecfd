// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/shard_file.h"
#include "checkpoint/store.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// The arrays of one step, read for any number of ranks. Immutable once open: safe for several
/// threads.
class StepReader {
 public:
  /// Reads the index of every shard of `step_dir`, whose digests were verified before.
  static Result<std::shared_ptr<const StepReader>> open(const std::string& step_dir,
                                                        const Manifest& manifest);

  /// Whether every array is whole: each row in exactly one shard, types agreeing. invalid: says
  /// which array and rows.
  Status check_whole() const;

  /// Fills `data` with the parts, each at its offset. invalid: an array is missing or has another
  /// type or shape; corrupt, io: the files.
  Status read(const std::vector<ArrayPart>& parts, const std::vector<std::uint64_t>& offsets,
              unsigned char* data) const;

 private:
  struct Piece {
    std::uint32_t rank;
    StoredPart stored;
  };

  Status check_array(const std::string& name, const std::vector<Piece>& pieces) const;
  Result<const std::vector<Piece>*> find(const ArrayPart& wanted) const;
  Status read_part(const ArrayPart& wanted, unsigned char* to) const;
  Status read_rows(const Piece& piece, std::uint64_t first, std::uint64_t rows,
                   unsigned char* to) const;
  std::string shard_path(std::uint32_t rank) const;

  std::string step_dir_;
  Manifest manifest_;
  std::map<std::string, std::vector<Piece>> arrays_;  ///< pieces by ascending first
};

}  // namespace bellows
