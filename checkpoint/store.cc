// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "checkpoint/block_reader.h"
#include "checkpoint/digest.h"
#include "checkpoint/json_number.h"
#include "checkpoint/memory_reserve.h"
#include "checkpoint/retry.h"
#include "checkpoint/step_reader.h"
#include "checkpoint/store_names.h"
#include "checkpoint/wire.h"
#include "common/directory.h"
#include "common/fd.h"
#include "common/text.h"

namespace bellows {

using nlohmann::json;

namespace {

constexpr std::size_t kMostManifestBytes = 256 << 20;
constexpr std::size_t kMostIndexBytes = std::size_t{1} << 30;

constexpr const char* kFormat = "bellows-checkpoint/2";
constexpr const char* kFormat1 = "bellows-checkpoint/1";

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
  m.version = j.at("format") == kFormat1 ? 1 : 2;
  for (const json& s : j.at("shards")) {
    ShardFile shard;
    shard.rank = static_cast<std::uint32_t>(json_number(s, "rank", wire::kMostWorld));
    shard.file = s.at("file").get<std::string>();
    shard.size = json_number(s, "size", UINT64_MAX);
    if (m.version == 1) {
      shard.xxh3 = s.at("xxh3").get<std::string>();
    } else {
      shard.index = s.at("index").get<std::string>();
      shard.index_size = json_number(s, "index_size", UINT64_MAX);
      shard.index_xxh3 = s.at("index_xxh3").get<std::string>();
    }
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
    const bool described = m.version == 1
                               ? is_digest(s.xxh3)
                               : s.index == index_name(rank, m.world) && is_digest(s.index_xxh3);
    if (s.rank != rank || s.file != shard_name(rank, m.world) || !described) {
      return not_a_manifest(fmt::format("its entry {} is not that of rank {}", rank, rank));
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
  const json format = j.value("format", json());
  if (format != kFormat && format != kFormat1) {
    return not_a_manifest(fmt::format("its format is not {} or {}", kFormat, kFormat1));
  }
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
  const auto corrupt = [&](const std::string& why) {
    return Error{ErrorKind::corrupt, fmt::format("{}: {}", path, why)};
  };
  auto fd = open_shard(path, shard.index_size);
  if (!fd) return fd.error();
  if (shard.index_size > kMostIndexBytes) return corrupt("it is too long for an index");
  std::string text(shard.index_size, 0);
  auto status =
      read_at(fd->get(), reinterpret_cast<unsigned char*>(text.data()), text.size(), 0, path);
  if (!status) return status.error();
  if (digest_of(text) != shard.index_xxh3) {
    return corrupt("it is damaged: the manifest has another digest for it");
  }
  auto index = ShardIndex::parse(text);
  if (!index) return corrupt(index.error().text);
  if (index->step == manifest.step && index->rank == shard.rank && index->world == manifest.world &&
      index->size == shard.size) {
    return index;
  }
  return corrupt("it is that of another shard");
}

std::optional<std::uint64_t> parse_step_name(std::string_view name) {
  if (name.size() != 25 || name.substr(0, 5) != "step-") return {};
  return parse_uint(name.substr(5));
}

Result<std::vector<std::string>> list_names(const std::string& dir) {
  const Directory stream(opendir(dir.c_str()));
  std::vector<std::string> names;
  if (!stream && errno == ENOENT) return names;
  if (!stream) return errno_error("list", dir);
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (!entry && errno != 0) return errno_error("list", dir);
    if (!entry) return names;
    names.emplace_back(entry->d_name);
  }
}

Result<std::vector<std::uint64_t>> list_steps(const std::string& dir) {
  auto names = list_names(dir);
  if (!names) return names.error();
  std::vector<std::uint64_t> steps;
  for (const std::string& name : *names) {
    if (auto step = parse_step_name(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::shared_ptr<const StepReader>> open_step(const std::string& dir, std::uint64_t step) {
  const std::string path = step_path(dir, step);
  auto manifest = read_manifest(path);
  if (!manifest) return manifest.error();
  if (manifest->step != step) {
    return Error{ErrorKind::corrupt,
                 fmt::format("{}/manifest.json is that of step {}", path, manifest->step)};
  }
  for (const ShardFile& shard : manifest->shards) {
    auto fd = open_shard(fmt::format("{}/{}", path, shard.file), shard.size);
    if (!fd) return fd.error();
  }
  return StepReader::open(path, *manifest);
}

Result<Manifest> verify_step(const std::string& dir, std::uint64_t step, const Progress& progress) {
  auto reader = open_step(dir, step);
  if (!reader) return reader.error();
  // Opening a step of the first format has verified it.
  if ((*reader)->manifest().version == 1) return (*reader)->manifest();
  if (auto status = (*reader)->verify(progress); !status) return status.error();
  return (*reader)->manifest();
}

namespace {

// What is known or found to be wrong with a step.
Status try_step(const std::string& dir, std::uint64_t step, const Search& search) {
  for (const SkippedStep& bad : search.bad) {
    if (bad.step == step) return Error{ErrorKind::corrupt, bad.error};
  }
  if (search.whole) {
    auto verified = verify_step(dir, step);
    return verified ? Status() : Status(verified.error());
  }
  auto reader = open_step(dir, step);
  return reader ? Status() : Status(reader.error());
}

}  // namespace

Result<NewestStep> choose_step(const std::vector<std::uint64_t>& steps, const LookAtStep& look) {
  NewestStep out;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const Status status = read_with_patience([&] { return look(*step); });
    if (status) {
      out.step = *step;
      return out;
    }
    const Error& error = status.error();
    if (may_pass(error)) {
      return Error{error.kind,
                   fmt::format("step {} cannot be read now, which does not make an older one the "
                               "newest; try again: {}",
                               *step, error.text)};
    }
    out.skipped.push_back({*step, error.text});
  }
  return out;
}

Result<NewestStep> newest_step(const std::string& dir, const Search& search) {
  auto steps = read_with_patience([&] { return list_steps(dir); });
  if (!steps) return steps.error();
  return choose_step(*steps, [&](std::uint64_t step) { return try_step(dir, step, search); });
}

}  // namespace bellows
