// SPDX-License-Identifier: Apache-2.0
// What agents, ranks and the launcher say to each other, and what is decided of it; no agent runs.
#include <criterion/criterion.h>

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "checkpoint/agent/rank_link.h"
#include "checkpoint/agent/rank_message.h"
#include "checkpoint/protocol/coordinator.h"
#include "checkpoint/protocol/protocol.h"
#include "tests/unit/checkpoint/agent_support.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

using State = event::Rank::State;

event::Shard shard_event(std::uint32_t rank, std::uint64_t step, std::uint64_t id = 0) {
  return {{rank, "f", 1, "i", 2, std::string(32, '0')}, step, id};
}

/// What the line is on the other side; it must be one, and of the same type.
template <typename Body>
Body sent(const Body& body) {
  if constexpr (requires { Command{body}; }) {
    const auto back = parse_command(to_line(Command{body}));
    cr_assert(back.ok(), "%s", back.error().text.c_str());
    return std::get<Body>(back->body);
  } else {
    const auto back = parse_event(to_line(Event{body, "n2"}));
    cr_assert(back.ok(), "%s", back.error().text.c_str());
    cr_expect(back->node == "n2");
    return std::get<Body>(back->body);
  }
}

template <typename Body>
bool is(const Command& command) {
  return std::holds_alternative<Body>(command.body);
}

const command::Failed& failed(const Command& command) {
  return std::get<command::Failed>(command.body);
}

}  // namespace

Test(protocol, commands_come_back, .timeout = 10) {
  command::Hello hello = hello_for("/ck", 1, {{"n1", {0, 1}}, {"n2", {2}}});
  hello.keep = 5;
  hello.keep_every = 1000;
  const auto begun = sent(hello);
  cr_expect(begun.dir == "/ck" && begun.attempt == "7.0.1" && begun.leader == "n1");
  cr_expect(begun.world == 3 && begun.keep == 5 && begun.ranks == hello.ranks);
  cr_expect(begun.keep_every == 1000 && !begun.replaces);
  for (const char* owner : {"", "7.0.0"}) {
    hello.replaces = owner;
    cr_expect(sent(hello).replaces == owner);
  }
  const command::Commit commit{9, {{1, "shard", 10, "index", 20, std::string(32, 'a')}}};
  cr_expect(sent(commit).step == 9 && sent(commit).shards == commit.shards);
  const auto gate = sent(command::SetGate{.id = 4});
  cr_expect(!gate.step && gate.id == 4);
  cr_expect(sent(command::SetGate{7, 5}).step == 7u);
  cr_expect(sent(command::SetStop{8}).step == 8);
  auto restore = sent(command::Restore{6});
  cr_expect(restore.step == 6u && !restore.rendezvous && !restore.error);
  restore = sent(command::Restore{6, true});
  cr_expect(restore.step == 6u && restore.rendezvous);
  const auto failure = sent(command::Failed{3, 2, {ErrorKind::busy, "disk \"full\"\n\xff"}});
  cr_expect(failure.step == 3 && failure.id == 2 && failure.error.kind == ErrorKind::busy &&
            has(failure.error.text, "disk \"full\"\n"));
  auto find = sent(command::Find{});
  cr_expect(!find.search.whole && find.search.bad.empty());
  find = sent(command::Find{{true, {{7, "damaged"}}}});
  cr_assert(find.search.whole && find.search.bad.size() == 1);
  cr_expect(find.search.bad[0].step == 7 && find.search.bad[0].error == "damaged");
  restore = sent(command::Restore{.error = Error{ErrorKind::corrupt, "none is good"}});
  cr_assert(!restore.step && restore.error);
  cr_expect(restore.error->text == "none is good" && restore.error->kind == ErrorKind::corrupt);
}

Test(protocol, events_come_back, .timeout = 10) {
  event::Shard shard = shard_event(3, 12);
  shard.took_ms = 1500;
  shard = sent(shard);
  cr_expect(shard.file.rank == 3 && shard.step == 12 && shard.file.file == "f");
  cr_expect(shard.took_ms == 1500);
  const auto found = sent(event::Found{.skipped = {{5, "damaged"}}});
  cr_expect(!found.step && found.skipped.size() == 1 && found.skipped[0].step == 5);
  const auto bad = sent(event::RestoreError{1, 6, {ErrorKind::corrupt, "damaged"}});
  cr_expect(bad.rank == 1 && bad.step == 6 && bad.error.text == "damaged" &&
            bad.error.kind == ErrorKind::corrupt);
  const auto given = sent(event::Restored{2, 9, 5000, 70});
  cr_expect(given.rank == 2 && given.step == 9 && given.from_memory == 5000 &&
            given.from_store == 70);
  for (const State state :
       {State::joined, State::finished, State::stopped, State::exited, State::lost})
    cr_expect(sent(event::Rank{2, state}).state == state);
  event::Progress progress{.max_step = 8, .ranks = {0, 1}, .steps = {8, std::nullopt}};
  progress.busy = true;
  progress.unwritten = 3;
  progress.id = 4;
  progress.signal = event::Progress::Signal::usr1;
  const auto back = sent(progress);
  cr_expect(back.max_step == 8u && back.ranks.size() == 2);
  cr_expect(back.steps == progress.steps && back.busy);
  cr_expect(back.unwritten == 3 && back.id == 4 && back.signal == event::Progress::Signal::usr1);
  event::Ready ready;
  cr_expect(!sent(ready).rendezvous);
  ready.rendezvous = {"198.18.0.11", 40000};
  cr_expect(sent(ready).rendezvous == ready.rendezvous);
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
                           "{\"event\":\"rank\",\"rank\":1,\"state\":\"away\"}",
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
  cr_assert(commands.size() == 1 && is<command::Commit>(commands[0]));
  const auto& shards = std::get<command::Commit>(commands[0].body).shards;
  cr_expect(shards.size() == 3 && shards[1].rank == 1);
  // A rank that was complete may die while the leader commits.
  cr_expect(c.handle(event::Rank{1, State::lost}).empty());
  commands = c.handle(event::Committed{5});
  cr_assert(commands.size() == 1 && is<command::Committed>(commands[0]));
  cr_expect(c.committed() == 5u);
}

Test(coordinator, a_lost_rank_fails_the_steps_it_has_no_part_in, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  auto commands = c.handle(event::Rank{1, State::lost});
  cr_assert(commands.size() == 1 && is<command::Failed>(commands[0]));
  const std::string& why = failed(commands[0]).error.text;
  cr_expect(has(why, "rank 1 was lost"), "%s", why.c_str());
  cr_expect(c.handle(shard_event(0, 5)).empty() && !c.is_pending(5), "it had crossed the failure");
  commands = c.handle(shard_event(0, 6));
  cr_expect(commands.size() == 1 && is<command::Failed>(commands[0]));
  cr_expect(!c.is_pending(6));
}

Test(coordinator, ranks_that_save_different_steps_are_told, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  auto commands = c.handle(shard_event(1, 6));
  cr_assert(commands.size() == 2);
  const Error& error = failed(commands[0]).error;
  cr_expect(error.kind == ErrorKind::invalid && has(error.text, "5 and 6"));
}

Test(coordinator, several_steps_are_committed_in_order, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  cr_expect(c.handle(shard_event(0, 6)).empty());
  cr_expect(c.handle(shard_event(0, 7)).empty());
  auto commands = c.handle(shard_event(1, 5));
  cr_assert(commands.size() == 1 && is<command::Commit>(commands[0]));
  // Complete, but the leader has not said what became of step 5.
  cr_expect(c.handle(shard_event(1, 6)).empty());
  cr_expect(c.pending() == (std::vector<std::uint64_t>{5, 6, 7}));
  commands = c.handle(event::Committed{5});
  cr_assert(commands.size() == 2 && is<command::Committed>(commands[0]));
  cr_expect(is<command::Commit>(commands[1]) && step_of(commands[1]) == 6);
  cr_expect(c.handle(shard_event(1, 7)).empty());
  commands = c.handle(event::CommandFailed{"commit", 6, {ErrorKind::io, "disk full"}});
  cr_assert(commands.size() == 2 && is<command::Failed>(commands[0]));
  cr_expect(step_of(commands[0]) == 6 && is<command::Commit>(commands[1]));
  cr_expect(step_of(commands[1]) == 7);
}

Test(coordinator, a_rank_that_skips_a_step_is_noticed, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  cr_expect(c.handle(shard_event(0, 6)).empty());
  // Rank 1 will never give step 5; step 6 is whole.
  auto commands = c.handle(shard_event(1, 6));
  cr_assert(commands.size() == 2);
  cr_assert(is<command::Failed>(commands[0]) && step_of(commands[0]) == 5);
  cr_expect(has(failed(commands[0]).error.text, "the ranks save different steps: 5 and 6"));
  cr_expect(is<command::Commit>(commands[1]) && step_of(commands[1]) == 6);
}

Test(coordinator, a_late_shard_of_a_failed_step_counts_for_nothing, .timeout = 10) {
  Coordinator c(2);
  for (std::uint64_t step : {5, 6}) cr_expect(c.handle(shard_event(0, step)).empty());
  cr_assert(c.handle(event::SaveError{1, 6, {ErrorKind::io, "disk full"}}).size() == 1);
  cr_expect(c.handle(shard_event(1, 5)).size() == 1);
  cr_expect(c.handle(event::Committed{5}).size() == 1);
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
        const std::uint64_t step = step_of(command);
        if (const auto* commit = std::get_if<command::Commit>(&command.body)) {
          cr_assert(!committing && commit->shards.size() == world && committed < step);
          committing = step;
          continue;
        }
        cr_assert(++decided[step] == 1, "seed %u: step %lu decided twice", seed, step);
        for (auto& box : mail) box.push_back(command);
      }
    };
    while (committing || std::any_of(given.begin(), given.end(),
                                     [](std::uint64_t step) { return step < kSteps; })) {
      const std::uint32_t rank = random() % world;
      if (committing && random() % 3 == 0) {
        const std::uint64_t step = *std::exchange(committing, std::nullopt);
        if (random() % 8 == 0) {
          take(c.handle(event::CommandFailed{.cmd = "commit", .step = step}));
        } else {
          committed = step;
          take(c.handle(event::Committed{step}));
        }
      } else if (!mail[rank].empty() && random() % 2 == 0) {
        const Command command = mail[rank].front();
        mail[rank].pop_front();
        if (is<command::Failed>(command)) heard[rank] = failed(command).id;
      } else if (given[rank] < kSteps) {
        const std::uint64_t step = ++given[rank];
        Event::Body part = shard_event(rank, step, heard[rank]);
        if (random() % 10 == 0)
          part = event::SaveError{.rank = rank, .step = step, .id = heard[rank]};
        // A rank that has heard of the failure gives nothing.
        const auto& box = mail[rank];
        if (decided.contains(step) &&
            std::none_of(box.begin(), box.end(),
                         [&](const Command& waiting) { return step_of(waiting) == step; })) {
          continue;
        }
        take(c.handle(part));
      }
    }
    cr_assert(decided.size() == kSteps && c.pending().empty(), "seed %u: %zu of %lu steps", seed,
              decided.size(), kSteps);
  }
}

Test(coordinator, one_ranks_error_fails_the_step_for_all, .timeout = 10) {
  Coordinator c(2);
  cr_expect(c.handle(shard_event(0, 5)).empty());
  auto commands = c.handle(event::SaveError{1, 5, {ErrorKind::io, "disk full"}});
  cr_assert(commands.size() == 1 && is<command::Failed>(commands[0]));
  const command::Failed& told = failed(commands[0]);
  cr_expect(told.error.text == "disk full" && told.step == 5 && told.id == 1);
  // What rank 1's agent sent before it heard of the failure counts for nothing.
  cr_expect(c.handle(shard_event(1, 5)).empty());
  cr_expect(c.handle(shard_event(0, 5, 1)).empty());
  cr_expect(c.handle(shard_event(1, 5, 1)).size() == 1);
}

Test(stop_decision, moves_the_gate_beyond_the_rank_ahead, .timeout = 10) {
  StopDecision d(2, 10, 3);
  const command::SetGate first = d.begin();
  cr_expect(first.step == 13u);
  cr_expect(d.handle("n1", {first.id, 12}).empty());
  auto commands = d.handle("n2", {first.id, 20});
  cr_assert(commands.size() == 1 && is<command::SetGate>(commands[0]));
  const auto second = std::get<command::SetGate>(commands[0].body);
  cr_expect(second.step == 23u && second.id != first.id);
  // An answer to the old gate counts for nothing.
  cr_expect(d.handle("n2", {first.id, 20}).empty());
  cr_expect(d.handle("n2", {second.id, 20}).empty());
  // Exactly at the gate is too far: that rank may have looked before the gate was there.
  commands = d.handle("n1", {second.id, 23});
  cr_assert(commands.size() == 1 && is<command::SetGate>(commands[0]));
  const auto third = std::get<command::SetGate>(commands[0].body);
  cr_expect(third.step == 29u);
  cr_expect(d.handle("n1", {third.id, 23}).empty());
  commands = d.handle("n2", {third.id, 23});
  cr_assert(commands.size() == 1 && is<command::SetStop>(commands[0]));
  cr_expect(std::get<command::SetStop>(commands[0].body).step == 29 && d.step() == 29u);
}
