// SPDX-License-Identifier: Apache-2.0
// What an agent decides without ranks, threads or files.
#include <criterion/criterion.h>

#include "checkpoint/agent/gate.h"
#include "tests/unit/text_support.h"

using namespace bellows;

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
