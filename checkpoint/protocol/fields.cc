// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/fields.h"

#include <fmt/core.h>

#include <array>

#include "checkpoint/wire/wire.h"

namespace bellows {
namespace {

using nlohmann::json;

constexpr std::array<const char*, 8> kErrorKinds = {"invalid", "not_found", "denied", "unavailable",
                                                    "corrupt", "busy",      "io",     "internal"};
constexpr std::array<const char*, 3> kSignals = {"", "TERM", "USR1"};
constexpr std::array<const char*, 5> kRankStates = {"joined", "finished", "stopped", "exited",
                                                    "lost"};

/// The enumerator whose place in `names` the name has, if one has.
template <typename Enum, std::size_t N>
std::optional<Enum> enumerator(const std::array<const char*, N>& names, const std::string& name) {
  for (std::size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<Enum>(i);
  return {};
}

template <typename Enum, std::size_t N>
const char* name_of(const std::array<const char*, N>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

// json's numbers convert silently between kinds and signs; a protocol wants what it says.
std::uint64_t whole(const json& value, const char* key, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    throw Error{ErrorKind::invalid,
                fmt::format("\"{}\" is not a whole number from 0 to {}", key, most)};
  return value.get<std::uint64_t>();
}

std::optional<std::uint64_t> whole_step(const json& value, const char* key) {
  if (value.is_null()) return {};
  return whole(value, key, wire::kNoStep - 1);
}

std::vector<std::uint32_t> rank_list(const json& list, const char* key) {
  std::vector<std::uint32_t> ranks;
  for (const json& rank : list)
    ranks.push_back(static_cast<std::uint32_t>(whole(rank, key, wire::kMostWorld - 1)));
  return ranks;
}

/// The table of a shard's fields, as of the messages in protocol.cc.
template <typename Io, typename S>
void shard_fields(Io&& io, S& shard) {
  io.number("rank", shard.rank);
  io.text("file", shard.file);
  io.number("size", shard.size, INT64_MAX);
  io.text("index", shard.index);
  io.number("index_size", shard.index_size, INT64_MAX);
  io.text("index_xxh3", shard.index_xxh3);
}

json nullable(const std::optional<std::uint64_t>& value) {
  return value ? json(*value) : json(nullptr);
}

}  // namespace

void FieldReader::text(const char* key, std::string& to) const {
  to = from_.at(key).get<std::string>();
}

void FieldReader::optional_text(const char* key, std::string& to) const {
  if (from_.contains(key)) text(key, to);
}

void FieldReader::optional_text(const char* key, std::optional<std::string>& to) const {
  if (from_.contains(key)) text(key, to.emplace());
}

void FieldReader::optional_flag(const char* key, bool& to) const { to = from_.value(key, to); }

void FieldReader::number(const char* key, std::uint64_t& to, std::uint64_t most) const {
  to = whole(from_.at(key), key, most);
}

void FieldReader::number(const char* key, std::uint32_t& to, std::uint64_t most) const {
  to = static_cast<std::uint32_t>(whole(from_.at(key), key, most));
}

void FieldReader::optional_number(const char* key, std::uint64_t& to) const {
  if (from_.contains(key)) number(key, to);
}

void FieldReader::optional_number(const char* key, std::uint32_t& to) const {
  if (from_.contains(key)) number(key, to);
}

void FieldReader::optional_pid(const char* key, std::int64_t& to) const {
  to = from_.value(key, to);
}

void FieldReader::step(const char* key, std::uint64_t& to) const {
  to = whole(from_.at(key), key, wire::kNoStep - 1);
}

void FieldReader::nullable_step(const char* key, std::optional<std::uint64_t>& to) const {
  to = whole_step(from_.at(key), key);
}

void FieldReader::optional_step(const char* key, std::optional<std::uint64_t>& to) const {
  if (from_.contains(key)) nullable_step(key, to);
}

void FieldReader::optional_steps(const char* key,
                                 std::vector<std::optional<std::uint64_t>>& to) const {
  for (const json& step : from_.value(key, json::array())) to.push_back(whole_step(step, key));
}

void FieldReader::optional_ranks(const char* key, std::vector<std::uint32_t>& to) const {
  to = rank_list(from_.value(key, json::array()), key);
}

void FieldReader::ranks_of_nodes(const char* key,
                                 std::map<std::string, std::vector<std::uint32_t>>& to) const {
  for (const auto& [node, ranks] : from_.at(key).items()) to[node] = rank_list(ranks, key);
}

ErrorKind FieldReader::error_kind() const {
  return enumerator<ErrorKind>(kErrorKinds, from_.value("kind", "io")).value_or(ErrorKind::io);
}

void FieldReader::error(Error& to) const {
  text("error", to.text);
  to.kind = error_kind();
}

void FieldReader::optional_error(std::optional<Error>& to) const {
  std::string text;
  optional_text("error", text);
  const ErrorKind kind = error_kind();
  if (!text.empty()) to = Error{kind, std::move(text)};
}

void FieldReader::optional_access(const char* key, Access& to) const {
  to = access_named(from_.value(key, ""));
}

void FieldReader::optional_signal(const char* key, event::Progress::Signal& to) const {
  using Signal = event::Progress::Signal;
  std::string name;
  optional_text(key, name);
  to = enumerator<Signal>(kSignals, name).value_or(Signal::none);
}

void FieldReader::rank_state(const char* key, event::Rank::State& to) const {
  std::string name;
  text(key, name);
  const auto state = enumerator<event::Rank::State>(kRankStates, name);
  if (!state)
    throw Error{ErrorKind::invalid, fmt::format("unknown \"{}\" of a rank: \"{:.40}\"", key, name)};
  to = *state;
}

void FieldReader::optional_skipped(const char* key, std::vector<SkippedStep>& to) const {
  for (const json& skipped : from_.value(key, json::array()))
    to.push_back({whole(skipped.at("step"), "step", wire::kNoStep - 1),
                  skipped.at("error").get<std::string>()});
}

void FieldReader::optional_rendezvous(std::optional<Rendezvous>& to) const {
  if (from_.contains("address"))
    to = {from_["address"].get<std::string>(),
          static_cast<std::uint16_t>(whole(from_.at("port"), "port", UINT16_MAX))};
}

void FieldReader::shard(ShardFile& to) const { shard_fields(*this, to); }

void FieldReader::shards(const char* key, std::vector<ShardFile>& to) const {
  for (const json& shard : from_.at(key)) FieldReader(shard).shard(to.emplace_back());
}

void FieldWriter::optional_text(const char* key, const std::string& value) {
  if (!value.empty()) to_[key] = value;
}

void FieldWriter::optional_text(const char* key, const std::optional<std::string>& value) {
  if (value) to_[key] = *value;
}

void FieldWriter::nullable_step(const char* key, const std::optional<std::uint64_t>& value) {
  to_[key] = nullable(value);
}

void FieldWriter::optional_step(const char* key, const std::optional<std::uint64_t>& value) {
  to_[key] = nullable(value);
}

void FieldWriter::optional_steps(const char* key,
                                 const std::vector<std::optional<std::uint64_t>>& value) {
  to_[key] = json::array();
  for (const auto& step : value) to_[key].push_back(nullable(step));
}

void FieldWriter::optional_ranks(const char* key, const std::vector<std::uint32_t>& value) {
  to_[key] = value;
}

void FieldWriter::ranks_of_nodes(const char* key,
                                 const std::map<std::string, std::vector<std::uint32_t>>& value) {
  to_[key] = json::object();
  for (const auto& [node, ranks] : value) to_[key][node] = ranks;
}

void FieldWriter::error(const Error& value) {
  to_["error"] = value.text;
  to_["kind"] = name_of(kErrorKinds, value.kind);
}

void FieldWriter::optional_error(const std::optional<Error>& value) {
  if (value) return error(*value);
  to_["kind"] = name_of(kErrorKinds, ErrorKind::io);
}

void FieldWriter::optional_access(const char* key, Access value) { to_[key] = access_name(value); }

void FieldWriter::optional_signal(const char* key, event::Progress::Signal value) {
  optional_text(key, std::string(name_of(kSignals, value)));
}

void FieldWriter::rank_state(const char* key, event::Rank::State value) {
  to_[key] = name_of(kRankStates, value);
}

void FieldWriter::optional_skipped(const char* key, const std::vector<SkippedStep>& value) {
  to_[key] = json::array();
  for (const SkippedStep& skipped : value)
    to_[key].push_back({{"step", skipped.step}, {"error", skipped.error}});
}

void FieldWriter::optional_rendezvous(const std::optional<Rendezvous>& value) {
  if (!value) return;
  to_["address"] = value->address;
  to_["port"] = value->port;
}

void FieldWriter::shard(const ShardFile& value) { shard_fields(*this, value); }

void FieldWriter::shards(const char* key, const std::vector<ShardFile>& value) {
  to_[key] = json::array();
  for (const ShardFile& shard : value) {
    json one = json::object();
    FieldWriter(one).shard(shard);
    to_[key].push_back(std::move(one));
  }
}

}  // namespace bellows
