// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace bellows {

/// Bytes of a file that lie somewhere in memory.
struct FilePiece {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  const unsigned char* data = nullptr;
};

/// The first piece with bytes past `begin`. The pieces ascend and cover the file.
std::vector<FilePiece>::const_iterator piece_at(const std::vector<FilePiece>& pieces,
                                                std::uint64_t begin);

/// Copies a part of the file that the pieces cover.
void copy_pieces(const std::vector<FilePiece>& pieces, std::uint64_t begin, std::uint64_t bytes,
                 unsigned char* to);

}  // namespace bellows
