// SPDX-License-Identifier: Apache-2.0
#include "modelstore/disktier/disk_records.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "modelstore/digest/tree_digest.h"

namespace bellows {
namespace {

using nlohmann::json;

constexpr std::size_t kDigestText = 64;

Result<std::string> check_of(std::string_view text) {
  auto hasher = TreeHasher::make();
  if (!hasher) return hasher.error();
  const auto digest = hasher->leaf(text);
  if (!digest) return digest.error();
  return digest->to_string();
}

Error wrong(const std::string& why) {
  return Error{ErrorKind::corrupt, "these are no records of images: " + why};
}

DiskRecord record_of(const json& j, bool* right) {
  DiskRecord record;
  record.last_used_ms = j.at("last_used").get<std::int64_t>();
  record.uses = j.at("uses").get<std::uint64_t>();
  record.load_ms = j.at("load_ms").get<std::uint64_t>();
  for (const json& text : j.at("sources")) {
    const auto source = ModelDigest::parse(text.get<std::string>());
    *right = *right && source && record.sources.size() < DiskRecord::kMostSources;
    if (*right) record.sources.push_back(*source);
  }
  return record;
}

}  // namespace

void DiskRecord::add_source(const ModelDigest& source) {
  sources.erase(std::remove(sources.begin(), sources.end(), source), sources.end());
  sources.push_back(source);
  if (sources.size() > kMostSources) sources.erase(sources.begin());
}

Result<std::string> text_of(const DiskRecords& records) {
  json all = json::object();
  for (const auto& [image, record] : records) {
    std::vector<std::string> sources;
    for (const ModelDigest& source : record.sources) sources.push_back(source.to_string());
    all[image.digest.to_string()][image.tenant] = {{"last_used", record.last_used_ms},
                                                   {"uses", record.uses},
                                                   {"load_ms", record.load_ms},
                                                   {"sources", sources}};
  }
  const std::string text = all.dump(-1, ' ', false, json::error_handler_t::replace);
  auto check = check_of(text);
  if (!check) return check;
  return *check + "\n" + text;
}

// Types are checked by at() and get(): json's exceptions end here.
Result<DiskRecords> parse_records(std::string_view text) try {
  if (text.size() <= kDigestText || text[kDigestText] != '\n') return wrong("they are too short");
  const std::string_view body = text.substr(kDigestText + 1);
  const auto check = check_of(body);
  if (!check) return check.error();
  if (*check != text.substr(0, kDigestText)) return wrong("they do not have their digest");
  DiskRecords records;
  const json all = json::parse(body);
  bool right = all.is_object();
  for (const auto& [name, j] : all.items()) {
    const auto digest = ModelDigest::parse(name);
    right = right && digest && j.is_object();
    if (!right) return wrong("one of them is damaged");
    for (const auto& [tenant, record] : j.items())
      records[{*digest, tenant}] = record_of(record, &right);
    if (!right) return wrong("one of them is damaged");
  }
  if (!right) return wrong("they are no object");
  return records;
} catch (const json::exception& error) {
  return wrong(error.what());
}

}  // namespace bellows
