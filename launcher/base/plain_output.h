// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace bellows {

/// A descriptor that may be full or that nobody reads. What it does not take in time is left out,
/// and a sentence where the output continues says how much that was.
class PlainOutput {
 public:
  /// `patience_ms`: how long a reader may take none of it.
  explicit PlainOutput(int fd, int patience_ms = 10000);
  void write(std::string_view text);
  std::uint64_t lost() const { return lost_; }

 private:
  bool write_some(std::string_view text);
  bool ready(int limit_ms) const;
  int fd_;
  int patience_ms_;
  bool is_file_;
  std::uint64_t lost_ = 0;  ///< bytes since it last took some
};

}  // namespace bellows
