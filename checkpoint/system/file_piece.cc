// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/file_piece.h"

#include <algorithm>
#include <cstring>

namespace bellows {

std::vector<FilePiece>::const_iterator piece_at(const std::vector<FilePiece>& pieces,
                                                std::uint64_t begin) {
  return std::upper_bound(
      pieces.begin(), pieces.end(), begin,
      [](std::uint64_t at, const FilePiece& p) { return at < p.offset + p.bytes; });
}

void copy_pieces(const std::vector<FilePiece>& pieces, std::uint64_t begin, std::uint64_t bytes,
                 unsigned char* to) {
  auto piece = piece_at(pieces, begin);
  for (std::uint64_t done = 0; done < bytes; ++piece) {
    const std::uint64_t skip = begin + done - piece->offset;
    const std::uint64_t now = std::min(piece->bytes - skip, bytes - done);
    std::memcpy(to + done, piece->data + skip, now);
    done += now;
  }
}

}  // namespace bellows
