// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/rank_output.h"

namespace bellows {
namespace {

constexpr std::size_t kMostDigits = 9;
// srun writes no line longer than a message; noise on the pipe must not eat memory.
constexpr std::size_t kMostWaiting = 1 << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

RankOutput::Piece piece_of(std::string_view line) {
  std::size_t at = line.find_first_not_of(' ');
  if (at == std::string_view::npos) return {std::nullopt, line, true};
  std::uint32_t rank = 0;
  const std::size_t begin = at;
  for (; at < line.size() && is_digit(line[at]) && at - begin < kMostDigits; ++at)
    rank = rank * 10 + static_cast<std::uint32_t>(line[at] - '0');
  if (at == begin || line.substr(at, 2) != ": ") return {std::nullopt, line, true};
  const std::string_view text = line.substr(at + 2);
  return {rank, text, text.size() != RankOutput::kMostInMessage};
}

}  // namespace

void RankOutput::feed(std::string_view chunk, const Take& take) {
  while (!chunk.empty()) {
    const std::size_t end = chunk.find('\n');
    if (end == std::string_view::npos) {
      rest_.append(chunk);
      if (rest_.size() > kMostWaiting) this->end(take);
      return;
    }
    if (rest_.empty()) {
      take(piece_of(chunk.substr(0, end)));
    } else {
      rest_.append(chunk.substr(0, end));
      take(piece_of(rest_));
      rest_.clear();
    }
    chunk.remove_prefix(end + 1);
  }
}

void RankOutput::end(const Take& take) {
  if (rest_.empty()) return;
  Piece piece = piece_of(rest_);
  piece.whole = false;
  take(piece);
  rest_.clear();
}

}  // namespace bellows
