// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace bellows {

/// What `srun --label` writes to one of its streams, taken apart again.
///
/// slurmstepd sends a rank's output in messages of whole lines, and a line longer than 1024 bytes
/// in pieces of that size. srun writes each line with the rank before it, and adds a newline to a
/// piece that has none. So a newline behind 1024 bytes is srun's own, every other one is the
/// rank's. Two things cannot be told: whether a rank's very last line had one, and where srun cut
/// what a rank had left at its end, when that was more than 1024 bytes.
class RankOutput {
 public:
  static constexpr std::size_t kMostInMessage = 1024;

  struct Piece {
    std::optional<std::uint32_t> rank;  ///< none: of srun itself
    std::string_view text;
    bool whole = true;  ///< a newline follows
  };
  using Take = std::function<void(const Piece&)>;

  void feed(std::string_view chunk, const Take& take);
  /// What is left at the end of the stream.
  void end(const Take& take);

 private:
  std::string rest_;  ///< a line that has not ended
};

}  // namespace bellows
