// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/sbatch_script.h"

#include <fmt/core.h>

#include <optional>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::string_view kMark = "#SBATCH";

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

/// Takes one word off the front. Nothing: there is none. `open` becomes true for a quote without
/// its end.
std::optional<std::string> next_word(std::string_view& rest, bool& open) {
  while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
  if (rest.empty() || rest.front() == '#') return std::nullopt;
  std::string word;
  char quote = 0;
  while (!rest.empty()) {
    const char c = rest.front();
    if (quote == 0 && is_space(c)) break;
    rest.remove_prefix(1);
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && !rest.empty()) {
      word += rest.front();
      rest.remove_prefix(1);
    } else {
      word += c;
    }
  }
  open = quote != 0;
  return word;
}

}  // namespace

Result<ScriptOptions> script_options(std::string_view script) {
  ScriptOptions options;
  int number = 0;
  for (std::string_view line : split(script, '\n')) {
    ++number;
    if (!line.starts_with(kMark)) {
      const std::string_view text = trim(line);
      if (!text.empty() && text.front() != '#') break;
      continue;
    }
    line.remove_prefix(kMark.size());
    bool open = false;
    while (auto word = next_word(line, open)) {
      if (open)
        return Error{ErrorKind::invalid, fmt::format("line {}: a quote is not closed", number)};
      if (*word == "hetjob" || *word == "packjob") {
        options.heterogeneous = true;
        return options;
      }
      options.arguments.push_back(*std::move(word));
    }
  }
  return options;
}

}  // namespace bellows
