// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/policy/policy_reader_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::uint64_t kMostMinutes = 10 * 366 * 24 * 60;

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > kMostName) return false;
  // One that looks like an option or a hidden file could not be asked for at the prompt.
  if (std::string_view(".+-").find(text[0]) != std::string_view::npos) return false;
  for (char c : text)
    if (!(is_alphanumeric(c) || std::string_view("_.+-").find(c) != std::string_view::npos))
      return false;
  return true;
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), is_control);
}

/// MiB in a text such as 16G; nothing for another text or one that is too large to be meant.
std::optional<std::uint64_t> parse_mib(std::string_view text) {
  constexpr std::string_view kUnits = "mgt";
  if (text.empty()) return std::nullopt;
  const std::size_t unit = kUnits.find(to_lower(text.substr(text.size() - 1)));
  const auto count = parse_uint(text.substr(0, text.size() - 1));
  if (unit == std::string_view::npos || !count || *count > std::uint64_t{1} << 32)
    return std::nullopt;
  return *count << (10 * unit);
}

/// The numbers between colons; nothing when one is missing or too large to be meant.
std::optional<std::vector<std::uint64_t>> colon_fields(std::string_view text) {
  std::vector<std::uint64_t> fields;
  for (std::string_view piece : split(text, ':')) {
    const auto value = parse_uint(piece);
    if (!value || *value > std::uint64_t{1} << 32) return std::nullopt;
    fields.push_back(*value);
  }
  return fields;
}

/// M, M:S, H:M:S, D-H, D-H:M and D-H:M:S.
std::optional<std::uint64_t> parse_minutes(std::string_view text) {
  const auto dash = text.find('-');
  const bool days = dash != std::string_view::npos;
  auto fields = colon_fields(days ? text.substr(dash + 1) : text);
  const auto day = days ? parse_uint(text.substr(0, dash)) : 0;
  if (!fields || fields->size() > 3 || !day || *day > kMostMinutes) return std::nullopt;
  if (!days && fields->size() < 3) fields->insert(fields->begin(), 0);
  fields->resize(3);
  const std::uint64_t seconds =
      *day * 86400 + (*fields)[0] * 3600 + (*fields)[1] * 60 + (*fields)[2];
  return (seconds + 59) / 60;
}

}  // namespace

void ValueReader::fail(const YamlNode& at, std::string_view text) {
  if (!error_) error_ = yaml_error(file_, at.mark, text);
}

void ValueReader::note(const YamlNode& at, std::string_view text) {
  notes_.push_back(yaml_error(file_, at.mark, text).text);
}

bool ValueReader::mapping(const YamlNode& node, std::string_view what,
                          std::initializer_list<const char*> keys) {
  if (node.kind != YamlNode::Kind::mapping) {
    fail(node, fmt::format("{} must be a mapping of key: value", what));
    return false;
  }
  if (keys.size() == 0) return true;
  const std::vector<std::string> known(keys.begin(), keys.end());
  for (const auto& [key, value] : node.entries) {
    if (std::find(known.begin(), known.end(), key.scalar) != known.end()) continue;
    const std::string hint = nearest(key.scalar, known);
    fail(key, hint.empty()
                  ? fmt::format("unknown key \"{}\" in {}; known are {}",
                                key.scalar.substr(0, kMostName), what, fmt::join(known, ", "))
                  : fmt::format("unknown key \"{}\" in {}; did you mean \"{}\"?",
                                key.scalar.substr(0, kMostName), what, hint));
    return false;
  }
  return true;
}

std::string ValueReader::text(const YamlNode& node, std::string_view what) {
  if (node.kind != YamlNode::Kind::scalar) fail(node, fmt::format("{} must be a text", what));
  if (has_control(node.scalar)) fail(node, fmt::format("{} has a control character", what));
  return node.is_null() ? "" : node.scalar;
}

std::string ValueReader::short_text(const YamlNode& node, std::string_view what) {
  std::string value = text(node, what);
  if (value.empty()) fail(node, fmt::format("{} is empty", what));
  if (value.size() > kMostText)
    fail(node, fmt::format("{} is longer than {} bytes", what, kMostText));
  return value;
}

std::string ValueReader::absolute_path(const YamlNode& node, std::string_view what) {
  std::string path = short_text(node, what);
  if (!path.starts_with('/')) fail(node, fmt::format("{} must be an absolute path", what));
  return path;
}

std::string ValueReader::name(const YamlNode& node, std::string_view what) {
  std::string value = text(node, what);
  if (!is_name(value))
    fail(node, fmt::format("{} must be 1 to {} letters, digits, \"_\", \".\", \"+\" or \"-\", and "
                           "not begin with one of the last three",
                           what, kMostName));
  return value;
}

bool ValueReader::flag(const YamlNode& node, std::string_view what) {
  return choice(node, what, {"false", "true"}) == 1;
}

std::uint32_t ValueReader::number(const YamlNode& node, std::string_view what, std::uint32_t least,
                                  std::uint32_t most) {
  const auto value = node.kind == YamlNode::Kind::scalar ? parse_uint(node.scalar) : std::nullopt;
  if (!value || *value < least || *value > most) {
    fail(node, fmt::format("{} must be a whole number from {} to {}", what, least, most));
    return least;
  }
  return static_cast<std::uint32_t>(*value);
}

std::size_t ValueReader::choice(const YamlNode& node, std::string_view what,
                                std::initializer_list<const char*> words) {
  const std::vector<std::string> known(words.begin(), words.end());
  const auto found = node.kind == YamlNode::Kind::scalar
                         ? std::find(known.begin(), known.end(), node.scalar)
                         : known.end();
  if (found != known.end()) return static_cast<std::size_t>(found - known.begin());
  fail(node, fmt::format("{} must be {} or {}", what,
                         fmt::join(known.begin(), std::prev(known.end()), ", "), known.back()));
  return 0;
}

std::uint64_t ValueReader::memory(const YamlNode& node, std::string_view what,
                                  std::uint64_t most_mib) {
  const auto mib = node.kind == YamlNode::Kind::scalar ? parse_mib(node.scalar) : std::nullopt;
  if (mib && *mib >= 1 && *mib <= most_mib) return *mib;
  const bool small = most_mib < 1024;
  fail(node, fmt::format("{} must be a size from 1M to {}{}, such as {}", what,
                         small ? most_mib : most_mib / 1024, small ? 'M' : 'G',
                         small ? "2M" : "512M or 1G"));
  return 1;
}

std::uint32_t ValueReader::minutes(const YamlNode& node, std::string_view what) {
  const auto value =
      node.kind == YamlNode::Kind::scalar ? parse_minutes(node.scalar) : std::nullopt;
  if (value && *value >= 1 && *value <= kMostMinutes) return static_cast<std::uint32_t>(*value);
  fail(node, fmt::format("{} must be a time of at most 10 years, in minutes or as Slurm spells it, "
                         "such as 4:00:00 or 2-12",
                         what));
  return 1;
}

std::vector<const YamlNode*> ValueReader::list(const YamlNode& node, std::string_view what) {
  std::vector<const YamlNode*> items;
  if (node.kind != YamlNode::Kind::sequence) {
    fail(node, fmt::format("{} must be a list, such as [a, b]", what));
    return items;
  }
  for (const YamlNode& item : node.items) items.push_back(&item);
  return items;
}

std::vector<std::string> ValueReader::texts(const YamlNode& node, std::string_view what,
                                            std::string_view item) {
  std::vector<std::string> values;
  std::set<std::string> seen;
  for (const YamlNode* one : list(node, what)) {
    std::string value = short_text(*one, item);
    if (!seen.insert(value).second)
      fail(*one, fmt::format("\"{}\" appears twice", value.substr(0, kMostName)));
    values.push_back(std::move(value));
  }
  return values;
}

std::vector<std::string> ValueReader::some_texts(const YamlNode& node, std::string_view what,
                                                 std::string_view item) {
  std::vector<std::string> values = texts(node, what, item);
  if (values.empty())
    fail(node, fmt::format("{} is empty; leave it out to allow all of them", what));
  return values;
}

}  // namespace bellows
