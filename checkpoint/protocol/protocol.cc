// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/protocol.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>

#include "checkpoint/wire/wire.h"

namespace bellows {

using nlohmann::json;

namespace {

constexpr std::array<const char*, 10> kCommands = {
    "hello", "find", "restore", "gate", "stop", "commit", "committed", "failed", "query", "quit"};
constexpr std::array<const char*, 13> kEvents = {
    "hello",    "found", "ready",      "gated", "stop_set",      "committed", "error",
    "progress", "shard", "save_error", "rank",  "restore_error", "restored"};
constexpr std::array<const char*, 8> kKinds = {"invalid", "not_found", "denied", "unavailable",
                                               "corrupt", "busy",      "io",     "internal"};

template <std::size_t N>
int index_of(const std::array<const char*, N>& names, const std::string& name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  return -1;
}

// json's numbers convert silently between kinds and signs; a protocol wants what it says.
std::uint64_t number(const json& j, const char* key, std::uint64_t most) {
  const json& value = j.at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
    throw Error{ErrorKind::invalid,
                fmt::format("\"{}\" is not a whole number from 0 to {}", key, most)};
  }
  return value.get<std::uint64_t>();
}

std::uint32_t number32(const json& j, const char* key) {
  return static_cast<std::uint32_t>(number(j, key, UINT32_MAX));
}

// null, or no such key: nothing.
std::optional<std::uint64_t> step_of(const json& j, const char* key = "step") {
  if (!j.contains(key) || j[key].is_null()) return {};
  return number(j, key, wire::kNoStep - 1);
}

std::vector<std::optional<std::uint64_t>> step_list(const json& list) {
  std::vector<std::optional<std::uint64_t>> steps;
  for (const json& step : list) steps.push_back(step_of(json{{"step", step}}));
  return steps;
}

std::uint64_t step_needed(const json& j) { return number(j, "step", wire::kNoStep - 1); }

std::uint64_t id_or_0(const json& j) { return j.contains("id") ? number(j, "id", UINT64_MAX) : 0; }

ErrorKind kind_of(const json& j) {
  const int kind = index_of(kKinds, j.value("kind", "io"));
  return kind < 0 ? ErrorKind::io : static_cast<ErrorKind>(kind);
}

json nullable(const std::optional<std::uint64_t>& value) {
  return value ? json(*value) : json(nullptr);
}

void check_attempt(const std::string& attempt) {
  const bool good = !attempt.empty() && attempt.size() <= 128 && attempt[0] != '.' &&
                    attempt.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == std::string::npos;
  if (!good) throw Error{ErrorKind::invalid, "\"attempt\" may hold letters, digits and ._- only"};
}

std::vector<std::uint32_t> rank_list(const json& list) {
  std::vector<std::uint32_t> ranks;
  for (const json& rank : list) {
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() >= wire::kMostWorld) {
      throw Error{ErrorKind::invalid, "a rank is not a number from 0 to 1048575"};
    }
    ranks.push_back(rank.get<std::uint32_t>());
  }
  return ranks;
}

void read_hello(const json& j, Command* c) {
  c->dir = j.at("dir").get<std::string>();
  c->attempt = j.at("attempt").get<std::string>();
  c->leader = j.at("leader").get<std::string>();
  c->world = static_cast<std::uint32_t>(number(j, "world", wire::kMostWorld));
  if (j.contains("keep")) c->keep = number32(j, "keep");
  if (j.contains("keep_every")) c->keep_every = number(j, "keep_every", UINT64_MAX);
  c->base = j.value("base", "");
  c->access = access_named(j.value("access", ""));
  check_attempt(c->attempt);
  if (j.contains("replaces")) c->replaces = j["replaces"].get<std::string>();
  if (c->dir.empty() || c->dir[0] != '/') {
    throw Error{ErrorKind::invalid, "\"dir\" is not an absolute path"};
  }
  if (!c->base.empty() && !c->dir.starts_with(c->base)) {
    throw Error{ErrorKind::invalid, "\"dir\" does not begin with \"base\""};
  }
  if (c->world == 0 || c->keep == 0) {
    throw Error{ErrorKind::invalid, "\"world\" and \"keep\" are at least 1"};
  }
  for (const auto& [node, ranks] : j.at("ranks").items()) {
    c->ranks[node] = rank_list(ranks);
    for (std::uint32_t rank : c->ranks[node]) {
      if (rank >= c->world) throw Error{ErrorKind::invalid, "\"ranks\" has one past \"world\""};
    }
  }
}

ShardFile read_shard(const json& j) {
  ShardFile s;
  s.rank = number32(j, "rank");
  s.file = j.at("file").get<std::string>();
  s.size = number(j, "size", INT64_MAX);
  s.index = j.at("index").get<std::string>();
  s.index_size = number(j, "index_size", INT64_MAX);
  s.index_xxh3 = j.at("index_xxh3").get<std::string>();
  return s;
}

json shard_json(const ShardFile& s) {
  return {{"rank", s.rank},
          {"file", s.file},
          {"size", s.size},
          {"index", s.index},
          {"index_size", s.index_size},
          {"index_xxh3", s.index_xxh3}};
}

json skipped_json(const std::vector<SkippedStep>& skipped) {
  json list = json::array();
  for (const auto& s : skipped) list.push_back({{"step", s.step}, {"error", s.error}});
  return list;
}

std::vector<SkippedStep> read_skipped(const json& j, const char* key) {
  std::vector<SkippedStep> out;
  for (const json& s : j.value(key, json::array())) {
    out.push_back({step_needed(s), s.at("error").get<std::string>()});
  }
  return out;
}

void read_fields(const json& j, Command* c) {
  using Kind = Command::Kind;
  switch (c->kind) {
    case Kind::hello:
      return read_hello(j, c);
    case Kind::restore:
      c->error = j.value("error", "");
      c->error_kind = kind_of(j);
      c->rendezvous = j.value("rendezvous", false);
      if (!j.contains("step")) throw Error{ErrorKind::invalid, "\"step\" is missing"};
      c->step = step_of(j);
      return;
    case Kind::gate:
      c->id = number(j, "id", UINT64_MAX);
      if (!j.contains("step")) throw Error{ErrorKind::invalid, "\"step\" is missing"};
      c->step = step_of(j);
      return;
    case Kind::commit:
      for (const json& shard : j.at("shards")) c->shards.push_back(read_shard(shard));
      [[fallthrough]];
    case Kind::stop:
    case Kind::committed:
      c->step = step_needed(j);
      return;
    case Kind::failed:
      c->step = step_needed(j);
      c->error = j.at("error").get<std::string>();
      c->error_kind = kind_of(j);
      c->id = id_or_0(j);
      return;
    case Kind::query:
      c->id = id_or_0(j);
      return;
    case Kind::find:
      c->search.whole = j.value("whole", false);
      c->search.bad = read_skipped(j, "bad");
      return;
    case Kind::quit:
      return;
  }
}

void read_fields(const json& j, Event* e) {
  using Kind = Event::Kind;
  e->node = j.value("node", "");
  switch (e->kind) {
    case Kind::hello:
      e->pid = j.value("pid", std::int64_t{0});
      return;
    case Kind::found:
      e->step = step_of(j);
      e->skipped = read_skipped(j, "skipped");
      return;
    case Kind::ready:
      if (j.contains("address"))
        e->rendezvous = {j["address"].get<std::string>(),
                         static_cast<std::uint16_t>(number(j, "port", UINT16_MAX))};
      return;
    case Kind::gated:
      e->id = number(j, "id", UINT64_MAX);
      e->max_step = step_of(j, "max_step");
      return;
    case Kind::error:
      e->cmd = j.value("cmd", "");
      e->step = step_of(j);
      e->error = j.at("error").get<std::string>();
      e->error_kind = kind_of(j);
      return;
    case Kind::progress:
      e->max_step = step_of(j);
      e->ranks = rank_list(j.value("ranks", json::array()));
      e->steps = step_list(j.value("steps", json::array()));
      e->busy = j.value("busy", false);
      e->stopped = number32(j, "stopped");
      e->finished = number32(j, "finished");
      if (j.contains("unwritten")) e->unwritten = number32(j, "unwritten");
      e->signal = j.value("signal", "");
      e->id = id_or_0(j);
      return;
    case Kind::shard:
      e->rank = number32(j, "rank");
      e->step = step_needed(j);
      e->shard = read_shard(j);
      e->id = id_or_0(j);
      if (j.contains("took_ms")) e->took_ms = number(j, "took_ms", UINT64_MAX);
      return;
    case Kind::save_error:
    case Kind::restore_error:
      e->id = id_or_0(j);
      e->rank = number32(j, "rank");
      e->step = step_needed(j);
      e->error = j.at("error").get<std::string>();
      e->error_kind = kind_of(j);
      return;
    case Kind::restored:
      e->rank = number32(j, "rank");
      e->step = step_needed(j);
      e->from_memory = number(j, "from_memory", INT64_MAX);
      e->from_store = number(j, "from_store", INT64_MAX);
      return;
    case Kind::rank:
      e->rank = number32(j, "rank");
      e->state = j.at("state").get<std::string>();
      return;
    case Kind::stop_set:
    case Kind::committed:
      e->step = step_needed(j);
      return;
  }
}

// Nested brackets cost a parser its stack: nothing here is deeper than four.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 16) return true;
  }
  return false;
}

template <typename T, std::size_t N>
Result<T> parse_line(std::string_view line, const char* key,
                     const std::array<const char*, N>& names) try {
  const json j = too_deep(line) ? json() : json::parse(line, nullptr, false);
  if (!j.is_object()) {
    return Error{ErrorKind::invalid, fmt::format("not a JSON object: {:.80}", line)};
  }
  const std::string name = j.at(key).get<std::string>();
  const int kind = index_of(names, name);
  if (kind < 0) return Error{ErrorKind::invalid, fmt::format("unknown {} \"{:.40}\"", key, name)};
  T out;
  out.kind = static_cast<typename T::Kind>(kind);
  read_fields(j, &out);
  if (j.contains("node")) out.node = j["node"].template get<std::string>();
  return out;
} catch (const json::exception& e) {
  return Error{ErrorKind::invalid, fmt::format("a line of the protocol is wrong: {}", e.what())};
} catch (const Error& e) {
  return Error{e.kind, fmt::format("a line of the protocol is wrong: {}", e.text)};
}

// Text from a file system may hold any bytes.
std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

void write_fields(const Command& c, json* j) {
  using Kind = Command::Kind;
  switch (c.kind) {
    case Kind::hello:
      j->update({{"dir", c.dir},
                 {"base", c.place().base},
                 {"access", access_name(c.access)},
                 {"attempt", c.attempt},
                 {"leader", c.leader},
                 {"world", c.world},
                 {"keep", c.keep},
                 {"keep_every", c.keep_every}});
      if (c.replaces) (*j)["replaces"] = *c.replaces;
      (*j)["ranks"] = json::object();
      for (const auto& [node, ranks] : c.ranks) (*j)["ranks"][node] = ranks;
      return;
    case Kind::gate:
      (*j)["id"] = c.id;
      (*j)["step"] = nullable(c.step);
      return;
    case Kind::commit:
      (*j)["shards"] = json::array();
      for (const ShardFile& shard : c.shards) (*j)["shards"].push_back(shard_json(shard));
      (*j)["step"] = nullable(c.step);
      return;
    case Kind::failed:
      (*j)["id"] = c.id;
      (*j)["error"] = c.error;
      (*j)["kind"] = kKinds[static_cast<std::size_t>(c.error_kind)];
      (*j)["step"] = nullable(c.step);
      return;
    case Kind::restore:
      if (!c.error.empty()) {
        (*j)["error"] = c.error;
        (*j)["kind"] = kKinds[static_cast<std::size_t>(c.error_kind)];
      }
      if (c.rendezvous) (*j)["rendezvous"] = true;
      [[fallthrough]];
    case Kind::stop:
    case Kind::committed:
      (*j)["step"] = nullable(c.step);
      return;
    case Kind::query:
      (*j)["id"] = c.id;
      return;
    case Kind::find:
      (*j)["whole"] = c.search.whole;
      (*j)["bad"] = skipped_json(c.search.bad);
      return;
    case Kind::quit:
      return;
  }
}

void write_fields(const Event& e, json* j) {
  using Kind = Event::Kind;
  switch (e.kind) {
    case Kind::hello:
      (*j)["pid"] = e.pid;
      return;
    case Kind::found:
      (*j)["step"] = nullable(e.step);
      (*j)["skipped"] = skipped_json(e.skipped);
      return;
    case Kind::ready:
      if (e.rendezvous)
        j->update({{"address", e.rendezvous->address}, {"port", e.rendezvous->port}});
      return;
    case Kind::gated:
      j->update({{"id", e.id}, {"max_step", nullable(e.max_step)}});
      return;
    case Kind::error:
      j->update({{"cmd", e.cmd},
                 {"step", nullable(e.step)},
                 {"error", e.error},
                 {"kind", kKinds[static_cast<std::size_t>(e.error_kind)]}});
      return;
    case Kind::progress:
      j->update({{"step", nullable(e.max_step)},
                 {"ranks", e.ranks},
                 {"steps", json::array()},
                 {"stopped", e.stopped},
                 {"finished", e.finished},
                 {"unwritten", e.unwritten},
                 {"busy", e.busy},
                 {"id", e.id}});
      for (const auto& step : e.steps) (*j)["steps"].push_back(nullable(step));
      if (!e.signal.empty()) (*j)["signal"] = e.signal;
      return;
    case Kind::shard:
      j->update(shard_json(e.shard));
      j->update({{"rank", e.rank}, {"step", nullable(e.step)}, {"id", e.id}});
      (*j)["took_ms"] = e.took_ms;
      return;
    case Kind::save_error:
    case Kind::restore_error:
      j->update({{"rank", e.rank},
                 {"step", nullable(e.step)},
                 {"error", e.error},
                 {"id", e.id},
                 {"kind", kKinds[static_cast<std::size_t>(e.error_kind)]}});
      return;
    case Kind::restored:
      j->update({{"rank", e.rank},
                 {"step", nullable(e.step)},
                 {"from_memory", e.from_memory},
                 {"from_store", e.from_store}});
      return;
    case Kind::rank:
      j->update({{"rank", e.rank}, {"state", e.state}});
      return;
    case Kind::stop_set:
    case Kind::committed:
      (*j)["step"] = nullable(e.step);
      return;
  }
}

}  // namespace

Result<Command> parse_command(std::string_view line) {
  return parse_line<Command>(line, "cmd", kCommands);
}

Result<Event> parse_event(std::string_view line) {
  return parse_line<Event>(line, "event", kEvents);
}

std::string to_line(const Command& command) {
  json j = {{"cmd", kCommands[static_cast<std::size_t>(command.kind)]}};
  if (!command.node.empty()) j["node"] = command.node;
  write_fields(command, &j);
  return dump(j);
}

std::string to_line(const Event& event) {
  json j = {{"event", kEvents[static_cast<std::size_t>(event.kind)]}, {"node", event.node}};
  write_fields(event, &j);
  return dump(j);
}

}  // namespace bellows
