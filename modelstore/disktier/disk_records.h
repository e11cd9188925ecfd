// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "modelstore/digest/model_digest.h"

namespace bellows {

/// An image is of each tenant that has stored it, as if the others had not; its file is one.
struct ImageOf {
  ModelDigest digest;
  std::string tenant;

  auto operator<=>(const ImageOf&) const = default;
};

/// What is known of a tenant's image besides what its file says.
struct DiskRecord {
  static constexpr std::size_t kMostSources = 16;

  std::int64_t last_used_ms = 0;  ///< since 1970
  std::uint64_t uses = 0;
  std::uint64_t load_ms = 0;         ///< how long its source took
  std::vector<ModelDigest> sources;  ///< from which it was read, in which version; the latest last

  bool operator==(const DiskRecord&) const = default;

  /// Forgets the oldest of too many.
  void add_source(const ModelDigest& source);
};

using DiskRecords = std::map<ImageOf, DiskRecord>;

/// As text, which begins with its own digest.
Result<std::string> text_of(const DiskRecords& records);
/// corrupt: text_of did not write it.
Result<DiskRecords> parse_records(std::string_view text);

}  // namespace bellows
