// SPDX-License-Identifier: Apache-2.0
// A power loss at every moment of a save and of the retention after it. The changes that a program
// and its agent make are recorded as the kernel gets them; then every directory is built that may
// be there when the power is lost after any of them, with what was not made durable missing in
// whole, in part or out of order. Each must hold a step that was committed, none older than was
// acknowledged, bit by bit.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "checkpoint/store/store_writer.h"
#include "tests/fault/power_support.h"
#include "tests/fault/program_support.h"

using namespace bellows;
using namespace bellows::fault_test;

namespace fs = std::filesystem;

namespace {

constexpr int kMostFailures = 6;

bool long_run() {
  const char* said = std::getenv("BELLOWS_LONG");
  return said && *said;
}

/// What a program does to its checkpoints, from the start on.
class Recording {
 public:
  Recording(Scene& scene, const Plan& plan)
      : scene_(scene),
        tracer_(Tracer::Scope::file_calls),
        start_((scene.reset(), scene.checkpoints())) {
    tracer_.on_call = [this](const Call& call) {
      auto change = change_of(call, scene_.checkpoints());
      if (change) {
        change->acknowledged = acknowledged();
        changes_.push_back(std::move(*change));
      }
      return Verdict{};
    };
    for (int r = 0; r < kWorld; ++r) tracer_.start(scene.rank(r, plan));
    scene.started();
    cr_assert(tracer_.run(25), "the program hangs");
    last_acknowledged_ = acknowledged();
    left_ = Disk(scene.checkpoints()).now();
  }

  const Disk& start() const { return start_; }
  const std::vector<Change>& changes() const { return changes_; }
  /// The directory as the program left it.
  const Disk::Files& left() const { return left_; }
  /// The newest step that a rank may have been told of when the first `done` changes were made.
  std::uint64_t acknowledged_after(std::size_t done) const {
    return done < changes_.size() ? changes_[done].acknowledged : last_acknowledged_;
  }

 private:
  std::uint64_t acknowledged() {
    std::uint64_t newest = kBaseSteps;
    for (const auto& step : scene_.board().acknowledged) newest = std::max(newest, step.load());
    return newest;
  }

  Scene& scene_;
  Tracer tracer_;
  Disk start_;
  std::vector<Change> changes_;
  std::uint64_t last_acknowledged_ = 0;
  Disk::Files left_;
};

/// The files of one step.
Disk::Files step_files(const Disk::Files& files, std::uint64_t step) {
  const std::string begin = fmt::format("step-{:020}/", step);
  Disk::Files out;
  for (const auto& [name, content] : files) {
    if (name.starts_with(begin)) out[name] = content;
  }
  return out;
}

/// Loses the power again and again.
class Losses {
 public:
  Losses(Scene& scene, const Plan& plan)
      : scene_(scene),
        recording_(scene, plan),
        place_(scene.root() + "/after"),
        again_(plan.again) {}

  void run() {
    Disk disk = recording_.start();
    for (std::size_t done = 0;; ++done) {
      note_steps(disk.now());
      lose(disk, done);
      if (done == recording_.changes().size()) break;
      disk.apply(recording_.changes()[done]);
    }
    compare(disk.now(), recording_.left());
    const auto& changes = recording_.changes();
    const bool exchanged = std::any_of(changes.begin(), changes.end(), [](const Change& change) {
      return change.kind == Change::Kind::exchange;
    });
    cr_expect(exchanged == again_, "a step that is there is exchanged, and no other");
    const auto took = std::chrono::steady_clock::now() - begin_;
    std::fprintf(stderr,
                 "power loss: %zu changes, %zu directories after a loss, %zu of them different, %d "
                 "restored, in %.1f s\n",
                 recording_.changes().size(), built_, seen_.size(), restored_,
                 std::chrono::duration<double>(took).count());
  }

 private:
  void compare(const Disk::Files& modelled, const Disk::Files& left) const {
    std::string differ;
    for (const auto& [name, content] : modelled) {
      const auto found = left.find(name);
      if (found == left.end() || found->second != content) differ += " " + name;
    }
    for (const auto& [name, content] : left) {
      if (!modelled.contains(name)) differ += " " + name;
    }
    cr_expect(differ.empty(), "the model of the disk and what the program left differ in:%s",
              differ.c_str());
  }

  // What a step holds when it first has its name, with all changes done, is what it must restore.
  void note_steps(const Disk::Files& files) {
    for (std::uint64_t step = 1; step < 16; ++step) {
      auto its = step_files(files, step);
      if (its.empty()) continue;
      // One that is saved again has another manifest.
      const std::string manifest = fmt::format("step-{:020}/manifest.json", step);
      auto& known = committed_[step];
      if (known.empty() || known.back()[manifest] != its[manifest]) known.push_back(std::move(its));
    }
  }

  void lose(const Disk& disk, std::size_t done) {
    const std::uint64_t acknowledged = recording_.acknowledged_after(done);
    const unsigned random = long_run() ? 300 : 8;
    for (const auto& kept : losses(disk, random, static_cast<unsigned>(done))) {
      ++built_;
      const Disk::Files files = disk.after_loss(kept);
      const bool fresh = seen_.emplace(files, acknowledged).second;
      if (fresh) judge(files, acknowledged, done);
      if (fresh && (long_run() || seen_.size() % 25 == 0)) restore(files, done);
    }
  }

  void judge(const Disk::Files& files, std::uint64_t acknowledged, std::size_t done) {
    materialize(files, place_);
    std::string wrong = look(files, acknowledged);
    if (wrong.empty()) wrong = clear_up();
    if (!wrong.empty()) complain(wrong, files, done);
  }

  std::string look(const Disk::Files& files, std::uint64_t acknowledged) const {
    const auto newest = newest_step(place_);
    if (!newest) return newest.error().text;
    if (!newest->skipped.empty()) return newest->skipped[0].error;
    if (!newest->step) return "no step is left";
    if (*newest->step < acknowledged) {
      return fmt::format("step {} was acknowledged, {} is the newest", acknowledged, *newest->step);
    }
    const auto steps = list_steps(place_);
    for (std::uint64_t step : *steps) {
      if (auto manifest = verify_step(place_, step); !manifest) return manifest.error().text;
      const auto right = committed_.find(step);
      if (right == committed_.end()) return fmt::format("step {} was never committed", step);
      std::string other;
      for (const Disk::Files& committed : right->second) {
        if (other = differs(committed, files); other.empty()) break;
      }
      if (!other.empty()) return other + " has other bytes";
    }
    const auto latest = files.find("latest");
    if (latest != files.end() && !files.contains(latest->second.substr(2) + "/manifest.json")) {
      return "latest leads to " + latest->second.substr(2);
    }
    return "";
  }

  // What is added to a step after its commit, for people, may be missing or half there.
  static std::string differs(const Disk::Files& committed, const Disk::Files& files) {
    for (const auto& [name, content] : committed) {
      const auto found = files.find(name);
      if (found == files.end() || found->second != content) return name;
    }
    return "";
  }

  // The next start, as far as it changes the directory.
  std::string clear_up() const {
    FileOps ops;
    StoreWriter next(ops, place_, "next.1.1", Retention{kBaseSteps});
    if (auto status = next.take_ownership(); !status) return status.error().text;
    const auto names = list_names(place_);
    for (const std::string& name : *names) {
      if (name.starts_with(".tmp-")) return name + " stays after a start";
    }
    return "";
  }

  void restore(const Disk::Files& files, std::size_t done) {
    scene_.reset();
    scene_.started();
    materialize(files, scene_.checkpoints());
    ++restored_;
    if (auto wrong = scene_.check(true); !wrong.empty()) complain(wrong, files, done);
  }

  void complain(const std::string& wrong, const Disk::Files& files, std::size_t done) {
    std::string there;
    for (const auto& [name, content] : files) there += fmt::format(" {}({})", name, content.size());
    cr_expect(wrong.empty(), "power lost after change %zu, %s: %s; there is:%s", done,
              done > 0 ? recording_.changes()[done - 1].text(scene_.checkpoints()).c_str() : "none",
              wrong.c_str(), there.c_str());
    cr_assert(++failures_ < kMostFailures, "too many failures");
  }

  Scene& scene_;
  Recording recording_;
  std::string place_;
  bool again_;
  std::map<std::uint64_t, std::vector<Disk::Files>> committed_;  ///< as each was committed
  std::set<std::pair<Disk::Files, std::uint64_t>> seen_;
  std::size_t built_ = 0;
  int restored_ = 0;
  int failures_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void lose_power_during(const Plan& plan) {
  if (const auto why = Tracer::cannot_run(); !why.empty()) cr_skip_test("%s", why.c_str());
  Scene scene(AGENT, plan);
  Losses(scene, plan).run();
}

}  // namespace

Test(power_loss, in_a_save_and_the_retention_after_it, .timeout = 3000) {
  lose_power_during({.saves = 2});
}

Test(power_loss, in_a_step_that_is_saved_again, .timeout = 3000) {
  lose_power_during({.again = true, .keep_every = 2, .named = true});
}

Test(power_loss, in_a_save_that_training_does_not_wait_for, .timeout = 3000) {
  lose_power_during({.async = true, .saves = 3});
}
