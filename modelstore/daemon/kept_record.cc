// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/kept_record.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/keeper/keeper_wire.h"

namespace bellows {
namespace {

using nlohmann::json;

/// In hexadecimal digits, as digests are.
json json_of(const std::vector<plain::FileIdentity>& files) {
  json all = json::array();
  for (const auto& file : files) all.push_back(ModelDigest{file}.to_string());
  return all;
}

json json_of(const KeptModel& kept) {
  return {{"kind", "model"},
          {"tenant", kept.tenant},
          {"name", kept.model.name},
          {"path", kept.model.from.path},
          {"uid", kept.model.from.uid},
          {"must_have", kept.model.from.digest ? kept.model.from.digest->to_string() : ""},
          {"visible", kept.model.visible},
          {"configured", kept.model.configured},
          {"pinned", kept.pinned},
          {"digest", kept.model.digest ? kept.model.digest->to_string() : ""},
          {"source", kept.model.source ? kept.model.source->to_string() : ""},
          {"files", json_of(kept.model.files)},
          {"bytes", kept.bytes},
          {"catalogue_at", kept.catalogue_at},
          {"catalogue_bytes", kept.catalogue_bytes}};
}

json json_of(const KeptJob& kept) {
  return {{"kind", "job"},
          {"tenant", kept.tenant},
          {"name", kept.job.name},
          {"uid", kept.job.uid},
          {"gpus", kept.job.gpus}};
}

json json_of(const KeptCopy& kept) {
  return {{"kind", kept.is_catalogue ? "catalogue" : "copy"},
          {"job", kept.place.job},
          {"gpu", kept.place.gpu},
          {"model", kept.model},
          {"bytes", kept.bytes},
          {"catalogue_at", kept.catalogue_at},
          {"digest", kept.digest.to_string()}};
}

KeptCopy copy_of(const json& j, bool is_catalogue) {
  KeptCopy kept;
  kept.place = {j.at("job").get<std::string>(), j.at("gpu").get<std::uint64_t>()};
  kept.model = j.at("model").get<ModelId>();
  kept.is_catalogue = is_catalogue;
  kept.bytes = j.at("bytes").get<std::uint64_t>();
  kept.catalogue_at = j.at("catalogue_at").get<std::uint64_t>();
  // One that is none fits no model.
  kept.digest = ModelDigest::parse(j.at("digest").get<std::string>()).value_or(ModelDigest());
  return kept;
}

KeptRecord record_of(const json& j) {
  if (j.at("kind") == "job") {
    KeptJob kept;
    kept.tenant = j.at("tenant").get<std::string>();
    kept.job.name = j.at("name").get<std::string>();
    kept.job.uid = j.at("uid").get<uid_t>();
    kept.job.gpus = j.value("gpus", std::set<std::uint64_t>());
    return kept;
  }
  if (j.at("kind") == "copy" || j.at("kind") == "catalogue")
    return copy_of(j, j.at("kind") == "catalogue");
  KeptModel kept;
  kept.tenant = j.at("tenant").get<std::string>();
  kept.model.name = j.at("name").get<std::string>();
  kept.model.from = {j.at("path").get<std::string>(), j.at("uid").get<uid_t>(),
                     // An older bellows-modeld wrote none.
                     ModelDigest::parse(j.value("must_have", ""))};
  kept.model.visible = j.at("visible").get<std::set<std::string>>();
  kept.model.configured = j.at("configured").get<bool>();
  kept.pinned = j.value("pinned", false);
  kept.model.digest = ModelDigest::parse(j.at("digest").get<std::string>());
  kept.model.source = ModelDigest::parse(j.value("source", ""));
  for (const json& text : j.at("files"))
    if (const auto file = ModelDigest::parse(text.get<std::string>()))
      kept.model.files.push_back(file->bytes);
  kept.bytes = j.at("bytes").get<std::uint64_t>();
  kept.catalogue_at = j.at("catalogue_at").get<std::uint64_t>();
  kept.catalogue_bytes = j.at("catalogue_bytes").get<std::uint64_t>();
  return kept;
}

}  // namespace

std::optional<std::string> text_of(const KeptRecord& record) {
  json j = std::visit([](const auto& kept) { return json_of(kept); }, record);
  std::string text = j.dump(-1, ' ', false, json::error_handler_t::replace);
  // Without its many files it is found by its name still.
  if (text.size() > KeeperMessage::kMostRecord && j.contains("files")) {
    j["files"] = json::array();
    text = j.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  if (text.size() > KeeperMessage::kMostRecord) return std::nullopt;
  return text;
}

// Types are checked by at() and get(): json's exceptions end here.
Result<KeptRecord> parse_kept(std::string_view text) try {
  return record_of(json::parse(text));
} catch (const json::exception& error) {
  return Error{ErrorKind::corrupt,
               std::string("what the keeper has is not of this bellows-modeld: ") + error.what()};
}

}  // namespace bellows
