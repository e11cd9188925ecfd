// SPDX-License-Identifier: Apache-2.0
#include "pool/member/listener.h"

#include <fmt/core.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/fd.h"
#include "common/text.h"

namespace bellows::pool {
namespace {

/// A line for each connection of the machine.
constexpr std::size_t kMostBytes = std::size_t{64} << 20U;
constexpr std::string_view kListens = "0A";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (const std::string_view word : split(line, ' '))
    if (!word.empty()) words.push_back(word);
  return words;
}

}  // namespace

std::optional<uid_t> stranger_in(std::string_view table, std::uint16_t port, uid_t own) {
  constexpr std::size_t kLocal = 1, kState = 3, kUid = 7;
  const std::string end = fmt::format(":{:04X}", port);
  for (const std::string_view line : split(table, '\n')) {
    // Most lines are others'.
    if (line.find(end) == std::string_view::npos) continue;
    const auto words = words_of(line);
    if (words.size() <= kUid || words[kState] != kListens || !words[kLocal].ends_with(end))
      continue;
    const auto uid = parse_uint(words[kUid]);
    if (uid && *uid != own && *uid != 0) return static_cast<uid_t>(*uid);
  }
  return std::nullopt;
}

std::optional<uid_t> stranger_at(std::uint16_t port) {
  for (const char* const file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"})
    if (const auto table = read_file(file, kMostBytes))
      if (const auto stranger = stranger_in(*table, port, getuid())) return stranger;
  return std::nullopt;
}

}  // namespace bellows::pool
