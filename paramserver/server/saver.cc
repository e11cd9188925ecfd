// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/saver.h"

#include <fmt/core.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace bellows::ps {
namespace {

using Clock = std::chrono::steady_clock;

/// How often the agent is told of the progress, and asked whether to stop.
constexpr std::chrono::milliseconds kLook{20};
/// Longer than any two updates take.
constexpr std::chrono::seconds kCut{60};
constexpr std::chrono::milliseconds kJoinAgain{5000};
/// So long a stop waits for the update of its step.
constexpr std::chrono::milliseconds kQuiet{500};

/// The thread that may take what Slurm sends to all of a step: libbellows holds it back while the
/// launcher decides.
void take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGUSR1}) sigaddset(&set, number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace

bool is_in_job() {
  const char* const socket = std::getenv("BELLOWS_SOCKET");
  return socket && *socket;
}

Saver::Saver(const SaverOptions& options, PsCheckpoint checkpoint, Say say)
    : options_(options),
      say_(std::move(say)),
      checkpoint_(std::move(checkpoint)),
      saved_at_(Clock::now()),
      quiet_since_(Clock::now()) {}

Result<std::unique_ptr<Saver>> Saver::start(const SaverOptions& options, Say say) {
  auto checkpoint = PsCheckpoint::join(options.dir);
  if (!checkpoint) return checkpoint.error();
  std::unique_ptr<Saver> saver(new Saver(options, std::move(*checkpoint), std::move(say)));
  saver->bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!saver->bell_) return errno_error("make", "an eventfd");
  try {
    saver->thread_ = std::thread([made = saver.get()] { made->run(); });
  } catch (const std::system_error& error) {
    return Error{ErrorKind::unavailable, std::string("cannot start a thread: ") + error.what()};
  }
  return saver;
}

Saver::~Saver() {
  {
    const std::lock_guard lock(wish_mutex_);
    ends_ = true;
    news_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Result<std::optional<std::uint64_t>> Saver::restore(const Saved& saved) {
  const std::lock_guard lock(mutex_);
  auto step = checkpoint_.restore(saved);
  if (step && *step) saved_step_ = **step;
  return step;
}

void Saver::forget() {
  const std::lock_guard lock(mutex_);
  checkpoint_.forget();
}

void Saver::save(Saved saved, Cut* cut) {
  const std::lock_guard lock(mutex_);
  saved_ = std::move(saved);
  cut_ = cut;
  saved_at_ = Clock::now();
}

void Saver::finish(End end) {
  const std::lock_guard lock(wish_mutex_);
  wanted_ = end;
  news_.notify_all();
}

std::optional<Saver::End> Saver::end() const {
  const std::lock_guard lock(wish_mutex_);
  return end_;
}

std::optional<Saver::End> Saver::wanted() const {
  const std::lock_guard lock(wish_mutex_);
  return wanted_;
}

void Saver::run() {
  if (is_in_job()) take_signals();
  std::unique_lock wish(wish_mutex_);
  while (!ends_ && !end_) {
    wish.unlock();
    const auto pause = look();
    wish.lock();
    if (!ends_ && !end_ && !wanted_) news_.wait_for(wish, pause);
  }
}

/// How many the training has had.
std::uint64_t Saver::updates() const {
  std::uint64_t updates = 0;
  if (!saved_) return updates;
  const ControlView& control = saved_->memory->control();
  for (std::uint32_t s = 0; s < control.geometry().shards; ++s)
    updates = std::max(updates, control.current(s).version);
  return updates;
}

std::uint64_t Saver::idle_steps() const {
  return saved_ ? saved_->memory->control().header().idle_steps.load() : 0;
}

/// The step to ask about. A stop is at one that is yet to come, and learners that push nothing, as
/// when they have ended before the server, must not keep the job from it.
std::uint64_t Saver::next_step(std::optional<std::uint64_t> ahead) {
  const std::uint64_t updates = this->updates();
  const std::uint64_t step = updates + idle_steps();
  if (updates != std::exchange(quiet_at_, updates)) quiet_since_ = Clock::now();
  if (!ahead || *ahead <= step || Clock::now() - quiet_since_ < kQuiet) return step;
  if (saved_) saved_->memory->control().header().idle_steps += *ahead - step;
  return *ahead;
}

bool Saver::is_due(std::uint64_t step) const {
  return saved_ && step > saved_step_ && options_.every.count() > 0 &&
         Clock::now() - saved_at_ >= options_.every;
}

/// When to look again.
std::chrono::milliseconds Saver::look() {
  const std::lock_guard lock(mutex_);
  look_at_agent();
  return joined_ ? kLook : kJoinAgain;
}

void Saver::look_at_agent() {
  auto wanted = this->wanted();
  if (!joined_) {
    // Nothing can be saved.
    if (wanted) return end_with(End::failed);
    auto again = PsCheckpoint::join(options_.dir);
    if (!again) return;
    checkpoint_ = std::move(*again);
    joined_ = true;
    say_("has an agent again, and saves");
  }
  const auto ahead = checkpoint_.stop_ahead();
  if (!ahead) return agent_is_gone(ahead.error());
  const std::uint64_t step = next_step(*ahead);
  const auto stop = checkpoint_.should_stop(step);
  if (!stop) return agent_is_gone(stop.error());
  if (*stop && !wanted) wanted = End::stopped;
  if (wanted) {
    const Status saved = saved_ ? save_cut(true) : Status();
    say_save(saved);
    const auto left = checkpoint_.leave(saved && *wanted == End::finished);
    if (!left) say_save(left);
    return end_with(saved ? *wanted : End::failed);
  }
  if (!is_due(step)) return;
  const Status saved = save_cut(false);
  saved_at_ = Clock::now();
  if (saved || saved.error().kind != ErrorKind::unavailable) return say_save(saved);
  agent_is_gone(saved.error());
}

/// Saves one version of all shards. After the last one they apply nothing any more.
Status Saver::save_cut(bool last) {
  cut_->begin(last ? Cut::Then::holds : Cut::Then::goes_on);
  const auto pins = cut_->wait(Clock::now() + kCut);
  Status saved;
  std::uint64_t step = saved_step_;
  if (!pins) {
    saved = Error{ErrorKind::busy,
                  fmt::format("the shards have not come to one version in {} s", kCut.count())};
  } else {
    for (const Current& pin : *pins) step = std::max(step, pin.version + idle_steps());
    const bool is_saved = last ? checkpoint_.has_saved(step) : step <= saved_step_;
    if (!is_saved) saved = checkpoint_.save(*saved_, *pins, step, last);
  }
  if (!last) cut_->end();
  if (saved) saved_step_ = step;
  return saved;
}

void Saver::say_save(const Status& saved) {
  if (!saved) say_("cannot save the training: " + saved.error().text);
  if (saved && save_failed_)
    say_(fmt::format("has saved the training again, at update {}", saved_step_ - idle_steps()));
  save_failed_ = !saved;
}

void Saver::end_with(End end) {
  if (end == End::finished)
    say_(fmt::format("has finished at update {}", saved_step_ - idle_steps()));
  if (end == End::stopped)
    say_(fmt::format("stops at update {}, to go on from there", saved_step_ - idle_steps()));
  {
    const std::lock_guard lock(wish_mutex_);
    end_ = end;
  }
  eventfd_write(bell_.get(), 1);
}

// A job's launcher starts all again. By itself a server keeps the only copy of the training.
void Saver::agent_is_gone(const Error& error) {
  say_("has no agent to save the training: " + error.text);
  if (is_in_job() || error.kind == ErrorKind::denied) return end_with(End::failed);
  joined_ = false;
  // What it was given last may be lost with it.
  saved_step_ = 0;
}

}  // namespace bellows::ps
