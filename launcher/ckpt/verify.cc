// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/verify.h"

#include <fmt/core.h>

#include "launcher/ckpt/contents.h"

namespace bellows {

std::uint64_t size_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const ShardFile& shard : manifest.shards) bytes += shard.size + shard.index_size;
  return bytes;
}

Result<Manifest> verify_shown(const StepPlace& place, ProgressBar& progress) {
  auto contents = StepContents::open(place);
  if (!contents) return contents.error();
  const Manifest& manifest = contents->manifest();
  progress.begin(fmt::format("verifying step {}", place.step), size_of(manifest));
  auto status =
      contents->reader().verify([&](std::uint64_t bytes) { (void)progress.add(bytes).ok(); });
  if (!status) return status.error();
  return manifest;
}

}  // namespace bellows
