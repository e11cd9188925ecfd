// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/manifest.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "checkpoint/format/digest.h"
#include "checkpoint/format/json_number.h"
#include "checkpoint/system/file_read.h"
#include "checkpoint/system/memory_reserve.h"
#include "checkpoint/wire/wire.h"
#include "common/fd.h"
#include "common/text.h"

namespace bellows {

using nlohmann::json;

namespace {

constexpr std::size_t kMostManifestBytes = 256 << 20;
constexpr std::size_t kMostIndexBytes = std::size_t{1} << 30;

constexpr const char* kFormat = "bellows-checkpoint/2";

json shards_to_json(const std::vector<ShardFile>& shards) {
  json list = json::array();
  for (const ShardFile& s : shards) {
    list.push_back({{"rank", s.rank},
                    {"file", s.file},
                    {"size", s.size},
                    {"index", s.index},
                    {"index_size", s.index_size},
                    {"index_xxh3", s.index_xxh3}});
  }
  return list;
}

json to_json(const Manifest& m) {
  return {{"format", kFormat},    {"step", m.step}, {"world", m.world},
          {"attempt", m.attempt}, {"time", m.time}, {"shards", shards_to_json(m.shards)}};
}

Error not_a_manifest(const std::string& why) {
  return Error{ErrorKind::corrupt, "it is not a manifest: " + why};
}

// Types are checked by at(), get() and json_number(): what these throw ends in parse().
Manifest from_json(const json& j) {
  Manifest m;
  m.step = json_number(j, "step", UINT64_MAX);
  m.world = static_cast<std::uint32_t>(json_number(j, "world", wire::kMostWorld));
  m.attempt = j.at("attempt").get<std::string>();
  m.time = j.at("time").get<double>();
  for (const json& s : j.at("shards")) {
    ShardFile shard;
    shard.rank = static_cast<std::uint32_t>(json_number(s, "rank", wire::kMostWorld));
    shard.file = s.at("file").get<std::string>();
    shard.size = json_number(s, "size", UINT64_MAX);
    shard.index = s.at("index").get<std::string>();
    shard.index_size = json_number(s, "index_size", UINT64_MAX);
    shard.index_xxh3 = s.at("index_xxh3").get<std::string>();
    m.shards.push_back(std::move(shard));
  }
  return m;
}

Status check_manifest(const Manifest& m) {
  if (m.world == 0 || m.world > wire::kMostWorld || m.shards.size() != m.world) {
    return not_a_manifest(fmt::format("it lists {} files for {} ranks", m.shards.size(), m.world));
  }
  for (std::uint32_t rank = 0; rank < m.world; ++rank) {
    const ShardFile& s = m.shards[rank];
    const bool described = s.index == index_name(rank, m.world) && is_digest(s.index_xxh3);
    if (s.rank != rank || s.file != shard_name(rank, m.world) || !described) {
      return not_a_manifest(fmt::format("its entry {} does not belong to rank {}", rank, rank));
    }
  }
  return {};
}

}  // namespace

std::string Manifest::to_string() const {
  need_memory(shards.size() * 2048);
  json j = to_json(*this);
  j["digest"] = digest_of(j.dump());
  return j.dump(1) + "\n";
}

Result<Manifest> Manifest::parse(std::string_view text) try {
  need_memory(text.size() * 8);
  json j = json::parse(text, nullptr, false);
  if (!j.is_object()) return not_a_manifest("it is not a JSON object");
  if (j.value("format", json()) != kFormat)
    return not_a_manifest(fmt::format("its format is not {}", kFormat));
  const json digest = j.value("digest", json());
  j.erase("digest");
  if (digest != digest_of(j.dump())) {
    return Error{ErrorKind::corrupt, "it was changed after it was written: its digest is wrong"};
  }
  Manifest m = from_json(j);
  if (auto status = check_manifest(m); !status) return status.error();
  return m;
} catch (const json::exception& e) {
  return not_a_manifest(e.what());
} catch (const NotANumber& e) {
  return not_a_manifest(e.text);
}

Result<Manifest> read_manifest(const std::string& step_dir) {
  const std::string path = step_dir + "/manifest.json";
  auto text = read_file(path, kMostManifestBytes);
  if (!text) return unreadable(text.error(), path);
  auto manifest = Manifest::parse(*text);
  if (manifest) return manifest;
  return Error{manifest.error().kind, fmt::format("{}: {}", path, manifest.error().text)};
}

std::string step_path(const std::string& dir, std::uint64_t step) {
  return fmt::format("{}/step-{:020}", dir, step);
}

std::string shard_name(std::uint32_t rank, std::uint32_t world) {
  return fmt::format("shard-{:05}-of-{:05}.h5", rank, world);
}

std::string index_name(std::uint32_t rank, std::uint32_t world) {
  return fmt::format("shard-{:05}-of-{:05}.index", rank, world);
}

Result<ShardIndex> read_index(const std::string& step_dir, const Manifest& manifest,
                              const ShardFile& shard) {
  const std::string path = fmt::format("{}/{}", step_dir, shard.index);
  auto fd = open_shard(path, shard.index_size);
  if (!fd) return fd.error();
  if (shard.index_size > kMostIndexBytes)
    return Error{ErrorKind::corrupt, path + ": it is too long for an index"};
  std::string text(shard.index_size, 0);
  auto status =
      read_at(fd->get(), reinterpret_cast<unsigned char*>(text.data()), text.size(), 0, path);
  if (!status) return status.error();
  return parse_index(path, text, manifest, shard);
}

Result<ShardIndex> parse_index(const std::string& path, std::string_view text,
                               const Manifest& manifest, const ShardFile& shard) {
  const auto corrupt = [&](const std::string& why) {
    return Error{ErrorKind::corrupt, fmt::format("{}: {}", path, why)};
  };
  if (digest_of(text) != shard.index_xxh3) {
    return corrupt("it is damaged: the manifest has another digest for it");
  }
  auto index = ShardIndex::parse(text);
  if (!index) return corrupt(index.error().text);
  if (index->step == manifest.step && index->rank == shard.rank && index->world == manifest.world &&
      index->size == shard.size) {
    return index;
  }
  return corrupt("it belongs to another shard");
}

std::optional<std::uint64_t> parse_step_name(std::string_view name) {
  if (name.size() != 25 || name.substr(0, 5) != "step-") return {};
  return parse_uint(name.substr(5));
}

}  // namespace bellows
