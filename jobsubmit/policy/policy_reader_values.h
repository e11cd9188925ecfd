// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "jobsubmit/policy/yaml_tree.h"

namespace bellows {

constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostText = 1024;

/// Reads single values of a policy file. Keeps the first error and continues with defaults, so that
/// the callers stay free of error plumbing: what was read counts only when error() is empty.
class ValueReader {
 public:
  /// Keeps a reference to the name.
  explicit ValueReader(const std::string& file) : file_(file) {}

  const std::optional<Error>& error() const { return error_; }
  void fail(const YamlNode& at, std::string_view text);
  /// What `bellows check-config` says about a correct file.
  const std::vector<std::string>& notes() const { return notes_; }
  void note(const YamlNode& at, std::string_view text);

  /// True when `node` is a mapping with only these keys; with any when there are none.
  bool mapping(const YamlNode& node, std::string_view what,
               std::initializer_list<const char*> keys);
  /// Empty for null.
  std::string text(const YamlNode& node, std::string_view what);
  /// At least one byte, at most kMostText.
  std::string short_text(const YamlNode& node, std::string_view what);
  std::string absolute_path(const YamlNode& node, std::string_view what);
  std::string name(const YamlNode& node, std::string_view what);
  bool flag(const YamlNode& node, std::string_view what);
  std::uint32_t number(const YamlNode& node, std::string_view what, std::uint32_t least,
                       std::uint32_t most);
  /// The place of the word in `words`.
  std::size_t choice(const YamlNode& node, std::string_view what,
                     std::initializer_list<const char*> words);
  /// A size such as 16G, in MiB.
  std::uint64_t memory(const YamlNode& node, std::string_view what, std::uint64_t most_mib);
  /// A duration in one of Slurm's spellings, in minutes, rounded up.
  std::uint32_t minutes(const YamlNode& node, std::string_view what);

  std::vector<const YamlNode*> list(const YamlNode& node, std::string_view what);
  /// A list of short texts, none of them twice.
  std::vector<std::string> texts(const YamlNode& node, std::string_view what,
                                 std::string_view item);
  /// The same with at least one.
  std::vector<std::string> some_texts(const YamlNode& node, std::string_view what,
                                      std::string_view item);

 private:
  const std::string& file_;
  std::optional<Error> error_;
  std::vector<std::string> notes_;
};

}  // namespace bellows
