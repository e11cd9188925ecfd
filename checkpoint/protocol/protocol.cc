// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/protocol.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>

#include "checkpoint/protocol/fields.h"
#include "checkpoint/wire/wire.h"

namespace bellows {

using nlohmann::json;

namespace {

constexpr std::array<const char*, 10> kCommands = {
    "hello", "find", "restore", "gate", "stop", "commit", "committed", "failed", "query", "quit"};
constexpr std::array<const char*, 13> kEvents = {
    "hello",    "found", "ready",      "gated", "stop_set",      "committed", "error",
    "progress", "shard", "save_error", "rank",  "restore_error", "restored"};
template <std::size_t N>
int index_of(const std::array<const char*, N>& names, const std::string& name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  return -1;
}

void check_attempt(const std::string& attempt) {
  const bool good = !attempt.empty() && attempt.size() <= 128 && attempt[0] != '.' &&
                    attempt.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == std::string::npos;
  if (!good) throw Error{ErrorKind::invalid, "\"attempt\" may hold letters, digits and ._- only"};
}

void check_hello(const Command& hello) {
  check_attempt(hello.attempt);
  if (hello.dir.empty() || hello.dir[0] != '/')
    throw Error{ErrorKind::invalid, "\"dir\" is not an absolute path"};
  if (!hello.base.empty() && !hello.dir.starts_with(hello.base))
    throw Error{ErrorKind::invalid, "\"dir\" does not begin with \"base\""};
  if (hello.world == 0 || hello.keep == 0)
    throw Error{ErrorKind::invalid, "\"world\" and \"keep\" are at least 1"};
  for (const auto& [node, ranks] : hello.ranks)
    for (std::uint32_t rank : ranks)
      if (rank >= hello.world)
        throw Error{ErrorKind::invalid, "\"ranks\" has a rank that is not below \"world\""};
}

// The one table of fields: what a line of each kind holds. `io` is a FieldReader or a FieldWriter,
// and C is Command or const Command.

template <typename Io, typename C>
void hello_fields(Io& io, C& c) {
  io.text("dir", c.dir);
  io.optional_text("base", c.base);
  io.optional_access("access", c.access);
  io.text("attempt", c.attempt);
  io.optional_text("replaces", c.replaces);
  io.text("leader", c.leader);
  io.number("world", c.world, wire::kMostWorld);
  io.optional_number("keep", c.keep);
  io.optional_number("keep_every", c.keep_every);
  io.ranks_of_nodes("ranks", c.ranks);
}

template <typename Io, typename C>
void fields_of_command(Io& io, C& c) {
  using Kind = Command::Kind;
  switch (c.kind) {
    case Kind::hello:
      return hello_fields(io, c);
    case Kind::find:
      io.optional_flag("whole", c.search.whole);
      return io.optional_skipped("bad", c.search.bad);
    case Kind::restore:
      io.optional_text("error", c.error);
      io.optional_error_kind("kind", c.error_kind);
      io.optional_flag("rendezvous", c.rendezvous);
      return io.nullable_step("step", c.step);
    case Kind::gate:
      io.number("id", c.id);
      return io.nullable_step("step", c.step);
    case Kind::commit:
      io.shards("shards", c.shards);
      return io.step("step", c.step);
    case Kind::stop:
    case Kind::committed:
      return io.step("step", c.step);
    case Kind::failed:
      io.step("step", c.step);
      io.text("error", c.error);
      io.optional_error_kind("kind", c.error_kind);
      return io.optional_number("id", c.id);
    case Kind::query:
      return io.optional_number("id", c.id);
    case Kind::quit:
      return;
  }
}

template <typename Io, typename E>
void progress_fields(Io& io, E& e) {
  io.optional_step("step", e.max_step);
  io.optional_ranks("ranks", e.ranks);
  io.optional_steps("steps", e.steps);
  io.number("stopped", e.stopped);
  io.number("finished", e.finished);
  io.optional_number("unwritten", e.unwritten);
  io.optional_flag("busy", e.busy);
  io.optional_text("signal", e.signal);
  io.optional_number("id", e.id);
}

template <typename Io, typename E>
void failed_step_fields(Io& io, E& e) {
  io.number("rank", e.rank);
  io.step("step", e.step);
  io.text("error", e.error);
  io.optional_error_kind("kind", e.error_kind);
  io.optional_number("id", e.id);
}

template <typename Io, typename E>
void fields_of_event(Io& io, E& e) {
  using Kind = Event::Kind;
  switch (e.kind) {
    case Kind::hello:
      return io.optional_pid("pid", e.pid);
    case Kind::found:
      io.optional_step("step", e.step);
      return io.optional_skipped("skipped", e.skipped);
    case Kind::ready:
      return io.optional_rendezvous(e.rendezvous);
    case Kind::gated:
      io.number("id", e.id);
      return io.optional_step("max_step", e.max_step);
    case Kind::error:
      io.optional_text("cmd", e.cmd);
      io.optional_step("step", e.step);
      io.text("error", e.error);
      return io.optional_error_kind("kind", e.error_kind);
    case Kind::progress:
      return progress_fields(io, e);
    case Kind::shard:
      io.shard(e.shard);
      io.number("rank", e.rank);
      io.step("step", e.step);
      io.optional_number("id", e.id);
      return io.optional_number("took_ms", e.took_ms);
    case Kind::save_error:
    case Kind::restore_error:
      return failed_step_fields(io, e);
    case Kind::restored:
      io.number("rank", e.rank);
      io.step("step", e.step);
      io.number("from_memory", e.from_memory, INT64_MAX);
      return io.number("from_store", e.from_store, INT64_MAX);
    case Kind::rank:
      io.number("rank", e.rank);
      return io.text("state", e.state);
    case Kind::stop_set:
    case Kind::committed:
      return io.step("step", e.step);
  }
}

void read_fields(const json& j, Command* command) {
  FieldReader io(j);
  fields_of_command(io, *command);
  if (command->kind == Command::Kind::hello) check_hello(*command);
}

void read_fields(const json& j, Event* event) {
  FieldReader io(j);
  fields_of_event(io, *event);
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
  FieldWriter io(j);
  fields_of_command(io, command);
  return dump(j);
}

std::string to_line(const Event& event) {
  json j = {{"event", kEvents[static_cast<std::size_t>(event.kind)]}, {"node", event.node}};
  FieldWriter io(j);
  fields_of_event(io, event);
  return dump(j);
}

}  // namespace bellows
