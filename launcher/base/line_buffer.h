// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace bellows {

/// Cuts a non-blocking stream into lines. A line longer than the limit is dropped whole and
/// counted, so that noise on a pipe cannot eat memory.
class LineReader {
 public:
  static constexpr std::size_t kMostBytes = 8 << 20;

  /// Reads what is there. False at end of file or on an error: no more will come.
  bool fill(int fd);
  void feed(const char* data, std::size_t size);
  /// The next whole line without its newline.
  std::optional<std::string> next();
  std::size_t dropped() const { return dropped_; }

 private:
  std::string data_;
  std::size_t begin_ = 0;
  std::size_t dropped_ = 0;
  bool dropping_ = false;
};

/// Holds what a non-blocking descriptor did not take yet.
class LineWriter {
 public:
  void add(const std::string& line) { data_ += line + "\n"; }
  bool empty() const { return data_.empty(); }
  /// Writes what goes. False on an error: the reader is gone.
  bool flush(int fd);

 private:
  std::string data_;
};

}  // namespace bellows
