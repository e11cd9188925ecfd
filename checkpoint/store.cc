// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/digest.h"
#include "checkpoint/store_names.h"
#include "checkpoint/wire.h"
#include "common/fd.h"
#include "common/text.h"

namespace bellows {

using nlohmann::json;

namespace {

constexpr std::size_t kMostManifestBytes = 256 << 20;

json shards_to_json(const std::vector<ShardFile>& shards) {
  json list = json::array();
  for (const ShardFile& s : shards) {
    list.push_back({{"rank", s.rank}, {"file", s.file}, {"size", s.size}, {"xxh3", s.xxh3}});
  }
  return list;
}

json to_json(const Manifest& m) {
  return {{"format", "bellows-checkpoint/1"},
          {"step", m.step},
          {"world", m.world},
          {"attempt", m.attempt},
          {"time", m.time},
          {"shards", shards_to_json(m.shards)}};
}

Error not_a_manifest(const std::string& why) {
  return Error{ErrorKind::corrupt, "it is not a manifest: " + why};
}

// Types are checked by at() and get(): json's exceptions end in parse().
Manifest from_json(const json& j) {
  Manifest m;
  m.step = j.at("step").get<std::uint64_t>();
  m.world = j.at("world").get<std::uint32_t>();
  m.attempt = j.at("attempt").get<std::string>();
  m.time = j.at("time").get<double>();
  for (const json& s : j.at("shards")) {
    m.shards.push_back({s.at("rank").get<std::uint32_t>(), s.at("file").get<std::string>(),
                        s.at("size").get<std::uint64_t>(), s.at("xxh3").get<std::string>()});
  }
  return m;
}

Status check_manifest(const Manifest& m) {
  if (m.world == 0 || m.world > wire::kMostWorld || m.shards.size() != m.world) {
    return not_a_manifest(fmt::format("it lists {} files for {} ranks", m.shards.size(), m.world));
  }
  for (std::uint32_t rank = 0; rank < m.world; ++rank) {
    const ShardFile& s = m.shards[rank];
    if (s.rank != rank || s.file != shard_name(rank, m.world) || !is_digest(s.xxh3)) {
      return not_a_manifest(fmt::format("its entry {} is not that of rank {}", rank, rank));
    }
  }
  return {};
}

Status verify_shard(const std::string& path, const ShardFile& shard) {
  auto fd = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd && fd.error().kind == ErrorKind::not_found) {
    return Error{ErrorKind::corrupt, path + " is missing"};
  }
  if (!fd) return fd.error();
  struct stat s;
  if (fstat(fd->get(), &s) < 0) return errno_error("look at", path);
  if (!S_ISREG(s.st_mode)) return Error{ErrorKind::corrupt, path + " is not a plain file"};
  const auto size = static_cast<std::uint64_t>(s.st_size);
  if (size != shard.size) {
    return Error{ErrorKind::corrupt,
                 fmt::format("{} is {}: it has {} bytes, the manifest says {}", path,
                             size < shard.size ? "truncated" : "too long", size, shard.size)};
  }
  Digest digest;
  if (auto status = add_file_range(digest, fd->get(), 0, size, path); !status) return status;
  const std::string found = digest.hex();
  if (found == shard.xxh3) return {};
  return Error{ErrorKind::corrupt,
               fmt::format("{} is damaged: its XXH3-128 is {}, the manifest says {}", path, found,
                           shard.xxh3)};
}

}  // namespace

std::string Manifest::to_string() const {
  json j = to_json(*this);
  j["digest"] = digest_of(j.dump());
  return j.dump(1) + "\n";
}

Result<Manifest> Manifest::parse(std::string_view text) try {
  json j = json::parse(text, nullptr, false);
  if (!j.is_object()) return not_a_manifest("it is not a JSON object");
  if (j.value("format", json()) != "bellows-checkpoint/1") {
    return not_a_manifest("its format is not bellows-checkpoint/1");
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
}

Result<Manifest> read_manifest(const std::string& step_dir) {
  const std::string path = step_dir + "/manifest.json";
  auto text = read_file(path, kMostManifestBytes);
  if (!text && text.error().kind == ErrorKind::not_found) {
    return Error{ErrorKind::corrupt, path + " is missing"};
  }
  if (!text) return text.error();
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

std::optional<std::uint64_t> parse_step_name(std::string_view name) {
  if (name.size() != 25 || name.substr(0, 5) != "step-") return {};
  return parse_uint(name.substr(5));
}

Result<std::vector<std::string>> list_names(const std::string& dir) {
  std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(dir.c_str()), closedir);
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

Result<Manifest> verify_step(const std::string& dir, std::uint64_t step) {
  const std::string path = step_path(dir, step);
  auto manifest = read_manifest(path);
  if (!manifest) return manifest;
  if (manifest->step != step) {
    return Error{ErrorKind::corrupt,
                 fmt::format("{}/manifest.json is that of step {}", path, manifest->step)};
  }
  for (const ShardFile& shard : manifest->shards) {
    auto status = verify_shard(fmt::format("{}/{}", path, shard.file), shard);
    if (!status) return status.error();
  }
  return manifest;
}

Result<NewestStep> newest_step(const std::string& dir) {
  auto steps = list_steps(dir);
  if (!steps) return steps.error();
  NewestStep out;
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    auto manifest = verify_step(dir, *step);
    if (manifest) {
      out.step = *step;
      return out;
    }
    out.skipped.push_back({*step, manifest.error().text});
  }
  return out;
}

}  // namespace bellows
