// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows {

/// Receives JSON from nlohmann's parser piece by piece, so that a key that appears twice is seen
/// and nothing is built that was not asked for. Everything that a reader does not override is
/// refused. The parser's own stack is a vector of bits, and readers refuse what is deeper than they
/// know, so depth costs nothing.
class StrictJson : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// corrupt: "WHAT is not valid: ...".
  Status read(std::string_view text, std::string_view what);

  bool null() override { return refuse("a null where there may be none"); }
  bool boolean(bool) override { return refuse("a truth value where there may be none"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_unsigned(std::uint64_t) override {
    return refuse("a number where there may be none");
  }
  bool number_float(double, const std::string&) override {
    return refuse("a number that is not a whole one, or too large");
  }
  bool string(std::string&) override { return refuse("a text where there may be none"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override { return refuse("an object where there may be none"); }
  bool key(std::string&) override { return refuse("a key where there may be none"); }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return refuse("a list where there may be none"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& error) override;

 protected:
  /// "it has WHY". Always false: the parser stops.
  bool refuse(std::string_view why);
  /// A name from the file, fit for a sentence.
  static std::string quoted(std::string_view name);

 private:
  std::string why_;
};

}  // namespace bellows
