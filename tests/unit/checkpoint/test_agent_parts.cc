// SPDX-License-Identifier: Apache-2.0
// The parts of an agent, without ranks and their sockets.
#include <criterion/criterion.h>
#include <sys/socket.h>

#include <new>

#include "checkpoint/agent/gate.h"
#include "checkpoint/agent/jobs.h"
#include "checkpoint/agent/rank_links.h"
#include "checkpoint/agent/restore_offer.h"
#include "checkpoint/agent/session.h"
#include "checkpoint/agent/store_desk.h"
#include "tests/unit/checkpoint/agent_support.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

constexpr Gate::Clock::time_point at(int ms) {
  return Gate::Clock::time_point(std::chrono::milliseconds(ms));
}

}  // namespace

Test(gate, stops_ranks_only_where_none_can_have_passed, .timeout = 10) {
  Gate gate(std::chrono::milliseconds(100));
  cr_expect(!gate.stop_at(5).ok(), "there is no gate");
  gate.set(5, at(0));
  gate.note_newest(5);
  const Status passed = gate.stop_at(5);
  cr_assert(!passed.ok());
  cr_expect(has(passed.error().text, "had reached step 5"), "%s", passed.error().text.c_str());
  gate.set(7, at(1));
  gate.note_newest(5);
  cr_expect(!gate.stop_at(5).ok() && !gate.stop_at({}).ok(), "the gate stands elsewhere");
  cr_expect(gate.stop() == wire::kNoStep);
  cr_expect(gate.stop_at(7).ok() && gate.stop() == 7);
}

Test(gate, opens_when_nobody_decides, .timeout = 10) {
  Gate gate(std::chrono::milliseconds(100));
  std::uint64_t step = 0;
  cr_expect(!gate.expire(at(1000), &step), "there is none");
  gate.set(5, at(1000));
  cr_expect(!gate.expire(at(1099), &step) && gate.step() == 5);
  const auto expired = gate.expire(at(1100), &step);
  cr_assert(expired && step == 5 && gate.step() == wire::kNoStep);
  cr_expect(expired->kind == ErrorKind::unavailable && has(expired->text, "100 ms"));
  cr_expect(!gate.stop_at(5).ok(), "the decision came too late");
}

Test(gate, waits_for_ever_once_it_is_decided, .timeout = 10) {
  Gate gate(std::chrono::milliseconds(100));
  gate.set(5, at(0));
  cr_assert(gate.stop_at(5).ok());
  std::uint64_t step = 0;
  cr_expect(!gate.expire(at(100000), &step) && gate.step() == 5);
}

namespace {

/// The desk and the jobs of an agent, and what it says.
struct Desk {
  Desk() {
    desk.begin(std::make_shared<StoreWriter>(ops, StorePlace{scratch.path(), scratch.path()},
                                             "job.0.1", Retention{2}));
  }
  /// Finishes all that was asked for.
  bool settle() {
    return eventually([&] {
      jobs.completions().run();
      return jobs.count() == 0;
    });
  }

  ScratchDir scratch;
  FileOps ops;
  std::vector<Event> said;
  Voice voice{"n1", [this](const Event& e) { said.push_back(e); }};
  Jobs jobs{std::move(*Completions::make())};
  StoreDesk desk{voice, jobs};
};

}  // namespace

Test(jobs, give_what_came_of_them_to_the_attempt_that_wanted_it, .timeout = 30) {
  Jobs jobs(std::move(*Completions::make()));
  Workers workers(1, jobs.completions());
  std::vector<std::string> told;
  const auto note = [&](const Result<std::string>& r) { told.push_back(r ? *r : r.error().text); };
  jobs.post(
      workers, [] { return Result<std::string>("done"); }, note);
  jobs.post(
      workers, []() -> Result<std::string> { throw std::bad_alloc(); }, note);
  cr_expect(jobs.count() == 2);
  const auto all_ended = [&] {
    jobs.completions().run();
    return jobs.count() == 0;
  };
  cr_assert(eventually(all_ended));
  cr_assert(told.size() == 2);
  cr_expect(told[0] == "done" && has(told[1], "out of memory"), "%s", told[1].c_str());
  jobs.post(
      workers, [] { return Result<std::string>("of the attempt before"); }, note);
  jobs.disown();
  jobs.post(
      workers, [] { return Result<std::string>("of this one"); }, note);
  cr_assert(eventually(all_ended));
  cr_expect(told.size() == 3 && told.back() == "of this one");
}

Test(store_desk, says_what_came_of_each_command_in_order, .timeout = 30) {
  Desk d;
  bool owned = false;
  d.desk.own([&](const Status& status) { owned = status.ok(); });
  d.desk.find({});
  d.desk.commit(5, {});
  cr_expect(d.desk.tidies());
  std::size_t before_last = 0;
  d.desk.after_all([&] { before_last = d.said.size(); });
  cr_assert(d.settle());
  cr_expect(owned && !d.desk.not_owned() && !d.desk.tidies());
  cr_assert(d.said.size() == 2 && before_last == 2);
  const auto* found = std::get_if<event::Found>(&d.said[0].body);
  cr_expect(found && !found->step && d.said[0].node == "n1");
  const auto* failed = std::get_if<event::CommandFailed>(&d.said[1].body);
  cr_expect(failed && failed->cmd == "commit" && failed->step == 5u);
}

Test(store_desk, knows_whether_the_directory_is_anothers, .timeout = 30) {
  Desk d;
  const auto begin = [&](const char* attempt) {
    auto writer = std::make_shared<StoreWriter>(
        d.ops, StorePlace{d.scratch.path(), d.scratch.path()}, attempt, Retention{2});
    writer->replace_only("");
    d.desk.begin(std::move(writer));
    d.desk.own([](const Status&) {});
    return d.settle();
  };
  cr_assert(begin("job.0.1") && !d.desk.not_owned());
  cr_assert(begin("job.0.2") && d.desk.not_owned());
}

namespace {

command::Hello hello_of_two_nodes() {
  return hello_for("/shared/run", 1, {{"n1", {0, 1}}, {"n2", {2}}});
}

wire::Hello rank_of(std::int32_t rank, std::int32_t world) {
  wire::Hello hello;
  hello.rank = rank;
  hello.world = world;
  return hello;
}

}  // namespace

Test(session, knows_its_node_s_ranks, .timeout = 10) {
  const std::chrono::milliseconds limit(100);
  const Session first(hello_of_two_nodes(), "n1", limit), other(hello_of_two_nodes(), "n2", limit);
  cr_expect(first.leader && first.ranks_here() == 2);
  cr_expect(!other.leader && other.ranks_here() == 1);
  const std::string attempt = first.hello.attempt;
  cr_expect(!first.refusal(rank_of(1, 3), attempt, false));
  cr_expect(has(first.refusal(rank_of(2, 3), attempt, false), "does not belong on node n1"));
  cr_expect(has(first.refusal(rank_of(1, 2), attempt, false), "this program has 3"));
  cr_expect(has(first.refusal(rank_of(1, 3), "/elsewhere", false), "serves /shared/run"));
  cr_expect(has(first.refusal(rank_of(1, 3), attempt, true), "connected already"));
}

Test(session, tells_its_ranks_from_those_of_another_attempt, .timeout = 10) {
  const Session session(hello_of_two_nodes(), "n1", std::chrono::milliseconds(100));
  cr_expect(!session.is_foreign(session.hello.attempt) && !session.is_foreign("/any/directory"));
  cr_expect(session.is_foreign("7.0.9"));
}

namespace {

/// Asks an offer as a rank does, and counts the restores that were made for it.
struct Asked {
  std::shared_ptr<NodeRestore> share(std::uint64_t call, std::uint64_t step) {
    return offer.share(call, step, [&] {
      ++made;
      return std::make_shared<NodeRestore>(StorePlace{"/nowhere", "/nowhere"}, step, 2);
    });
  }
  RestoreOffer offer;
  int made = 0;
};

}  // namespace

Test(restore_offer, is_known_until_the_step_turns_out_bad, .timeout = 10) {
  RestoreOffer offer;
  cr_expect(!offer.known());
  offer.set(7, {});
  cr_expect(offer.known() && offer.step() == 7u && !offer.none());
  offer.retract();
  cr_expect(!offer.known());
  offer.commit(8);
  cr_expect(offer.known() && offer.step() == 8u);
}

Test(restore_offer, keeps_for_good_only_why_there_is_no_step, .timeout = 10) {
  RestoreOffer offer;
  const Error error{ErrorKind::unavailable, "the disk is away"};
  offer.set(7, error);
  offer.forgive();
  cr_expect(!offer.none(), "it may be read by the next that asks");
  offer.set({}, error);
  offer.forgive();
  cr_expect(offer.none().has_value(), "the next that asks may not begin at the start");
}

Test(restore_offer, is_shared_by_ranks_at_the_same_call, .timeout = 10) {
  Asked asked;
  const auto first = asked.share(1, 7);
  cr_expect(asked.share(1, 7) == first && asked.made == 1);
  cr_expect(asked.share(2, 7) != first && asked.share(1, 7) == first);
  cr_expect(asked.share(1, 6) != first, "another step was offered meanwhile");
  // Those of the slowest rank make room.
  const auto second = asked.share(2, 7);
  for (std::uint64_t call = 3; call <= 5; ++call) asked.share(call, 7);
  const int made = asked.made;
  cr_expect(asked.share(2, 7) == second && asked.made == made);
  asked.share(1, 7);
  cr_expect(asked.made == made + 1);
  asked.offer.commit(8);
  cr_expect(asked.share(2, 7) != second);
}

Test(rank_links, are_found_by_what_is_known_of_them, .timeout = 10) {
  int ends[2];
  cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  RankLinks links{Fd()};
  RankLink& first = links.add(Fd(ends[0]));
  RankLink& second = links.add(Fd(ends[1]));
  cr_expect(links.find(first.id) == &first && links.at(ends[1]) == &second);
  cr_expect(!links.at(-1) && !links.find(99));
  first.rank = 3;
  cr_expect(!links.has(3) && !links.newest_step(), "it has not joined");
  first.page = std::move(*ControlPage::make(wire::kNoStep, wire::kNoStep));
  cr_expect(links.has(3) && !links.newest_step());
  second.gone = true;
  cr_expect(links.dead() == std::vector<int>{ends[1]});
  first.gone = true;
  cr_expect(!links.has(3) && links.dead().size() == 2);
  const auto removed = links.remove(ends[0]);
  cr_expect(removed->rank == 3 && !links.at(ends[0]));
  links.drop_gone();
  cr_expect(links.empty());
}
