// SPDX-License-Identifier: Apache-2.0
/// A manifest as a damaged disk or another user would leave it. Its digest would stop nearly all
/// mutations at the door, so the text is also tried with a digest that fits.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/format/digest.h"
#include "checkpoint/store/store.h"

namespace {

void check(std::string_view text) {
  const auto manifest = bellows::Manifest::parse(text);
  if (!manifest) {
    if (manifest.error().kind != bellows::ErrorKind::corrupt) std::abort();
    return;
  }
  if (manifest->world == 0 || manifest->shards.size() != manifest->world) std::abort();
  for (const bellows::ShardFile& shard : manifest->shards) {
    if (shard.file.find('/') != std::string::npos) std::abort();
    if (shard.index.find('/') != std::string::npos) std::abort();
  }
  const auto again = bellows::Manifest::parse(manifest->to_string());
  if (!again || again->shards != manifest->shards || again->step != manifest->step) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return 0;
  json.erase("digest");
  try {
    json["digest"] = bellows::digest_of(json.dump());
    check(json.dump());
  } catch (const nlohmann::json::exception&) {
    // Not UTF-8: such a text has no digest.
  }
  return 0;
}
