// SPDX-License-Identifier: Apache-2.0
/// What srun passes on, the lines of a log that another user may have written, and sacct's answer.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/logs/log_line.h"
#include "launcher/ranks/rank_output.h"
#include "launcher/slurm/records.h"

namespace {

/// The pieces of a stream that comes in chunks of this size.
std::string pieces_of(std::string_view stream, std::size_t chunk) {
  bellows::RankOutput ranks;
  std::string pieces;
  const auto take = [&pieces](const bellows::RankOutput::Piece& piece) {
    pieces += piece.rank ? std::to_string(*piece.rank) : "-";
    pieces += piece.whole ? ':' : '+';
    pieces.append(piece.text).push_back('\n');
  };
  for (std::size_t at = 0; at < stream.size(); at += chunk)
    ranks.feed(stream.substr(at, chunk), take);
  ranks.end(take);
  return pieces;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (pieces_of(text, 7) != pieces_of(text, 1 << 16)) std::abort();
  if (const auto line = bellows::LogLine::parse(text)) {
    const auto again = bellows::LogLine::parse(line->to_text());
    if (!again || again->to_text() != line->to_text()) std::abort();
  }
  if (const auto file = bellows::LogFile::parse(text); file && file->name() != text) std::abort();
  if (const auto runs = bellows::parse_records(text); !runs && runs.error().text.empty())
    std::abort();
  return 0;
}
