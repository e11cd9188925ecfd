// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "launcher/steer/steering.h"
#include "tests/unit/slurm/fake_slurm.h"

namespace bellows {

/// What a launcher does with one demand. Times are seconds after it.
struct LauncherPart {
  struct Words {
    double after = 0;
    std::string text;
  };
  std::vector<Words> words;
  std::optional<double> dies_after{};
  int exit_code = kUnreachable;            ///< of the step, once the launcher is dead
  std::optional<std::string> complaint{};  ///< of the step or of srun
  double lingers = 0.1;                    ///< the step, after it was hung up
};

/// One that stops at a gate and commits a second after the demand.
inline LauncherPart commits(const std::string& committed = R"({"event":"committed","step":6})") {
  return {.words = {{0.1, R"({"event":"stopping","step":6})"}, {1, committed}}};
}

/// Slurm, a launcher and the time, for a command that steers job 7, which runs on four GPUs. Every
/// wait moves the time, so that nothing can hang.
class SteerWorld {
 public:
  SteerWorld() {
    Contract contract;
    contract.tenant = "vision";
    contract.gpus = GpusRange::between(1, 8);
    slurm.record.admin_comment = contract.to_string();
    slurm.record.uid = getuid();
    slurm.record.asked.work_dir = "/nonexistent";
    slurm.before_look = [this] { pass(0.01); };
  }
  SteerWorld(const SteerWorld&) = delete;
  SteerWorld& operator=(const SteerWorld&) = delete;

  FakeSlurm slurm;
  std::deque<LauncherPart> launchers{commits()};  ///< one for each demand; the last stays
  std::vector<std::string> demands;
  std::optional<Error> no_step;  ///< what an attempt to reach the launcher gets instead
  int open_lines = 0;
  std::vector<std::string> said;
  std::pair<int, std::string> standing;  ///< what the watch over the deadline would say
  double time_limit = 600;
  double interrupted_at = 1e9;

  /// Has something happen so many seconds after the beginning.
  void at(double seconds, std::function<void()> what) {
    events_.emplace_back(kBegin + seconds, std::move(what));
  }
  void pass(double seconds) {
    for (const double end = slurm.clock + seconds; slurm.clock < end - 1e-9;) {
      slurm.advance(std::min(0.05, end - slurm.clock));
      const auto due = std::partition(events_.begin(), events_.end(), [this](const auto& event) {
        return event.first > slurm.clock + 1e-9;
      });
      const std::vector<Event> now(due, events_.end());
      events_.erase(due, events_.end());
      for (const Event& event : now) event.second();
    }
  }
  double passed() const { return slurm.clock - kBegin; }

  RoadTime time() {
    return {[this] { return moment(slurm.clock); },
            [this](std::chrono::milliseconds time) {
              pass(std::chrono::duration<double>(time).count());
            }};
  }
  Steering steering();

  /// All that was asked of Slurm but how the job is, with the same in a row only once.
  std::string asked() const {
    std::string all;
    std::string last;
    for (const std::string& call : slurm.calls) {
      if (call == "job" || call == last) continue;
      all += (all.empty() ? "" : " ") + call;
      last = call;
    }
    return all;
  }
  bool has_said(const std::string& text) const {
    return std::find(said.begin(), said.end(), text) != said.end();
  }

  static Steering::Clock::time_point moment(double clock) {
    return Steering::Clock::time_point(std::chrono::duration_cast<Steering::Clock::duration>(
        std::chrono::duration<double>(clock)));
  }

 private:
  using Event = std::pair<double, std::function<void()>>;
  static constexpr double kBegin = 1000;

  std::vector<Event> events_;
};

/// The conversation with a launcher that does its part.
class FakeLauncherLine final : public LauncherLine {
 public:
  FakeLauncherLine(SteerWorld& world, LauncherPart part)
      : world_(world), part_(std::move(part)), begun_(world.slurm.clock) {
    ++world_.open_lines;
  }
  ~FakeLauncherLine() override { --world_.open_lines; }

  Heard listen() override {
    double next = part_.dies_after.value_or(1e9);
    if (told_ < part_.words.size()) next = std::min(next, part_.words[told_].after);
    world_.pass(std::clamp(next - age(), 0.01, 0.2));
    Heard heard;
    while (told_ < part_.words.size() && age() >= part_.words[told_].after - 1e-6)
      heard.lines.push_back(part_.words[told_++].text);
    heard.open = !dead();
    return heard;
  }
  void hang_up() override {
    if (!ends_) ends_ = age() + part_.lingers;
  }
  std::optional<int> exit_code() override {
    if (dead()) return part_.exit_code;
    return ends_ && age() >= *ends_ ? std::optional(kOk) : std::nullopt;
  }
  std::optional<std::string> complaint() override { return part_.complaint; }

 private:
  double age() const { return world_.slurm.clock - begun_; }
  bool dead() const { return part_.dies_after && age() >= *part_.dies_after - 1e-6; }

  SteerWorld& world_;
  LauncherPart part_;
  double begun_;
  std::size_t told_ = 0;
  std::optional<double> ends_;
};

inline Steering SteerWorld::steering() {
  auto call = [this](const SlurmJob&,
                     const std::string& demand) -> Result<std::unique_ptr<LauncherLine>> {
    demands.push_back(demand);
    if (no_step) return *no_step;
    auto line = std::make_unique<FakeLauncherLine>(*this, launchers.front());
    if (launchers.size() > 1) launchers.pop_front();
    return std::unique_ptr<LauncherLine>(std::move(line));
  };
  return {slurm,
          call,
          time(),
          [this](const std::string& text) { said.push_back(text); },
          [this] { return passed() >= interrupted_at; },
          moment(kBegin + time_limit),
          [this](int status, const std::string& text) {
            standing = {status, text};
          }};
}

/// How a command ended: its exit status and its sentence, which is empty when all went well.
struct SteerEnd {
  int status = kOk;
  std::string text;

  explicit SteerEnd(const std::optional<CommandFailure>& failure) {
    if (failure) status = failure->exit_status;
    if (failure) text = failure->text;
  }
  bool is(int other_status, const std::string& other_text) const {
    return status == other_status && text == other_text;
  }
  std::string shown() const { return fmt::format("{}: {}", status, text); }
};

/// Holds the end of a command against what it should be.
#define EXPECT_END(command, status, text)                                       \
  do {                                                                          \
    const SteerEnd end_of_it = (command);                                       \
    cr_expect(end_of_it.is((status), (text)), "%s", end_of_it.shown().c_str()); \
  } while (false)

}  // namespace bellows
