// SPDX-License-Identifier: Apache-2.0
/// What a registry answers about an image, and the name of an image as a user or a forger would
/// write it: digests become names of files, so nothing else may pass for one, and words of the
/// image's become part of a script, so none may be more than a word.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/container/image_reference.h"
#include "image/layout/manifest.h"
#include "image/layout/rc_script.h"

namespace {

using namespace bellows;
using container::is_digest;

void require(bool holds) {
  if (!holds) std::abort();
}

/// A script without blanks and what is in quotes, as a shell reads them.
std::string bones_of(std::string_view script) {
  std::string bones;
  char quote = 0;
  for (std::size_t i = 0; i < script.size(); ++i) {
    const char c = script[i];
    if (c == '\\' && quote != '\'') {
      ++i;
    } else if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? '\0' : c;
    } else if (quote == '"') {
      require(c != '`' && (c != '$' || script.substr(i).starts_with("$@\"")));
    } else if (quote == 0 && c != ' ') {
      bones += c;
    }
  }
  require(quote == 0);
  return bones;
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
    require(bones_of(image::rc_text(*config)) == bones_of(image::rc_text({})));
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
