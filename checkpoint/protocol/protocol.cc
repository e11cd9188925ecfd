// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/protocol.h"

#include <fmt/core.h>

#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "checkpoint/protocol/fields.h"
#include "checkpoint/wire/wire.h"

namespace bellows {

using nlohmann::json;

namespace {

void check_attempt(const std::string& attempt) {
  const bool good = !attempt.empty() && attempt.size() <= 128 && attempt[0] != '.' &&
                    attempt.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == std::string::npos;
  if (!good) throw Error{ErrorKind::invalid, "\"attempt\" may hold letters, digits and ._- only"};
}

void check(const command::Hello& hello) {
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

void check(const auto&) {}

// The one table of fields: what a line of each name holds. `io` is a FieldReader, which fills the
// message, or a FieldWriter, which only reads it.

template <typename T, typename... Messages>
concept Is = (std::same_as<std::remove_const_t<T>, Messages> || ...);

template <typename Io>
void fields(Io& io,
            Is<command::SetStop, command::Committed, event::StopSet, event::Committed> auto& said) {
  io.step("step", said.step);
}

template <typename Io>
void fields(Io& io, Is<command::Hello> auto& hello) {
  io.text("dir", hello.dir);
  io.optional_text("base", hello.base);
  io.optional_access("access", hello.access);
  io.text("attempt", hello.attempt);
  io.optional_text("replaces", hello.replaces);
  io.text("leader", hello.leader);
  io.number("world", hello.world, wire::kMostWorld);
  io.optional_number("keep", hello.keep);
  io.optional_number("keep_every", hello.keep_every);
  io.ranks_of_nodes("ranks", hello.ranks);
}

template <typename Io>
void fields(Io& io, Is<command::Find> auto& find) {
  io.optional_flag("whole", find.search.whole);
  io.optional_skipped("bad", find.search.bad);
}

template <typename Io>
void fields(Io& io, Is<command::Restore> auto& restore) {
  io.optional_error(restore.error);
  io.optional_flag("rendezvous", restore.rendezvous);
  io.nullable_step("step", restore.step);
}

template <typename Io>
void fields(Io& io, Is<command::SetGate> auto& gate) {
  io.number("id", gate.id);
  io.nullable_step("step", gate.step);
}

template <typename Io>
void fields(Io& io, Is<command::Commit> auto& commit) {
  io.shards("shards", commit.shards);
  io.step("step", commit.step);
}

template <typename Io>
void fields(Io& io, Is<command::Failed> auto& failed) {
  io.step("step", failed.step);
  io.error(failed.error);
  io.optional_number("id", failed.id);
}

template <typename Io>
void fields(Io& io, Is<command::Query> auto& query) {
  io.optional_number("id", query.id);
}

template <typename Io>
void fields(Io&, Is<command::Quit> auto&) {}

template <typename Io>
void fields(Io& io, Is<event::Hello> auto& hello) {
  io.optional_pid("pid", hello.pid);
}

template <typename Io>
void fields(Io& io, Is<event::Found> auto& found) {
  io.optional_step("step", found.step);
  io.optional_skipped("skipped", found.skipped);
}

template <typename Io>
void fields(Io& io, Is<event::Ready> auto& ready) {
  io.optional_rendezvous(ready.rendezvous);
}

template <typename Io>
void fields(Io& io, Is<event::Gated> auto& gated) {
  io.number("id", gated.id);
  io.optional_step("max_step", gated.max_step);
}

template <typename Io>
void fields(Io& io, Is<event::CommandFailed> auto& failed) {
  io.optional_text("cmd", failed.cmd);
  io.optional_step("step", failed.step);
  io.error(failed.error);
}

template <typename Io>
void fields(Io& io, Is<event::Progress> auto& progress) {
  io.optional_step("step", progress.max_step);
  io.optional_ranks("ranks", progress.ranks);
  io.optional_steps("steps", progress.steps);
  io.number("stopped", progress.stopped);
  io.number("finished", progress.finished);
  io.optional_number("unwritten", progress.unwritten);
  io.optional_flag("busy", progress.busy);
  io.optional_number("batch", progress.batch);
  io.optional_number("noise_scale", progress.noise_scale);
  io.optional_signal("signal", progress.signal);
  io.optional_number("id", progress.id);
}

template <typename Io>
void fields(Io& io, Is<event::Shard> auto& shard) {
  io.shard(shard.file);
  io.step("step", shard.step);
  io.optional_number("id", shard.id);
  io.optional_number("took_ms", shard.took_ms);
}

template <typename Io>
void fields(Io& io, Is<event::SaveError> auto& failed) {
  io.number("rank", failed.rank);
  io.step("step", failed.step);
  io.error(failed.error);
  io.optional_number("id", failed.id);
}

template <typename Io>
void fields(Io& io, Is<event::Rank> auto& rank) {
  io.number("rank", rank.rank);
  io.rank_state("state", rank.state);
}

template <typename Io>
void fields(Io& io, Is<event::RestoreError> auto& failed) {
  io.number("rank", failed.rank);
  io.step("step", failed.step);
  io.error(failed.error);
  // Only failed saves have numbers, but the line has this one as theirs do.
  std::uint64_t none = 0;
  io.optional_number("id", none);
}

template <typename Io>
void fields(Io& io, Is<event::Restored> auto& restored) {
  io.number("rank", restored.rank);
  io.step("step", restored.step);
  io.number("from_memory", restored.from_memory, INT64_MAX);
  io.number("from_store", restored.from_store, INT64_MAX);
}

template <typename Body>
Body read(const json& j) {
  Body body;
  FieldReader io(j);
  fields(io, body);
  check(body);
  return body;
}

/// False: none of the alternatives has this name.
template <typename... Bodies>
bool read_named(const json& j, std::string_view name, std::variant<Bodies...>* body) {
  return ((Bodies::kName == name && (*body = read<Bodies>(j), true)) || ...);
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

template <typename Message>
Result<Message> parse_line(std::string_view line, const char* key) try {
  const json j = too_deep(line) ? json() : json::parse(line, nullptr, false);
  if (!j.is_object()) {
    return Error{ErrorKind::invalid, fmt::format("not a JSON object: {:.80}", line)};
  }
  const std::string name = j.at(key).get<std::string>();
  Message out;
  if (!read_named(j, name, &out.body))
    return Error{ErrorKind::invalid, fmt::format("unknown {} \"{:.40}\"", key, name)};
  if (j.contains("node")) out.node = j["node"].template get<std::string>();
  return out;
} catch (const json::exception& e) {
  return Error{ErrorKind::invalid, fmt::format("a line of the protocol is wrong: {}", e.what())};
} catch (const Error& e) {
  return Error{e.kind, fmt::format("a line of the protocol is wrong: {}", e.text)};
}

template <typename Body>
void write(const char* key, const Body& body, json* j) {
  std::visit(
      [key, j]<typename Said>(const Said& said) {
        (*j)[key] = std::string(Said::kName);
        FieldWriter io(*j);
        fields(io, said);
      },
      body);
}

// Text from a file system may hold any bytes.
std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

Result<Command> parse_command(std::string_view line) { return parse_line<Command>(line, "cmd"); }

Result<Event> parse_event(std::string_view line) { return parse_line<Event>(line, "event"); }

std::string to_line(const Command& command) {
  json j = json::object();
  if (!command.node.empty()) j["node"] = command.node;
  write("cmd", command.body, &j);
  return dump(j);
}

std::string to_line(const Event& event) {
  json j = {{"node", event.node}};
  write("event", event.body, &j);
  return dump(j);
}

}  // namespace bellows
