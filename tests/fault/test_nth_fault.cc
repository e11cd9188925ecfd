// SPDX-License-Identifier: Apache-2.0
// A save whose Nth system call fails, for every N until none is left to fail: a full disk, a broken
// one, short writes, no descriptors, no memory. Every rank is told the same, the older step stays
// whole, the next try of the save succeeds, and nothing is left open.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <functional>

#include "tests/fault/call_table.h"
#include "tests/fault/program_support.h"
#include "tests/fault/trace_support.h"

using namespace bellows::fault_test;

namespace {

constexpr int kMostFailures = 8;

/// What goes wrong, and at which calls of the agent.
struct Fault {
  const char* name;
  int error;  ///< 0: the call does half of what it was asked for
  std::function<bool(const Call&, const std::string& checkpoints)> hits;
  Tracer::Scope scope = Tracer::Scope::file_calls;
};

struct Result {
  bool hit = false;
  std::string call;
  bool agent_died = false;
  std::string wrong;
  std::uint32_t open = 0;
  bool told = false;  ///< the save failed on every rank
};

bool long_run() {
  const char* said = std::getenv("BELLOWS_LONG");
  return said && *said;
}

bool is(const Call& call, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (call_name(call.number) == name) return true;
  }
  return false;
}

bool is_change(const Call& call, const std::string& dir) {
  return file_call(call, dir).has_value();
}

// Half of the bytes, as a disk does it: in whole sectors, if it was asked for whole pages.
Verdict cut_in_half(const Call& call) {
  const std::uint64_t bytes = call.args[2];
  std::uint64_t half = bytes / 2;
  if (bytes % 4096 == 0) half = bytes > 4096 ? half / 4096 * 4096 : 512;
  return {.what = Verdict::What::cut, .bytes = half};
}

/// One run of the program, with a fault.
class Watch {
 public:
  Watch(Scene& scene, const Fault& fault, int nth)
      : scene_(scene), fault_(fault), nth_(nth), tracer_(fault.scope) {
    tracer_.on_call = [this](const Call& call) { return judge(call); };
    tracer_.on_end = [this](pid_t process, int status) { ended(process, status); };
  }

  Result run(const Plan& plan) {
    for (int r = 0; r < kWorld; ++r) ranks_[r] = tracer_.start(scene_.rank(r, plan));
    scene_.started();
    const bool in_time = tracer_.run(25);
    judge_ranks();
    if (!in_time) result_.wrong = "the program hangs";
    return std::move(result_);
  }

 private:
  Verdict judge(const Call& call) {
    const Board& board = scene_.board();
    if (call.program != scene_.agent()) return {};
    agent_ = call.process;
    if (!board.restored[0] || !board.restored[1] || fault_.hits == nullptr) return {};
    if (!fault_.hits(call, scene_.checkpoints()) || ++seen_ != nth_) return {};
    result_.hit = true;
    result_.call = file_change(call, scene_.root()).value_or(call_name(call.number));
    if (fault_.error == 0) return cut_in_half(call);
    return {.what = Verdict::What::fail, .error = fault_.error};
  }

  void ended(pid_t process, int status) {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
    if (process == agent_) {
      result_.agent_died = code != 0;
      return;
    }
    for (int r = 0; r < kWorld; ++r) {
      if (ranks_[r] == process) codes_[r] = code;
    }
  }

  // A rank comes to its end, or gives up when its agent has gone.
  void judge_ranks() {
    for (int r = 0; r < kWorld; ++r) {
      if (codes_[r] == 0 || (codes_[r] == kGaveUp && result_.agent_died)) continue;
      result_.wrong = fmt::format("rank {} ends with {}: {}", r, codes_[r], scene_.board().text);
    }
  }

  Scene& scene_;
  const Fault& fault_;
  int nth_;
  Tracer tracer_;
  pid_t ranks_[kWorld] = {};
  int codes_[kWorld] = {};
  pid_t agent_ = 0;
  int seen_ = 0;
  Result result_;
};

std::string judge_board(const Board& board, const Result& result, bool is_fault) {
  // An agent may end when its last rank has had its answer.
  if (result.agent_died && board.acknowledged[0] == board.acknowledged[1]) return "";
  if (board.failed[0] != board.failed[1]) {
    return fmt::format("{} saves failed on rank 0, {} on rank 1", board.failed[0].load(),
                       board.failed[1].load());
  }
  if (board.code[0] != board.code[1]) {
    return fmt::format("rank 0 is told {}, rank 1 {}", board.code[0].load(), board.code[1].load());
  }
  if (!is_fault && board.failed[0] > 0) return "the save failed";
  if (result.agent_died) return "";
  return board.acknowledged[0] >= kBaseSteps + 1 && board.acknowledged[1] == board.acknowledged[0]
             ? ""
             : "the save did not succeed in the end";
}

/// Tries a fault at one call after the other, and counts.
class Series {
 public:
  explicit Series(bool async = false, const char* agent = AGENT)
      : scene_(agent), plan_{.async = async, .saves = async ? 2 : 1, .retries = 2} {
    if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
    const Result plain = run({"no fault", 0, nullptr}, 0, 0);
    cr_assert(plain.wrong.empty(), "without a fault: %s", plain.wrong.c_str());
    open_ = plain.open;
    cr_assert(open_ > 3, "the agent's descriptors are not counted");
  }

  void every(const Fault& fault, int stride = 1) {
    const auto begin = std::chrono::steady_clock::now();
    int tried = 0, told = 0, died = 0;
    for (int nth = 1;; nth += stride) {
      const Result result = run(fault, nth, 0);
      if (!result.wrong.empty()) complain(fault, nth, result);
      if (!result.hit) break;
      ++tried;
      told += result.told;
      died += result.agent_died;
    }
    cr_expect(tried > 0, "%s: no call was hit", fault.name);
    std::fprintf(stderr,
                 "%s: %d calls, one in %d, %d failed the save, %d ended the agent, %.1f s\n",
                 fault.name, tried, stride, told, died,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }

  /// The Nth allocation of the agent, one in `stride`.
  void every_allocation(std::uint64_t stride) {
    const Fault fault{"no memory for the agent", ENOMEM, nullptr};
    int tried = 0, told = 0, died = 0;
    for (std::uint64_t nth = 1;; nth += stride) {
      const Result result = run(fault, 0, nth);
      if (!result.wrong.empty()) complain(fault, static_cast<int>(nth), result);
      if (!result.hit) break;
      ++tried;
      told += result.told;
      died += result.agent_died;
    }
    std::fprintf(stderr,
                 "%s: %d of about %lu allocations, %d failed the save, %d ended the agent\n",
                 fault.name, tried, static_cast<unsigned long>(tried * stride), told, died);
  }

 private:
  Result run(const Fault& fault, int nth, std::uint64_t fail_made) {
    scene_.reset();
    Board& board = scene_.board();
    board.open = open_;
    board.fail_made = fail_made;
    Result result = Watch(scene_, fault, nth).run(plan_);
    result.hit = result.hit || (fail_made > 0 && board.made >= fail_made);
    result.told = board.failed[0] > 0;
    result.open = board.open;
    if (result.agent_died && result.wrong.empty()) result.wrong = "the agent ends";
    if (result.wrong.empty()) {
      result.wrong = judge_board(board, result, result.hit && fault.error != 0);
    }
    if (result.wrong.empty() && open_ > 0 && !result.agent_died && result.open > open_) {
      result.wrong = fmt::format("the agent has {} descriptors open, not {}", result.open, open_);
    }
    board.fail_made = 0;
    if (result.wrong.empty()) result.wrong = scene_.check(result.agent_died);
    return result;
  }

  void complain(const Fault& fault, int nth, const Result& result) {
    cr_expect(result.wrong.empty(), "%s at call %d \"%s\": %s", fault.name, nth,
              result.call.c_str(), result.wrong.c_str());
    cr_assert(++failures_ < kMostFailures, "too many failures");
  }

  Scene scene_;
  Plan plan_;
  std::uint32_t open_ = 0;
  int failures_ = 0;
};

bool is_sync(const Call& call, const std::string& dir) {
  return is(call, {"fsync", "fdatasync"}) && is_change(call, dir);
}
bool is_write(const Call& call, const std::string& dir) {
  return is(call, {"write", "pwrite64"}) && call.args[2] > 1 && is_change(call, dir);
}
bool gives_descriptor(const Call& call, const std::string&) {
  return is(call, {"open", "openat", "memfd_create", "eventfd2", "socket", "accept4", "pipe2"});
}
bool gives_memory(const Call& call, const std::string&) {
  return is(call, {"memfd_create", "mmap", "mremap", "fallocate"});
}

}  // namespace

Test(nth_fault, the_disk_is_full, .timeout = 600) { Series().every({"ENOSPC", ENOSPC, is_change}); }

Test(nth_fault, the_disk_is_broken, .timeout = 600) { Series().every({"EIO", EIO, is_change}); }

Test(nth_fault, the_disk_is_full_in_save_async, .timeout = 600) {
  Series(true).every({"ENOSPC in save_async", ENOSPC, is_change}, long_run() ? 1 : 3);
}

Test(nth_fault, no_memory_is_left_in_save_async, .timeout = 600) {
  Series(true).every({"ENOMEM in save_async", ENOMEM, gives_memory, Tracer::Scope::memory});
}

Test(nth_fault, an_fsync_fails, .timeout = 600) { Series().every({"EIO of fsync", EIO, is_sync}); }

Test(nth_fault, a_write_is_short, .timeout = 600) { Series().every({"short writes", 0, is_write}); }

Test(nth_fault, no_descriptor_is_left, .timeout = 600) {
  Series().every({"EMFILE", EMFILE, gives_descriptor, Tracer::Scope::memory});
}

Test(nth_fault, no_memory_is_left, .timeout = 600) {
  Series().every({"ENOMEM", ENOMEM, gives_memory, Tracer::Scope::memory});
}

Test(nth_fault, an_allocation_fails, .timeout = 3000) {
  Series(false, SHORT_OF_MEMORY).every_allocation(long_run() ? 1 : 11);
}
