// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace bellows {

/// Where a node stands, 1-based, for "file:line:column: ..." messages.
struct YamlMark {
  int line = 0;
  int column = 0;
};

struct YamlEntry;

/// One node of a parsed YAML document. Owns its children; a value that is moved, not copied.
/// Aliases and anchors, tags and duplicate keys are refused at parse time: policy files need none,
/// and alias bombs cost memory.
class YamlNode {
 public:
  enum class Kind { scalar, sequence, mapping };

  Kind kind = Kind::scalar;
  YamlMark mark;
  bool plain = false;  ///< scalar without quotes: may stand for null, a number or a boolean
  std::string scalar;
  std::vector<YamlNode> items;     ///< sequence
  std::vector<YamlEntry> entries;  ///< mapping, in file order

  bool is_null() const {
    return kind == Kind::scalar && plain && (scalar.empty() || scalar == "null" || scalar == "~");
  }
  /// The value of a mapping's key, or nullptr.
  const YamlNode* find(std::string_view key) const;
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

/// Parses one document. `file` only names the source in messages. An empty text gives an empty
/// mapping. invalid: "FILE:LINE:COLUMN: what is wrong". Depth is bounded to 32, size to 1 MiB.
Result<YamlNode> parse_yaml(std::string_view text, const std::string& file);

/// "FILE:LINE:COLUMN: text" of kind invalid.
Error yaml_error(const std::string& file, YamlMark mark, std::string_view text);

}  // namespace bellows
