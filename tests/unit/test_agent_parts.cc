// SPDX-License-Identifier: Apache-2.0
// The parts of an agent, without ranks and their sockets.
#include <criterion/criterion.h>

#include <new>

#include "checkpoint/agent/gate.h"
#include "checkpoint/agent/jobs.h"
#include "checkpoint/agent/store_desk.h"
#include "tests/unit/checkpoint_support.h"
#include "tests/unit/scratch_dir.h"
#include "tests/unit/text_support.h"

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
  cr_expect(has(passed.error().text, "come to step 5"), "%s", passed.error().text.c_str());
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
  cr_expect(d.said[0].kind == Event::Kind::found && !d.said[0].step && d.said[0].node == "n1");
  cr_expect(d.said[1].kind == Event::Kind::error && d.said[1].cmd == "commit");
  cr_expect(d.said[1].step == 5u);
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
