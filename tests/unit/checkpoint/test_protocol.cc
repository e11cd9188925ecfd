// SPDX-License-Identifier: Apache-2.0
// What agents, ranks and the launcher say to each other, and what is decided of it; no agent runs.
#include <criterion/criterion.h>

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "checkpoint/agent/rank_link.h"
#include "checkpoint/protocol/coordinator.h"
#include "checkpoint/protocol/protocol.h"
#include "tests/unit/checkpoint/agent_support.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

Event shard_event(std::uint32_t rank, std::uint64_t step) {
  Event e;
  e.kind = Event::Kind::shard;
  e.rank = rank;
  e.step = step;
  e.shard = {rank, "f", 1, "i", 2, std::string(32, '0')};
  return e;
}

Event rank_event(std::uint32_t rank, const char* state) {
  Event e;
  e.kind = Event::Kind::rank;
  e.rank = rank;
  e.state = state;
  return e;
}

}  // namespace

Test(protocol, commands_come_back, .timeout = 10) {
  Command hello = hello_for("/ck", 1, {{"n1", {0, 1}}, {"n2", {2}}});
  hello.keep = 5;
  hello.keep_every = 1000;
  auto back = parse_command(to_line(hello));
  cr_assert(back.ok(), "%s", back.error().text.c_str());
  cr_expect(back->dir == "/ck" && back->attempt == "7.0.1" && back->leader == "n1");
  cr_expect(back->world == 3 && back->keep == 5 && back->ranks == hello.ranks);
  cr_expect(back->keep_every == 1000 && !back->replaces);
  for (const char* owner : {"", "7.0.0"}) {
    hello.replaces = owner;
    back = parse_command(to_line(hello));
    cr_expect(back.ok() && back->replaces == owner);
  }
  Command commit = command_of(Command::Kind::commit, 9);
  commit.shards = {{1, "shard", 10, "index", 20, std::string(32, 'a')}};
  back = parse_command(to_line(commit));
  cr_expect(back.ok() && back->step == 9u && back->shards == commit.shards);
  Command gate = command_of(Command::Kind::gate);
  gate.id = 4;
  back = parse_command(to_line(gate));
  cr_expect(back.ok() && !back->step && back->id == 4);
  Command restore = command_of(Command::Kind::restore, 6);
  back = parse_command(to_line(restore));
  cr_expect(back.ok() && back->step == 6u && !back->rendezvous);
  restore.rendezvous = true;
  back = parse_command(to_line(restore));
  cr_expect(back.ok() && back->step == 6u && back->rendezvous);
  Command failed = command_of(Command::Kind::failed, 3);
  failed.error = "disk \"full\"\n\xff";
  failed.error_kind = ErrorKind::busy;
  back = parse_command(to_line(failed));
  cr_expect(back.ok() && back->error_kind == ErrorKind::busy &&
            has(back->error, "disk \"full\"\n"));
  Command find = command_of(Command::Kind::find);
  back = parse_command(to_line(find));
  cr_expect(back.ok() && !back->search.whole && back->search.bad.empty());
  find.search = {true, {{7, "damaged"}}};
  back = parse_command(to_line(find));
  cr_assert(back.ok() && back->search.whole && back->search.bad.size() == 1);
  cr_expect(back->search.bad[0].step == 7 && back->search.bad[0].error == "damaged");
  restore = command_of(Command::Kind::restore);
  restore.error = "none is good";
  restore.error_kind = ErrorKind::corrupt;
  back = parse_command(to_line(restore));
  cr_expect(back.ok() && !back->step && back->error == "none is good");
  cr_expect(back->error_kind == ErrorKind::corrupt);
}

Test(protocol, events_come_back, .timeout = 10) {
  Event e = shard_event(3, 12);
  e.node = "n2";
  e.took_ms = 1500;
  auto back = parse_event(to_line(e));
  cr_assert(back.ok());
  cr_expect(back->rank == 3 && back->step == 12u && back->node == "n2" && back->shard.file == "f");
  cr_expect(back->took_ms == 1500);
  Event found;
  found.kind = Event::Kind::found;
  found.skipped = {{5, "damaged"}};
  back = parse_event(to_line(found));
  cr_expect(back.ok() && !back->step && back->skipped.size() == 1 && back->skipped[0].step == 5);
  Event bad = shard_event(1, 6);
  bad.kind = Event::Kind::restore_error;
  bad.error = "damaged";
  bad.error_kind = ErrorKind::corrupt;
  back = parse_event(to_line(bad));
  cr_expect(back.ok() && back->rank == 1 && back->step == 6u && back->error == "damaged" &&
            back->error_kind == ErrorKind::corrupt);
  Event given;
  given.kind = Event::Kind::restored;
  given.rank = 2;
  given.step = 9;
  given.from_memory = 5000;
  given.from_store = 70;
  back = parse_event(to_line(given));
  cr_expect(back.ok() && back->rank == 2 && back->step == 9u && back->from_memory == 5000 &&
            back->from_store == 70);
  Event progress;
  progress.kind = Event::Kind::progress;
  progress.max_step = 8;
  progress.ranks = {0, 1};
  progress.steps = {8, std::nullopt};
  progress.busy = true;
  progress.unwritten = 3;
  progress.id = 4;
  progress.signal = "USR1";
  back = parse_event(to_line(progress));
  cr_expect(back.ok() && back->max_step == 8u && back->ranks.size() == 2);
  cr_expect(back->steps == progress.steps && back->busy);
  cr_expect(back->unwritten == 3 && back->id == 4 && back->signal == "USR1");
  Event ready;
  ready.kind = Event::Kind::ready;
  back = parse_event(to_line(ready));
  cr_expect(back.ok() && !back->rendezvous);
  ready.rendezvous = {"198.18.0.11", 40000};
  back = parse_event(to_line(ready));
  cr_expect(back.ok() && back->rendezvous == ready.rendezvous);
  cr_expect(!parse_event(R"({"event":"ready","address":"a","port":65536})").ok());
}

Test(protocol, bad_lines_are_refused, .timeout = 10) {
  for (const char* line :
       {"",
        "x",
        "[]",
        "{}",
        "null",
        "{\"cmd\":3}",
        "{\"cmd\":\"dance\"}",
        "{\"cmd\":\"gate\"}",
        "{\"cmd\":\"gate\",\"id\":-1,\"step\":1}",
        "{\"cmd\":\"gate\",\"id\":1}",
        "{\"cmd\":\"gate\",\"id\":1,\"step\":1.5}",
        "{\"cmd\":\"gate\",\"id\":1,\"step\":\"2\"}",
        "{\"cmd\":\"stop\"}",
        "{\"cmd\":\"stop\",\"step\":null}",
        "{\"cmd\":\"stop\",\"step\":18446744073709551615}",
        "{\"cmd\":\"commit\",\"step\":1}",
        "{\"cmd\":\"commit\",\"step\":1,\"shards\":[1]}",
        "{\"cmd\":\"failed\",\"step\":1}",
        "{\"cmd\":\"hello\"}",
        "{\"cmd\":\"hello\",\"dir\":\"ck\",\"attempt\":\"a\",\"leader\":\"n\",\"world\":1,"
        "\"ranks\":{}}",
        "{\"cmd\":\"hello\",\"dir\":\"/c\",\"attempt\":\"../"
        "a\",\"leader\":\"n\",\"world\":1,\"ranks\":{}}",
        "{\"cmd\":\"hello\",\"dir\":\"/"
        "c\",\"attempt\":\"a\",\"leader\":\"n\",\"world\":0,\"ranks\":{}}",
        "{\"cmd\":\"hello\",\"dir\":\"/c\",\"attempt\":\"a\",\"leader\":\"n\",\"world\":1,"
        "\"ranks\":{\"n\":[1]}}",
        "{\"cmd\":\"query\",\"node\":7}",
        "{\"cmd\":\"query\"",
        "{\"cmd\":\"query\"}}"}) {
    auto parsed = parse_command(line);
    cr_expect(!parsed.ok() && !parsed.error().text.empty(), "accepted: %s", line);
  }
  cr_expect(!parse_command(std::string(100000, '[')).ok());
  for (const char* line : {"", "{\"event\":\"none\"}", "{\"event\":\"shard\",\"rank\":1}",
                           "{\"event\":\"rank\",\"rank\":-1,\"state\":\"lost\"}",
                           "{\"event\":\"gated\",\"id\":\"a\"}"}) {
    cr_expect(!parse_event(line).ok(), "accepted: %s", line);
  }
}

Test(protocol, bad_messages_of_ranks_are_refused, .timeout = 10) {
  const auto refused = [](const auto& head, const std::string& body, bool honest = true) {
    wire::Head h = head;
    if (honest) h.length = static_cast<std::uint32_t>(body.size());
    return !parse_rank_message(std::string(reinterpret_cast<char*>(&h), sizeof h) + body).ok();
  };
  const auto bytes = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  wire::Head head;
  head.op = wire::Op::restore;
  cr_expect(!refused(head, ""));
  cr_expect(refused(head, "x"));
  cr_expect(!parse_rank_message("short").ok());
  head.length = 5;
  cr_expect(refused(head, "", false));
  wire::Head other = head;
  other.version = 99;
  cr_expect(refused(other, ""));
  other = head;
  other.op = wire::Op::welcome;
  cr_expect(refused(other, ""));
  other.op = static_cast<wire::Op>(77);
  cr_expect(refused(other, ""));
  head.op = wire::Op::hello;
  cr_expect(!refused(head, bytes(wire::Hello{0, 1}) + "/dir"));
  cr_expect(!refused(head, bytes(wire::Hello{0, 1}) + "7.0.1"));
  cr_expect(refused(head, bytes(wire::Hello{0, 1})), "of no attempt at all");
  cr_expect(refused(head, bytes(wire::Hello{1, 1}) + "/dir"));
  cr_expect(refused(head, bytes(wire::Hello{-1, 1}) + "/dir"));
  cr_expect(refused(head, "abc"));
  head.op = wire::Op::array;
  cr_expect(!refused(head, bytes(f32_array({4}, 1, 1, 3)) + "x/y"));
  cr_expect(refused(head, bytes(f32_array({4}, 1, 2, 3)) + "x"));
  cr_expect(refused(head, bytes(f32_array({4}, 1, UINT64_MAX, 2)) + "x"));
  cr_expect(refused(head, bytes(f32_array({UINT64_MAX, UINT64_MAX}, 0)) + "x"));
  for (const char* name : {"", "/x", "x/", "a//b", "..", "a/../b", "a b", "x\n", ".x"}) {
    cr_expect(refused(head, bytes(f32_array({4}, 0)) + name), "accepted the name \"%s\"", name);
  }
  wire::Array bad = f32_array({4}, 0);
  bad.ndims = 1000;
  cr_expect(refused(head, bytes(bad) + "x"));
  bad = f32_array({4}, 0);
  bad.dtype = 17;
  cr_expect(refused(head, bytes(bad) + "x"));
  bad = f32_array({4}, 4);
  cr_expect(refused(head, bytes(bad) + "x"));
  bad = f32_array({4, 2}, 1, 0, 2);
  bad.axis = 1;
  cr_expect(!refused(head, bytes(bad) + "x"));
  bad.axis = 2;
  cr_expect(refused(head, bytes(bad) + "x"));
  bad = f32_array({1024}, 0);
  bad.layout = wire::kValue;
  cr_expect(!refused(head, bytes(bad) + "x"));
  bad.shape[0] = bad.count = 1025;
  cr_expect(refused(head, bytes(bad) + "x"));
  bad.layout = wire::kPerRank;
  cr_expect(!refused(head, bytes(bad) + "x"));
  bad.count = 3;
  cr_expect(refused(head, bytes(bad) + "x"));
}

Test(protocol, a_library_of_another_version_can_read_why_it_is_refused, .timeout = 10) {
  for (const std::uint32_t version : {wire::kVersion - 1, wire::kVersion + 1}) {
    wire::Head hello;
    hello.op = wire::Op::hello;
    hello.version = version;
    cr_assert(other_version({reinterpret_cast<const char*>(&hello), sizeof hello}) == version);
    int ends[2];
    cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const Fd rank(ends[1]);
    RankLink link;
    link.socket.reset(ends[0]);
    cr_assert(link.fail_version(version));
    char answer[wire::kMostMessage];
    const ssize_t got = recv(rank.get(), answer, sizeof answer, 0);
    wire::Head head;
    cr_assert(got > static_cast<ssize_t>(sizeof head));
    std::memcpy(&head, answer, sizeof head);
    cr_expect(head.version == version && head.op == wire::Op::failed);
    const std::string text(answer + sizeof head, head.length);
    const std::string both = "version " + std::to_string(version);
    const bool older = version < wire::kVersion;
    cr_expect(has(text, both) && has(text, older ? "update the program" : "update the bellows"),
              "%s", text.c_str());
  }
  wire::Head head;
  head.op = wire::Op::hello;
  cr_expect(!other_version({reinterpret_cast<const char*>(&head), sizeof head}));
  cr_expect(!other_version("short"));
}

Test(coordinator, commits_when_all_shards_are_there, .timeout = 10) {
  Coordinator c(3);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  cr_expect(c.handle(shard_event(2, 5)).empty());
  auto commands = c.handle(shard_event(1, 5));
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::commit);
  cr_expect(commands[0].shards.size() == 3 && commands[0].shards[1].rank == 1);
  // A rank that was complete may die while the leader commits.
  cr_expect(c.handle(rank_event(1, "lost")).empty());
  Event committed;
  committed.kind = Event::Kind::committed;
  committed.step = 5;
  commands = c.handle(committed);
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::committed);
  cr_expect(c.committed() == 5u);
}

Test(coordinator, a_lost_rank_fails_the_steps_it_has_no_part_in, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  auto commands = c.handle(rank_event(1, "lost"));
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::failed);
  cr_expect(has(commands[0].error, "rank 1 was lost"), "%s", commands[0].error.c_str());
  cr_expect(c.handle(shard_event(0, 5)).empty() && !c.is_pending(5), "it had crossed the failure");
  commands = c.handle(shard_event(0, 6));
  cr_expect(commands.size() == 1 && commands[0].kind == Command::Kind::failed);
  cr_expect(!c.is_pending(6));
}

Test(coordinator, ranks_that_save_different_steps_are_told, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  auto commands = c.handle(shard_event(1, 6));
  cr_assert(commands.size() == 2);
  cr_expect(commands[0].error_kind == ErrorKind::invalid && has(commands[0].error, "5 and 6"));
}

Test(coordinator, several_steps_are_committed_in_order, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  cr_expect(c.handle(shard_event(0, 6)).empty());
  cr_expect(c.handle(shard_event(0, 7)).empty());
  auto commands = c.handle(shard_event(1, 5));
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::commit);
  // Complete, but the leader has not said what became of step 5.
  cr_expect(c.handle(shard_event(1, 6)).empty());
  cr_expect(c.pending() == (std::vector<std::uint64_t>{5, 6, 7}));
  Event done;
  done.kind = Event::Kind::committed;
  done.step = 5;
  commands = c.handle(done);
  cr_assert(commands.size() == 2 && commands[0].kind == Command::Kind::committed);
  cr_expect(commands[1].kind == Command::Kind::commit && commands[1].step == 6u);
  cr_expect(c.handle(shard_event(1, 7)).empty());
  Event failed;
  failed.kind = Event::Kind::error;
  failed.cmd = "commit";
  failed.step = 6;
  failed.error = "disk full";
  commands = c.handle(failed);
  cr_assert(commands.size() == 2 && commands[0].kind == Command::Kind::failed);
  cr_expect(commands[0].step == 6u && commands[1].kind == Command::Kind::commit);
  cr_expect(commands[1].step == 7u);
}

Test(coordinator, a_rank_that_skips_a_step_is_noticed, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  cr_expect(c.handle(shard_event(0, 6)).empty());
  // Rank 1 will never give step 5; step 6 is whole.
  auto commands = c.handle(shard_event(1, 6));
  cr_assert(commands.size() == 2);
  cr_expect(commands[0].kind == Command::Kind::failed && commands[0].step == 5u);
  cr_expect(has(commands[0].error, "the ranks save different steps: 5 and 6"));
  cr_expect(commands[1].kind == Command::Kind::commit && commands[1].step == 6u);
}

Test(coordinator, a_late_shard_of_a_failed_step_counts_for_nothing, .timeout = 10) {
  Coordinator c(2);
  for (std::uint64_t step : {5, 6}) cr_expect(c.handle(shard_event(0, step)).empty());
  Event e;
  e.kind = Event::Kind::save_error;
  e.rank = 1;
  e.step = 6;
  e.error = "disk full";
  cr_assert(c.handle(e).size() == 1);
  cr_expect(c.handle(shard_event(1, 5)).size() == 1);
  Event done;
  done.kind = Event::Kind::committed;
  done.step = 5;
  cr_expect(c.handle(done).size() == 1);
  // Sent before rank 0's agent heard of the failure, come after the commit of another step.
  cr_expect(c.handle(shard_event(0, 6)).empty());
  cr_expect(c.pending().empty());
}

// Ranks that give steps as fast as they like, lose parts and die; a leader that takes its time.
Test(coordinator, every_step_is_decided_once_and_in_order, .timeout = 60) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t world = 1 + random() % 4;
    constexpr std::uint64_t kSteps = 12;
    Coordinator c(world);
    std::vector<std::uint64_t> given(world), heard(world);
    std::vector<std::deque<Command>> mail(world);
    std::map<std::uint64_t, int> decided;
    std::optional<std::uint64_t> committing, committed;
    const auto take = [&](const std::vector<Command>& commands) {
      for (const Command& command : commands) {
        if (command.kind == Command::Kind::commit) {
          cr_assert(!committing && command.shards.size() == world && committed < command.step);
          committing = command.step;
          continue;
        }
        cr_assert(++decided[*command.step] == 1, "seed %u: step %lu decided twice", seed,
                  *command.step);
        for (auto& box : mail) box.push_back(command);
      }
    };
    while (committing || std::any_of(given.begin(), given.end(),
                                     [](std::uint64_t step) { return step < kSteps; })) {
      const std::uint32_t rank = random() % world;
      if (committing && random() % 3 == 0) {
        Event e;
        e.step = committing;
        e.kind = random() % 8 == 0 ? Event::Kind::error : Event::Kind::committed;
        e.cmd = "commit";
        if (e.kind == Event::Kind::committed) committed = committing;
        committing.reset();
        take(c.handle(e));
      } else if (!mail[rank].empty() && random() % 2 == 0) {
        const Command command = mail[rank].front();
        mail[rank].pop_front();
        if (command.kind == Command::Kind::failed) heard[rank] = command.id;
      } else if (given[rank] < kSteps) {
        Event e = shard_event(rank, ++given[rank]);
        e.id = heard[rank];
        if (random() % 10 == 0) e.kind = Event::Kind::save_error;
        // A rank that has heard of the failure gives nothing.
        const auto& box = mail[rank];
        if (decided.contains(*e.step) &&
            std::none_of(box.begin(), box.end(),
                         [&](const Command& waiting) { return waiting.step == e.step; })) {
          continue;
        }
        take(c.handle(e));
      }
    }
    cr_assert(decided.size() == kSteps && c.pending().empty(), "seed %u: %zu of %lu steps", seed,
              decided.size(), kSteps);
  }
}

Test(coordinator, one_ranks_error_fails_the_step_for_all, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  Event e;
  e.kind = Event::Kind::save_error;
  e.rank = 1;
  e.step = 5;
  e.error = "disk full";
  auto commands = c.handle(e);
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::failed);
  cr_expect(commands[0].error == "disk full" && commands[0].step == 5u);
  cr_expect(commands[0].id == 1);
  // What rank 1's agent sent before it heard of the failure counts for nothing.
  cr_expect(c.handle(shard_event(1, 5)).empty());
  Event again = shard_event(0, 5);
  again.id = 1;
  cr_expect(c.handle(again).empty());
  again.rank = 1;
  cr_expect(c.handle(again).size() == 1);
}

Test(stop_decision, moves_the_gate_beyond_the_rank_ahead, .timeout = 10) {
  StopDecision d(2, 10, 3);
  Command gate = d.begin();
  cr_expect(gate.kind == Command::Kind::gate && gate.step == 13u);
  Event ack;
  ack.kind = Event::Kind::gated;
  ack.id = gate.id;
  ack.node = "n1";
  ack.max_step = 12;
  cr_expect(d.handle(ack).empty());
  ack.node = "n2";
  ack.max_step = 20;
  auto commands = d.handle(ack);
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::gate);
  cr_expect(commands[0].step == 23u && commands[0].id != gate.id);
  // An answer to the old gate counts for nothing.
  cr_expect(d.handle(ack).empty());
  ack.id = commands[0].id;
  cr_expect(d.handle(ack).empty());
  ack.node = "n1";
  // Exactly at the gate is too far: that rank may have looked before the gate was there.
  ack.max_step = 23;
  commands = d.handle(ack);
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::gate);
  cr_expect(commands[0].step == 29u);
  ack.id = commands[0].id;
  cr_expect(d.handle(ack).empty());
  ack.node = "n2";
  commands = d.handle(ack);
  cr_assert(commands.size() == 1 && commands[0].kind == Command::Kind::stop);
  cr_expect(commands[0].step == 29u && d.step() == 29u);
}
