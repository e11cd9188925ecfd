// SPDX-License-Identifier: Apache-2.0
#include "common/model_names.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostCharacters = 255;

bool is_word(std::string_view word) {
  return !word.empty() && word[0] != '.' && std::all_of(word.begin(), word.end(), [](char c) {
    return is_alphanumeric(c) || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

bool is_model_name(std::string_view name) {
  if (name.size() > kMostCharacters) return false;
  const auto words = split(name, '/');
  return std::all_of(words.begin(), words.end(), is_word);
}

Result<std::vector<std::string>> parse_model_names(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view name : split(text, ',')) {
    if (!is_model_name(name))
      return Error{ErrorKind::invalid,
                   fmt::format("no model can have the name \"{}\"; write NAME[,NAME...], such as "
                               "llama/8b",
                               one_line(name, 64))};
    if (std::find(names.begin(), names.end(), name) != names.end())
      return Error{ErrorKind::invalid, fmt::format("model {} is named twice", one_line(name, 64))};
    names.emplace_back(name);
    if (names.size() > kMostModels)
      return Error{ErrorKind::invalid,
                   fmt::format("a job may name {} models at most", kMostModels)};
  }
  return names;
}

Result<bool> parse_model_on(std::string_view text) {
  if (text == "gpu" || text == "memory") return text == "gpu";
  return Error{ErrorKind::invalid,
               fmt::format("models can be on gpu or in memory, not on \"{}\"", one_line(text, 64))};
}

}  // namespace bellows
