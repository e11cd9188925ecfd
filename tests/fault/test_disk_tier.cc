// SPDX-License-Identifier: Apache-2.0
// The directory of models' images, of which one is stored and another removed: with each system
// call failing in turn, with a kill at each, and with the power lost after each. An image is there
// as a whole or not at all, what was stored stays, and nothing else is left.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/fault/call_table.h"
#include "tests/fault/power_support.h"
#include "tests/fault/trace_support.h"
#include "tests/unit/modelstore/disk_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::disk_test;
using namespace bellows::fault_test;

namespace {

constexpr std::uint64_t kBudget = 1 << 30;
constexpr int kRunSeconds = 20;

/// What the program tells the test.
struct Told {
  std::atomic<int> step{0};  ///< 1: b is stored, 2: a is removed too
  std::atomic<int> errors{0};
  char wrong[400] = {};
};

/// A directory with the image a, to which b comes, and from which a goes.
class DiskScene {
 public:
  DiskScene() : told_(make_shared_memory()) { reset(); }
  ~DiskScene() { munmap(told_, sizeof(Told)); }

  void reset() {
    std::filesystem::remove_all(path());
    new (told_) Told;
    auto tier = DiskTier::open(path(), kBudget);
    cr_assert(tier.ok() && tier->store(a.image(), a.data()).ok());
  }
  std::string path() const { return scratch_.path() + "/tier"; }
  Told& told() { return *told_; }

  /// Each part is tried again once, if it fails, and must succeed then.
  int program() {
    const std::size_t open_files = names_in("/proc/self/fd").size();
    {
      auto tier = DiskTier::open(path(), kBudget);
      if (!tier && noted(tier.error())) tier = DiskTier::open(path(), kBudget);
      if (!tier) return wrong("it cannot be opened again: " + tier.error().text);
      if (!attempt(*tier, a.image().file_bytes(), {name(a)},
                   [&] { return tier->store(b.image(), b.data()); }))
        return 1;
      told_->step = 1;
      if (!attempt(*tier, a.image().file_bytes() + b.image().file_bytes(), {name(a), name(b)},
                   [&] { return tier->remove(a.image().digest); }))
        return 1;
      told_->step = 2;
      std::string differs = b.differs(*tier);
      if (!differs.empty()) differs = b.differs(*tier);
      if (!differs.empty()) return wrong("b: " + differs);
    }
    if (names_in("/proc/self/fd").size() != open_files) return wrong("a descriptor is left open");
    return 0;
  }

  /// What the next process finds, when the last had told of this step. "" or what is wrong.
  std::string look(int step) const {
    auto tier = DiskTier::open(path(), kBudget);
    if (!tier) return tier.error().text;
    std::uint64_t bytes = 0;
    bool has_a = false, has_b = false;
    for (const DiskImage& image : tier->images()) {
      const ImageMemory& memory = image == a.image() ? a : b;
      (image == a.image() ? has_a : has_b) = true;
      if (const auto differs = memory.differs(*tier); !differs.empty()) return differs;
      bytes += image.file_bytes();
    }
    if (step < 1 && !has_a) return "a is lost";
    if (step >= 1 && !has_b) return "b is lost, and was stored";
    if (bytes != tier->used()) return fmt::format("{} bytes are used", tier->used());
    std::set<std::string> names = {"lock"};
    if (has_a) names.insert(name(a));
    if (has_b) names.insert(name(b));
    if (names_in(path()) != names) return "more is left than the images";
    const auto stored = tier->store(b.image(), b.data());
    return stored ? b.differs(*tier) : stored.error().text;
  }

  const ImageMemory a{3, 1};
  const ImageMemory b{5, 2};

 private:
  static Told* make_shared_memory() {
    void* memory =
        mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED);
    return static_cast<Told*>(memory);
  }
  static std::string name(const ImageMemory& memory) { return memory.image().digest.to_string(); }

  bool noted(const Error& error) {
    ++told_->errors;
    if (error.text.find(path()) == std::string::npos) wrong("this names no file: " + error.text);
    return true;
  }
  bool attempt(const DiskTier& tier, std::uint64_t used, std::set<std::string> names,
               const std::function<Status()>& change) {
    const auto first = change();
    if (first) return true;
    noted(first.error());
    names.insert("lock");
    if (tier.used() != used) wrong("another number of bytes is used after an error");
    if (names_in(path()) != names) wrong("an error leaves something, or takes it");
    const auto second = change();
    return second.ok() || wrong("it fails again: " + second.error().text) == 0;
  }
  int wrong(const std::string& what) {
    if (!told_->wrong[0]) std::snprintf(told_->wrong, sizeof told_->wrong, "%s", what.c_str());
    return 1;
  }

  const ScratchDir scratch_;
  Told* told_;
};

/// Runs the program of a scene, with a verdict on each call that has to do with its directory.
class Run {
 public:
  explicit Run(DiskScene& scene) : scene_(scene), tracer_(Tracer::Scope::file_calls) {}

  /// By the call and its number, from 1.
  void go(const std::function<Verdict(const Call&, int)>& judge) {
    tracer_.on_call = [&](const Call& call) {
      if (!concerns(call)) return Verdict{};
      return judge(call, ++calls_);
    };
    tracer_.on_end = [&](pid_t, int status) { status_ = status; };
    tracer_.start([this] { return scene_.program(); });
    cr_assert(tracer_.run(kRunSeconds), "the program hangs");
  }
  int calls() const { return calls_; }
  bool was_killed() const { return WIFSIGNALED(status_); }
  bool ended_well() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

 private:
  bool concerns(const Call& call) const {
    if (file_call(call, scene_.path())) return true;
    // To read, which changes nothing, but may fail.
    return call.number == SYS_openat &&
           text_at(call.thread, call.args[1]).starts_with(scene_.path());
  }

  DiskScene& scene_;
  Tracer tracer_;
  int calls_ = 0;
  int status_ = 0;
};

bool is_write(const Call& call) {
  return call.number == SYS_pwrite64 || call.number == SYS_fallocate;
}

/// Fails the Nth call for every N. What the call is then up to is `judge`'s.
void fail_each(const char* what, bool must_tell, const std::function<Verdict(const Call&)>& judge) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  DiskScene scene;
  int hits = 0;
  for (int nth = 1, last = 1; nth <= last; ++nth) {
    scene.reset();
    Run run(scene);
    bool hit = false;
    run.go([&](const Call& call, int number) {
      const Verdict verdict = number == nth ? judge(call) : Verdict{};
      hit = hit || verdict.what != Verdict::What::go_on;
      return verdict;
    });
    last = run.calls();
    hits += hit;
    cr_expect(run.ended_well() && !scene.told().wrong[0], "%s at call %d: %s", what, nth,
              scene.told().wrong);
    if (must_tell) cr_expect_eq(scene.told().errors, hit, "%s at call %d is not told", what, nth);
    const std::string wrong = scene.look(2);
    cr_expect(wrong.empty(), "after %s at call %d: %s", what, nth, wrong.c_str());
  }
  cr_expect(hits > 0, "%s was never tried", what);
}

Verdict failing(int error) { return {.what = Verdict::What::fail, .error = error}; }

}  // namespace

Test(disk_tier, tells_of_each_full_disk, .timeout = 60) {
  fail_each("ENOSPC", true,
            [](const Call& call) { return is_write(call) ? failing(ENOSPC) : Verdict{}; });
}

Test(disk_tier, tells_of_each_broken_disk, .timeout = 60) {
  fail_each("EIO", false, [](const Call&) { return failing(EIO); });
}

Test(disk_tier, does_without_what_a_file_system_lacks, .timeout = 60) {
  fail_each("EOPNOTSUPP", false, [](const Call& call) {
    return call.number == SYS_fallocate ? failing(EOPNOTSUPP) : Verdict{};
  });
  fail_each("EINVAL", false, [](const Call& call) {
    return call.number == SYS_pwrite64 ? failing(EINVAL) : Verdict{};
  });
}

Test(disk_tier, goes_on_after_short_writes, .timeout = 60) {
  fail_each("a short write", false, [](const Call& call) {
    if (call.number != SYS_pwrite64) return Verdict{};
    return Verdict{.what = Verdict::What::cut, .bytes = call.args[2] > 4096 ? 4096u : 1000u};
  });
}

Test(disk_tier, survives_a_kill_at_each_call, .timeout = 60) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  DiskScene scene;
  for (const auto what : {Verdict::What::kill_before, Verdict::What::kill_after}) {
    int killed = 0;
    for (int nth = 1, last = 1; nth <= last; ++nth) {
      scene.reset();
      Run run(scene);
      run.go([&](const Call&, int number) {
        return number == nth ? Verdict{.what = what} : Verdict{};
      });
      last = run.calls() + run.was_killed();
      killed += run.was_killed();
      const std::string wrong = scene.look(scene.told().step);
      cr_expect(wrong.empty(), "killed at call %d: %s", nth, wrong.c_str());
    }
    cr_expect(killed > 10, "killed %d times", killed);
  }
}

Test(disk_tier, survives_a_power_loss_after_each_call, .timeout = 60) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  DiskScene scene;
  Disk disk(scene.path());
  std::vector<Change> changes;
  Run run(scene);
  run.go([&](const Call& call, int) {
    if (auto change = change_of(call, scene.path())) {
      change->acknowledged = static_cast<std::uint64_t>(scene.told().step);
      changes.push_back(std::move(*change));
    }
    return Verdict{};
  });
  cr_assert(run.ended_well(), "%s", scene.told().wrong);
  int built = 0;
  for (std::size_t done = 0;; ++done) {
    // What was told before the next change was asked for.
    const int step = done < changes.size() ? static_cast<int>(changes[done].acknowledged) : 2;
    for (const auto& kept : losses(disk, 20, static_cast<unsigned>(done))) {
      ++built;
      materialize(disk.after_loss(kept), scene.path());
      const std::string wrong = scene.look(step);
      cr_expect(wrong.empty(), "power lost after change %zu: %s", done, wrong.c_str());
    }
    if (done == changes.size()) break;
    disk.apply(changes[done]);
  }
  cr_expect(built > 40, "%d directories were looked at", built);
}
