// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "modelstore/digest/model_digest.h"

namespace bellows {

/// A model as it lies in memory, and what must be known of it besides its bytes.
struct DiskImage {
  ModelDigest digest;       ///< of all bytes
  std::uint64_t bytes = 0;  ///< a multiple of kDiskBlock, and not 0
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;

  bool operator==(const DiskImage&) const = default;

  /// How many bytes its file has.
  std::uint64_t file_bytes() const;
  /// The last block of its file.
  Result<std::string> trailer() const;
  /// corrupt: this is not what `trailer` gives, as a whole.
  static Result<DiskImage> parse(std::string_view trailer);
};

/// Files are read and written in multiples of it, past the page cache.
inline constexpr std::uint64_t kDiskBlock = 4096;

}  // namespace bellows
