// SPDX-License-Identifier: Apache-2.0
/// What a registry answers about an image, and the name of an image as a user or a forger would
/// write it: digests become names of files, so nothing else may pass for one.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/container/image_reference.h"
#include "image/layout/manifest.h"

namespace {

using namespace bellows;
using container::is_digest;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_answers(std::string_view text) {
  if (const auto manifest = image::parse_manifest(text)) {
    require(is_digest(manifest->config.digest));
    require(manifest->layers.size() <= image::kMostLayers);
    for (const auto& layer : manifest->layers) require(is_digest(layer.digest));
  }
  if (const auto config = image::parse_config(text)) {
    for (const auto& id : config->diff_ids) require(is_digest(id));
    for (const auto& variable : config->environment)
      require(variable.find('=') != 0 && variable.find('=') != variable.npos &&
              variable.find('\n') == variable.npos);
  }
  if (const auto index = image::parse_layout_index(text)) require(is_digest(index->digest));
}

void check_name(std::string_view text) {
  const auto reference = container::parse_reference(text);
  if (!reference) return require(!reference.error().text.empty());
  require(reference->tag.empty() != reference->digest.empty());
  require(reference->name.find("..") == std::string::npos);
  for (const char c : reference->text()) require(c > ' ' && c < 0x7f);
  const auto again = container::parse_reference(reference->text());
  require(again && *again == *reference);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_answers(text);
  check_name(text);
  return 0;
}
