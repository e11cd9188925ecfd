// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bellows {

/// "bytes 0-99/1000", or "bytes */1000" of a range that lies behind the file's end.
struct ContentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  ///< behind the last byte; 0: no range
  std::uint64_t size = 0;

  static std::optional<ContentRange> parse(std::string_view text);
};

/// What a server says before the bytes, as far as it matters here.
struct AnswerHead {
  unsigned status = 0;
  std::optional<std::uint64_t> length;
  std::optional<ContentRange> range;
  std::string etag;  ///< a strong one, with its quotes
  std::string last_modified;
  std::string date;
  std::string location;
  std::string encoding;
};

/// Takes the lines of a head. A server may be hostile: what it says is bounded, and nothing is
/// said twice in different words.
class AnswerReader {
 public:
  static constexpr std::size_t kMostHeads = 65'536;  ///< bytes, of all heads of one answer
  static constexpr std::size_t kMostValue = 8192;

  /// With its end of line. Null, or what is wrong with it, as the rest of a sentence that begins
  /// with the server.
  const char* take(std::string_view line);
  /// The empty line behind it has come, and it is not one that only says that another follows.
  bool is_complete() const { return complete_; }
  const AnswerHead& head() const { return head_; }

 private:
  const char* take_status(std::string_view line);
  const char* take_field(std::string_view name, std::string_view value);
  const char* end_head();

  AnswerHead head_;
  std::string length_, range_, etag_;  ///< as they were said
  std::size_t taken_ = 0;
  bool begun_ = false;
  bool complete_ = false;
};

}  // namespace bellows
