// SPDX-License-Identifier: Apache-2.0
// The disk tier through bellows-modeld: it has the image of m and stores that of n, and the process
// that does so is killed at each call that changes its directory, or the power lost after it.
// What was said to be stored is there, nobody gets wrong data, and nothing is left. The short form
// looks at some of the losses, BELLOWS_LONG=1 at all.
#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <set>

#include "tests/fault/power_support.h"
#include "tests/fault/trace_support.h"
#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;
using namespace bellows::fault_test;

namespace {

namespace fs = std::filesystem;

constexpr const char* kDisk = HELPERS "/bellows-model-disk";
constexpr const char* kKeeper = HELPERS "/bellows-model-keeper";
constexpr int kServed = 0;
constexpr int kWrongData = 5;
constexpr int kHangs = 6;
constexpr int kDoesNotEnd = 8;

bool is_long() {
  const char* text = std::getenv("BELLOWS_LONG");
  return text && *text == '1';
}

/// A store of two models in files, with a disk tier that has room for both.
class TierScene {
 public:
  TierScene() : m_(random_bytes(300'000)), n_(random_bytes(400'000, 2)) {
    store_.add("m", m_);
    store_.add("n", n_);
    store_.option("--disk=" + disk() + "=64M,files=yes");
    store_.start();
    {
      const OpenModel m = store_.open("m");
      cr_assert(m.ok());
      cr_assert(store_.says(std::string("stored ") + m.digest()));
    }
    stop();
    begin_ = Disk(disk()).now();
  }

  std::string disk() const { return store_.path() + "/disk"; }
  void reset() { materialize(begin_, disk()); }

  /// Has n loaded and stored by a daemon under the eyes of `on_call`, which sees the calls of the
  /// disk tier's process.
  int run(const std::function<Verdict(const Call&)>& on_call) {
    log_ = store_.path() + "/log";
    fs::remove(log_);
    Tracer tracer(Tracer::Scope::file_calls);
    int ended = -1;
    const pid_t daemon = tracer.start([&] { return become_daemon(); });
    const pid_t program = tracer.start([&] { return use(daemon); });
    tracer.on_call = [&](const Call& call) {
      return call.program == kDisk ? on_call(call) : Verdict{};
    };
    tracer.on_end = [&](pid_t process, int status) {
      if (process == program && WIFEXITED(status)) ended = WEXITSTATUS(status);
      for (const pid_t keeper : tracer.running(kKeeper))
        if (process == daemon) kill(keeper, SIGKILL);
    };
    return tracer.run(40) ? ended : kDoesNotEnd;
  }
  /// Whether the daemon has said so.
  bool is_stored() const {
    std::ifstream log(log_);
    const std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
    return has(text, "stored ");
  }

  /// With a daemon after that: "", or what is wrong.
  std::string look(bool has_n) {
    const std::size_t of_images = store_.said("image on the disk");
    store_.start();
    const bool right = store_.open("m").data("w") == m_ && store_.open("n").data("w") == n_;
    const std::size_t found = store_.said("image on the disk") - of_images;
    // It says what it has thrown away only later.
    const bool settled = eventually([&] { return left() == 2; });
    stop();
    if (!right) return "wrong data";
    if (found < (has_n ? 2u : 1u)) return "an image that was stored is not found";
    return settled ? "" : "not two images are there, or more than these";
  }

 private:
  /// Images, or something else that does not belong there: many.
  std::size_t left() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(disk())) {
      const std::string name = entry.path().filename();
      if (name == "lock" || name == "records") continue;
      count += name.size() == 64 ? 1 : 100;
    }
    return count;
  }
  /// Until the keeper's memory is gone, and the disk's process has written all it wants to.
  void stop() {
    const std::vector<pid_t> helpers = store_.helpers();
    const pid_t keeper = store_.keeper();
    store_.stop();
    kill(keeper, SIGKILL);
    for (const pid_t helper : helpers)
      cr_assert(eventually([&] {
        std::error_code gone;
        return fs::read_symlink("/proc/" + std::to_string(helper) + "/exe", gone).empty();
      }));
  }
  int become_daemon() {
    const int log = open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, 2);
    std::vector<std::string> words = store_.command();
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    return 127;
  }
  /// Opens n, waits until it is stored, and ends the daemon.
  int use(pid_t daemon) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int result = kHangs;
    while (std::chrono::steady_clock::now() < end) {
      const OpenModel n = store_.open("n", "a", 300);
      if (!n.ok()) continue;
      if (n.data("w") != n_) result = kWrongData;
      // One that was killed stored nothing, and the daemon says so.
      const bool over = is_stored() || said_end();
      if (!over && result == kHangs) continue;
      if (result == kHangs) result = kServed;
      break;
    }
    kill(daemon, SIGTERM);
    return result;
  }
  bool said_end() const {
    std::ifstream log(log_);
    const std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
    return has(text, "bellows-model-disk has ended") || has(text, "is not stored");
  }

  const std::string m_, n_;
  ModelStore store_;
  Disk::Files begin_;
  std::string log_;
};

}  // namespace

Test(tier_power, survives_a_kill_at_each_call, .timeout = 600) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  TierScene scene;
  int killed = 0;
  for (int nth = 1, last = 1; nth <= last; ++nth) {
    scene.reset();
    int calls = 0;
    bool hit = false;
    const int ended = scene.run([&](const Call& call) {
      if (!change_of(call, scene.disk()) || ++calls != nth || hit) return Verdict{};
      hit = true;
      return Verdict{.what = Verdict::What::kill_after};
    });
    cr_expect_eq(ended, kServed, "killed at call %d: the program ends with %d", nth, ended);
    last = std::max(last, hit ? nth + 1 : calls);
    killed += hit;
    const std::string wrong = scene.look(scene.is_stored());
    cr_expect(wrong.empty(), "killed at call %d: %s", nth, wrong.c_str());
  }
  cr_expect(killed > 10, "killed %d times", killed);
}

Test(tier_power, survives_a_power_loss_after_each_call, .timeout = 3000) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  TierScene scene;
  scene.reset();
  Disk disk(scene.disk());
  std::vector<Change> changes;
  cr_assert_eq(scene.run([&](const Call& call) {
    if (auto change = change_of(call, scene.disk())) {
      change->acknowledged = scene.is_stored() ? 1 : 0;
      changes.push_back(std::move(*change));
    }
    return Verdict{};
  }),
               kServed);
  cr_assert(scene.is_stored());
  int looked = 0;
  unsigned built = 0;
  const unsigned step = is_long() ? 1 : 3;
  for (std::size_t done = 0;; ++done) {
    const bool has_n = done == changes.size() || changes[done].acknowledged;
    for (const auto& kept : losses(disk, is_long() ? 20 : 2, static_cast<unsigned>(done))) {
      if (built++ % step != 0) continue;
      ++looked;
      materialize(disk.after_loss(kept), scene.disk());
      const std::string wrong = scene.look(has_n);
      cr_expect(wrong.empty(), "power lost after change %zu: %s", done, wrong.c_str());
    }
    if (done == changes.size()) break;
    disk.apply(changes[done]);
  }
  cr_expect(looked > 20 && changes.size() > 10, "%d directories after %zu changes were looked at",
            looked, changes.size());
}

Test(tier_power, does_without_a_disk_that_is_full_or_broken, .timeout = 600) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  TierScene scene;
  int hits = 0;
  for (const int error : {ENOSPC, EIO}) {
    const int step = is_long() ? 1 : 3;
    for (int nth = 1, last = 1; nth <= last; nth += step) {
      scene.reset();
      int calls = 0;
      bool hit = false;
      const int ended = scene.run([&](const Call& call) {
        if (!change_of(call, scene.disk()) || ++calls != nth || hit) return Verdict{};
        hit = true;
        return Verdict{.what = Verdict::What::fail, .error = error};
      });
      cr_expect_eq(ended, kServed, "error %d at call %d: the program ends with %d", error, nth,
                   ended);
      last = std::max(last, hit ? nth + step : calls);
      hits += hit;
      const std::string wrong = scene.look(scene.is_stored());
      cr_expect(wrong.empty(), "error %d at call %d: %s", error, nth, wrong.c_str());
    }
  }
  cr_expect(hits >= 8, "%d calls failed", hits);
}
