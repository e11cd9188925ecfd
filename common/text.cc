// SPDX-License-Identifier: Apache-2.0
#include "common/text.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace bellows {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const auto at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

bool is_variable_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_'; });
}

std::string one_line(std::string_view text, std::size_t most) {
  std::string line(text.substr(0, most));
  std::replace(line.begin(), line.end(), '\t', ' ');
  std::replace_if(line.begin(), line.end(), is_control, '?');
  if (text.size() > most && most >= 3) line.replace(most - 3, 3, "...");
  return line;
}

std::string_view trim(std::string_view text) {
  const char* blanks = " \t\r\n";
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::optional<std::string_view> value_in(std::string_view list, std::string_view key) {
  for (const std::string_view part : split(list, ',')) {
    const std::size_t equals = part.find('=');
    if (equals != std::string_view::npos && part.substr(0, equals) == key)
      return part.substr(equals + 1);
  }
  return std::nullopt;
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + '\'';
}

std::string counted(std::uint64_t number, std::string_view what) {
  return counted(std::to_string(number), what);
}

std::string counted(std::string_view number, std::string_view what) {
  std::string text(number);
  text.append(" ").append(what);
  if (number != "1") text += 's';
  return text;
}

std::optional<std::uint64_t> parse_uint(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (text.empty() || code != std::errc{} || stop != end) return std::nullopt;
  return value;
}

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  // Words of a hostile length would make the table below slow inside slurmctld.
  if (word.size() > 64) return "";
  std::size_t best = 4;
  std::string match;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best && 2 * distance < std::max(word.size(), candidate.size())) {
      best = distance;
      match = candidate;
    }
  }
  return match;
}

}  // namespace bellows
