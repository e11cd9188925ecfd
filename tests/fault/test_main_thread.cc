// SPDX-License-Identifier: Apache-2.0
// What would keep an agent's main thread from answering ranks, were the arrays large.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <sys/syscall.h>

#include <fstream>
#include <string>

#include "tests/fault/program_support.h"
#include "tests/fault/trace_support.h"

using namespace bellows::fault_test;

namespace {

// Memory that the agent shares with a rank, but for the one page of each rank's steps.
bool is_snapshot(const Call& call) {
  if (call.args[1] <= 4096) return false;
  const std::string begin = fmt::format("{:x}-", call.args[0]);
  std::ifstream maps(fmt::format("/proc/{}/maps", call.process));
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin)) return line.find("/memfd:bellows ") != std::string::npos;
  }
  return false;
}

}  // namespace

Test(main_thread, frees_no_snapshot, .timeout = 120) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  Scene scene;
  scene.reset();
  int by_main = 0, by_others = 0;
  Tracer tracer(Tracer::Scope::all_calls);
  tracer.on_call = [&](const Call& call) -> Verdict {
    if (call.program == scene.agent() && call.number == SYS_munmap && is_snapshot(call)) {
      ++(call.thread == call.process ? by_main : by_others);
    }
    return {};
  };
  for (int r = 0; r < kWorld; ++r) tracer.start(scene.rank(r, {.saves = 3}));
  scene.started();
  cr_assert(tracer.run(60));
  cr_expect(scene.board().acknowledged[0] == kBaseSteps + 3);
  cr_expect(by_main == 0, "%d times", by_main);
  // Each rank's restore, and its two buffers.
  cr_expect(by_others >= 3 * kWorld, "%d times only", by_others);
}
