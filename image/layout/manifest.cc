// SPDX-License-Identifier: Apache-2.0
#include "image/layout/manifest.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/container/image_reference.h"
#include "common/text.h"

namespace bellows::image {
namespace {

using container::is_digest;
using Json = nlohmann::json;

constexpr std::size_t kMostVariables = 4096;

Error bad(std::string_view what, std::string_view why) {
  return {ErrorKind::invalid, fmt::format("the {} is not one of an image: {}", what, why)};
}

Result<Json> read(std::string_view text, std::string_view what) {
  if (text.size() > kMostJson)
    return bad(what, fmt::format("it has more than {} bytes", kMostJson));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return bad(what, "it is no JSON object");
  return json;
}

/// Null where there is none.
const Json* member(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

std::string text_of(const Json* json) {
  return json != nullptr && json->is_string() ? json->get<std::string>() : std::string();
}

Result<Blob> read_blob(const Json* json, std::string_view what) {
  if (json == nullptr) return bad(what, "a descriptor is missing");
  Blob blob{text_of(member(*json, "digest")), 0};
  if (!is_digest(blob.digest))
    return bad(what, fmt::format("\"{}\" is not a SHA-256", one_line(blob.digest, 96)));
  const Json* size = member(*json, "size");
  if (size == nullptr || !size->is_number_unsigned()) return bad(what, "a descriptor has no size");
  blob.bytes = size->get<std::uint64_t>();
  return blob;
}

/// An array with at most `most` elements; null where there is none.
Result<const Json*> read_list(const Json& json, const char* name, std::size_t most,
                              std::string_view what) {
  const Json* list = member(json, name);
  if (list == nullptr || list->is_null()) return nullptr;
  if (!list->is_array() || list->size() > most)
    return bad(what, fmt::format("its {} are not a list of at most {}", name, most));
  return list;
}

/// Words of a command line.
Result<std::vector<std::string>> read_words(const Json& json, const char* name,
                                            std::string_view what) {
  const auto list = read_list(json, name, kMostVariables, what);
  if (!list) return list.error();
  std::vector<std::string> words;
  if (*list == nullptr) return words;
  for (const Json& word : **list) {
    words.push_back(text_of(&word));
    if (!word.is_string() || words.back().find('\0') != std::string::npos)
      return bad(what, fmt::format("its {} is no list of words", name));
  }
  return words;
}

}  // namespace

Result<ImageManifest> parse_manifest(std::string_view text) {
  constexpr std::string_view kWhat = "manifest";
  const auto json = read(text, kWhat);
  if (!json) return json.error();
  auto config = read_blob(member(*json, "config"), kWhat);
  if (!config) return config.error();
  const auto layers = read_list(*json, "layers", kMostLayers, kWhat);
  if (!layers) return layers.error();
  ImageManifest manifest{*std::move(config), {}};
  if (*layers == nullptr) return manifest;
  for (const Json& entry : **layers) {
    auto layer = read_blob(&entry, kWhat);
    if (!layer) return layer.error();
    manifest.layers.push_back(*std::move(layer));
  }
  return manifest;
}

Result<ImageConfig> parse_config(std::string_view text) {
  constexpr std::string_view kWhat = "configuration";
  const auto json = read(text, kWhat);
  if (!json) return json.error();
  ImageConfig config;
  if (const Json* rootfs = member(*json, "rootfs")) {
    const auto ids = read_list(*rootfs, "diff_ids", kMostLayers, kWhat);
    if (!ids) return ids.error();
    if (*ids != nullptr)
      for (const Json& id : **ids) config.diff_ids.push_back(text_of(&id));
  }
  for (const std::string& id : config.diff_ids)
    if (!is_digest(id)) return bad(kWhat, fmt::format("\"{}\" is not a SHA-256", one_line(id, 96)));
  const Json* run = member(*json, "config");
  if (run == nullptr) return config;
  config.workdir = text_of(member(*run, "WorkingDir"));
  auto entrypoint = read_words(*run, "Entrypoint", kWhat);
  if (!entrypoint) return entrypoint.error();
  auto command = read_words(*run, "Cmd", kWhat);
  if (!command) return command.error();
  config.entrypoint = *std::move(entrypoint);
  config.command = *std::move(command);
  const auto variables = read_list(*run, "Env", kMostVariables, kWhat);
  if (!variables) return variables.error();
  if (*variables == nullptr) return config;
  for (const Json& variable : **variables) {
    std::string entry = text_of(&variable);
    if (is_variable_name(entry.substr(0, entry.find('='))) && entry.find('=') != entry.npos &&
        entry.find_first_of(std::string_view("\n\r\0", 3)) == entry.npos)
      config.environment.push_back(std::move(entry));
  }
  return config;
}

Result<Blob> parse_layout_index(std::string_view text) {
  constexpr std::string_view kWhat = "index";
  const auto json = read(text, kWhat);
  if (!json) return json.error();
  const auto manifests = read_list(*json, "manifests", kMostLayers, kWhat);
  if (!manifests) return manifests.error();
  if (*manifests == nullptr || (*manifests)->size() != 1)
    return bad(kWhat, "it does not name one manifest");
  return read_blob(&(**manifests)[0], kWhat);
}

}  // namespace bellows::image
