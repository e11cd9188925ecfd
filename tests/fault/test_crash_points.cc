// SPDX-License-Identifier: Apache-2.0
// kill -9 of a rank, and of the agent, at every system call of a save and of the retention after
// it: what is left restores to a step that was committed, none older than was acknowledged, bit by
// bit, and the next start clears up. BELLOWS_LONG=1 takes every call of the programs' lives;
// otherwise it is every one that changes a file, and some of the others.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <vector>

#include "tests/fault/program_support.h"
#include "tests/fault/trace_support.h"

using namespace bellows::fault_test;

namespace {

constexpr int kVictims = 3;
constexpr int kAgent = 2;
constexpr const char* kNames[kVictims] = {"rank 0", "rank 1", "the agent"};
/// A program that has not ended by then hangs.
constexpr int kRunSeconds = 25;
constexpr int kMostFailures = 50;

/// The moment at which a process is killed.
struct Point {
  int victim = kAgent;
  std::string call;  ///< "": any
  int nth = 1;       ///< of the calls with this text
  bool after = false;

  std::string text() const {
    return fmt::format("kill -9 of {} {} its call {} \"{}\"", kNames[victim],
                       after ? "after" : "before", nth, call.empty() ? "any" : call);
  }
};

/// One run of the program.
struct Run {
  bool killed = false;
  std::string wrong;
  std::vector<std::string> calls[kVictims];
};

/// Watches the processes of one run.
class Watch {
 public:
  Watch(Scene& scene, Tracer& tracer, const Point* point)
      : scene_(scene), tracer_(tracer), point_(point) {
    tracer.on_call = [this](const Call& call) { return judge(call); };
    tracer.on_end = [this](pid_t process, int status) { ended(process, status); };
  }

  Run finish(const Plan& plan) {
    for (int r = 0; r < kWorld; ++r) pids_[r] = tracer_.start(scene_.rank(r, plan));
    scene_.started();
    if (!tracer_.run(kRunSeconds)) run_.wrong = "the program hangs";
    return std::move(run_);
  }

 private:
  int victim_of(const Call& call) {
    if (call.program == AGENT) note_agent(call.process);
    for (int v = 0; v < kVictims; ++v) {
      if (pids_[v] == call.process) return v;
    }
    return -1;
  }

  // A rank that starts another agent, as its own has died, waits there for its partner; when that
  // has ended, whatever started the ranks ends the one that is left.
  void note_agent(pid_t agent) {
    if (pids_[kAgent] == 0) pids_[kAgent] = agent;
    if (pids_[kAgent] != agent) second_agent_ = true;
    end_the_forlorn();
  }
  void end_the_forlorn() {
    if (!second_agent_ || ranks_ended_ == 0) return;
    for (int r = 0; r < kWorld; ++r) {
      if (!ended_[r]) kill(pids_[r], SIGKILL);
      ended_[r] = true;
    }
  }

  Verdict judge(const Call& call) {
    const int victim = victim_of(call);
    if (victim < 0) return {};
    const auto change = file_change(call, scene_.root());
    if (!point_ && change) run_.calls[victim].push_back(*change);
    if (!point_ && !change) run_.calls[victim].push_back("");
    if (!point_ || run_.killed || victim != point_->victim) return {};
    if (!point_->call.empty() && change != point_->call) return {};
    if (++seen_ < point_->nth) return {};
    run_.killed = true;
    return {.what = point_->after ? Verdict::What::kill_after : Verdict::What::kill_before};
  }

  void ended(pid_t process, int status) {
    for (int r = 0; r < kWorld; ++r) {
      if (pids_[r] != process) continue;
      ++ranks_ended_;
      const bool shot = ended_[r] || (run_.killed && point_->victim == r);
      ended_[r] = true;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
      if (code == 0 || (run_.killed && code == kGaveUp) || (shot && code == 200 + SIGKILL))
        continue;
      run_.wrong = fmt::format("rank {} ends with {}: {}", r, code, scene_.board().text);
    }
    end_the_forlorn();
    // An agent that no rank has joined waits for one; a job's end would end it.
    if (ranks_ended_ < kWorld || scene_.board().joined[0]) return;
    for (pid_t agent : tracer_.running(AGENT)) kill(agent, SIGKILL);
  }

  Scene& scene_;
  Tracer& tracer_;
  const Point* point_;
  pid_t pids_[kVictims] = {};
  int ranks_ended_ = 0;
  bool ended_[kWorld] = {};
  bool second_agent_ = false;
  int seen_ = 0;
  Run run_;
};

Run run_program(Scene& scene, const Plan& plan, Tracer::Scope scope, const Point* point) {
  scene.reset();
  Tracer tracer(scope);
  Run run = Watch(scene, tracer, point).finish(plan);
  const bool agent_killed = run.killed && point->victim == kAgent;
  if (run.wrong.empty()) run.wrong = scene.check(agent_killed);
  return run;
}

bool long_run() {
  const char* said = std::getenv("BELLOWS_LONG");
  return said && *said;
}

/// Kills at one point after the other, and counts.
class Enumeration {
 public:
  Enumeration(const char* name, Plan plan) : name_(name), plan_(plan), scene_(AGENT, plan) {
    if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  }

  /// A run in which nobody dies: what calls there are.
  Run reference(Tracer::Scope scope) {
    Run run = run_program(scene_, plan_, scope, nullptr);
    cr_assert(run.wrong.empty(), "%s: nobody is killed, and %s", name_, run.wrong.c_str());
    return run;
  }

  /// Whether the point was reached.
  bool kill_at(const Point& point, Tracer::Scope scope) {
    const Run run = run_program(scene_, plan_, scope, &point);
    points_ += run.killed;
    if (!run.wrong.empty()) {
      cr_expect(run.wrong.empty(), "%s, %s: %s", name_, point.text().c_str(), run.wrong.c_str());
      cr_assert(++failures_ < kMostFailures, "%s: too many failures", name_);
    }
    return run.killed;
  }

  /// Every call that changes a file, before and after it; or before one and after the next.
  void every_file_call(int victim, bool by_turns = false) {
    const Run run = reference(Tracer::Scope::file_calls);
    std::map<std::string, int> count;
    bool turn = false;
    for (const std::string& call : run.calls[victim]) {
      if (call.empty()) continue;
      const int nth = ++count[call];
      turn = !turn;
      for (bool after : {false, true}) {
        if (by_turns && after != turn) continue;
        const Point point{victim, call, nth, after};
        // Which of two threads comes first may spare the other its call: once more, if need be.
        const bool reached =
            kill_at(point, Tracer::Scope::file_calls) || kill_at(point, Tracer::Scope::file_calls);
        cr_expect(reached || nth > 1, "%s: %s did not come", name_, point.text().c_str());
      }
    }
    note_parts(run.calls[victim], victim);
  }

  /// Every `stride`-th call of whatever kind, before or after it by turns; 1: both.
  void calls(int victim, int stride) {
    int last = 0;
    bool after = false;
    for (int nth = 1; nth > 0; nth += stride) {
      const Point point{victim, "", nth, after};
      bool reached = kill_at(point, Tracer::Scope::all_calls);
      if (stride == 1) {
        const Point other{victim, "", nth, true};
        reached = kill_at(other, Tracer::Scope::all_calls) || reached;
      }
      if (!reached) break;
      last = nth;
      after = stride > 1 && !after;
    }
    cr_expect(last > stride, "%s: %s made no calls", name_, kNames[victim]);
    note(fmt::format("{} calls of any kind of {}, one in {}", last, kNames[victim], stride));
  }

  ~Enumeration() {
    const auto took = std::chrono::steady_clock::now() - begin_;
    std::fprintf(stderr, "%s: %d points in %.1f s: %s\n", name_, points_,
                 std::chrono::duration<double>(took).count(), notes_.c_str());
  }
  Enumeration(const Enumeration&) = delete;
  Enumeration& operator=(const Enumeration&) = delete;

 private:
  void note(const std::string& text) { notes_ += (notes_.empty() ? "" : "; ") + text; }

  // The start, each save up to its commit, and what comes after the commit: all before and after.
  void note_parts(const std::vector<std::string>& calls, int victim) {
    int parts[3] = {};
    int part = 0;
    for (const std::string& call : calls) {
      if (call.empty()) continue;
      if (call.starts_with("mkdir") && call.find(".tmp-") != std::string::npos) part = 1;
      ++parts[part];
      if (call.starts_with("rename") && call.find("-> checkpoints/step-") != std::string::npos)
        part = 2;
    }
    note(fmt::format("file calls of {}: {} in the start, {} in saves, {} after their commit",
                     kNames[victim], parts[0], parts[1], parts[2]));
  }

  const char* name_;
  Plan plan_;
  Scene scene_;
  int points_ = 0;
  int failures_ = 0;
  std::string notes_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

Test(crash_points, the_agent_in_save, .timeout = 7000) {
  Enumeration all("save", {});
  all.every_file_call(kAgent);
  all.calls(kAgent, long_run() ? 1 : 40);
}

Test(crash_points, a_rank_in_save, .timeout = 7000) {
  Enumeration all("save", {});
  for (int rank = 0; rank < kWorld; ++rank) {
    all.every_file_call(rank);
    all.calls(rank, long_run() ? 1 : 5);
  }
}

Test(crash_points, the_agent_in_save_async, .timeout = 7000) {
  Enumeration all("save_async", {.async = true, .saves = 2});
  all.every_file_call(kAgent, !long_run());
  all.calls(kAgent, long_run() ? 1 : 60);
}

Test(crash_points, the_agent_in_a_step_that_is_saved_again, .timeout = 7000) {
  Enumeration all("saved again", {.again = true, .keep_every = 2, .named = true});
  all.every_file_call(kAgent, !long_run());
}

Test(crash_points, the_agent_in_shards_of_several_blocks, .timeout = 7000) {
  if (!long_run()) cr_skip_test("only in the long form");
  Enumeration all("large", {.saves = 2, .rows = (18 << 20) / 8});
  all.every_file_call(kAgent);
}

Test(crash_points, a_rank_in_save_async, .timeout = 7000) {
  Enumeration all("save_async", {.async = true, .saves = 2});
  for (int rank = 0; rank < kWorld; ++rank) all.calls(rank, long_run() ? 1 : 3);
}
