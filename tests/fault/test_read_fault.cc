// SPDX-License-Identifier: Apache-2.0
// A restore of which the Nth look at the checkpoints fails, for every N: it gives the newest step
// or fails, but never an older step or none.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>

#include "tests/fault/call_table.h"
#include "tests/fault/program_rank.h"
#include "tests/fault/program_support.h"
#include "tests/fault/trace_support.h"

using namespace bellows::fault_test;

namespace {

constexpr int kDescriptor = 0, kPath = 1;

// Opens, lists or reads what is below `root`.
bool looks_at(const Call& call, const std::string& root) {
  switch (call.number) {
    case SYS_openat:
      return text_at(call.thread, call.args[kPath]).starts_with(root);
    case SYS_read:
    case SYS_pread64:
    case SYS_getdents64:
    case SYS_newfstatat:
    case SYS_fstat:
      break;
    default:
      return false;
  }
  std::error_code code;
  const auto file = std::filesystem::read_symlink(
      fmt::format("/proc/{}/fd/{}", call.process, static_cast<int>(call.args[kDescriptor])), code);
  return file.string().starts_with(root);
}

struct Outcome {
  bool hit = false;
  int exit = -1;
};

// The program restores as one rank, and saves.
Outcome restore_with_fault(Scene& scene, int nth, int error) {
  scene.reset();
  Outcome out;
  int seen = 0;
  pid_t rank = 0;
  Tracer tracer(Tracer::Scope::all_calls);
  tracer.on_call = [&](const Call& call) -> Verdict {
    const Board& board = scene.board();
    if (call.program != scene.agent() || board.restored[0]) return {};
    if (!looks_at(call, scene.checkpoints()) || ++seen != nth) return {};
    out.hit = true;
    return {.what = Verdict::What::fail, .error = error};
  };
  tracer.on_end = [&](pid_t process, int status) {
    if (process == rank && WIFEXITED(status)) out.exit = WEXITSTATUS(status);
  };
  rank = tracer.start(
      [&] { return restore_and_save({}, scene.board(), scene.checkpoints(), kBaseSteps); });
  scene.started();
  cr_expect(tracer.run(40), "call %d: the program hangs", nth);
  return out;
}

void try_every_look(int error) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  Scene scene;
  int tried = 0, failed = 0;
  for (int nth = 1;; ++nth) {
    const Outcome out = restore_with_fault(scene, nth, error);
    const std::string text = scene.board().text;
    const bool told = out.exit == 1 && text.find("comes back") == std::string::npos;
    cr_assert(out.exit == 0 || (out.hit && told), "call %d: exit %d, %s", nth, out.exit,
              text.c_str());
    if (!out.hit) break;
    ++tried;
    failed += out.exit != 0;
  }
  std::fprintf(stderr, "error %d: %d looks, %d failed the restore\n", error, tried, failed);
  cr_expect(tried > 5);
}

}  // namespace

Test(read_fault, the_disk_is_broken, .timeout = 300) { try_every_look(EIO); }

Test(read_fault, no_descriptor_is_left, .timeout = 300) { try_every_look(EMFILE); }
