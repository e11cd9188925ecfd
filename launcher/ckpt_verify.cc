// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt_verify.h"

#include <fmt/format.h>

#include "checkpoint/step_reader.h"
#include "checkpoint/store_names.h"

namespace bellows {

std::uint64_t size_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const ShardFile& shard : manifest.shards) bytes += shard.size;
  return bytes;
}

Result<Manifest> verify_shown(const StepPlace& place, ProgressBar& progress) {
  auto listed = read_manifest(place.path());
  if (!listed) return listed;
  progress.begin(fmt::format("verifying step {}", place.step), size_of(*listed));
  auto manifest = verify_step(place.dir, place.step);
  if (!manifest) return manifest;
  if (auto status = progress.add(size_of(*manifest)); !status) return status.error();
  auto reader = StepReader::open(place.path(), *manifest);
  if (!reader) return reader.error();
  if (auto status = (*reader)->check_whole(); !status) {
    return Error{ErrorKind::corrupt, fmt::format("{}: {}", place.path(), status.error().text)};
  }
  return manifest;
}

}  // namespace bellows
