// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/ps_checkpoint.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>
#include <utility>

namespace bellows::ps {
namespace {

/// The agent may not yet have seen the end of the server before this one.
constexpr int kTries = 100;
constexpr std::chrono::milliseconds kPause{50};

ErrorKind kind_of(int code) {
  switch (code) {
    case BELLOWS_ERR_INVALID:
    case BELLOWS_ERR_MISMATCH:
      return ErrorKind::invalid;
    case BELLOWS_ERR_IO:
    case BELLOWS_ERR_MEMORY:
      return ErrorKind::io;
    case BELLOWS_ERR_CORRUPT:
      return ErrorKind::corrupt;
    case BELLOWS_ERR_BUSY:
      return ErrorKind::busy;
    case BELLOWS_ERR_FENCED:
      return ErrorKind::denied;
    default:
      return ErrorKind::unavailable;
  }
}

}  // namespace

Status PsCheckpoint::status_of(int code) const {
  if (code >= 0) return {};
  return Error{kind_of(code), bellows_error(handle_.get())};
}

Result<PsCheckpoint> PsCheckpoint::join(const std::string& dir) {
  bellows_config config = BELLOWS_CONFIG_INIT;
  if (!dir.empty()) config.dir = dir.c_str();
  for (int i = 0;; ++i) {
    PsCheckpoint made;
    bellows_t* handle = nullptr;
    const int code = bellows_init(&config, &handle);
    made.handle_.reset(handle);
    if (code == BELLOWS_OK) return made;
    if (code != BELLOWS_ERR_BUSY || i == kTries) return made.status_of(code).error();
    std::this_thread::sleep_for(kPause);
  }
}

Status PsCheckpoint::name(const std::string& name, int dtype, std::uint64_t count, int layout,
                          void* data) {
  names_.insert(name);
  return status_of(
      bellows_register(handle_.get(), name.c_str(), dtype, 1, &count, layout, 0, count, data));
}

/// What it names goes away.
void PsCheckpoint::forget() {
  for (const std::string& name : names_) (void)bellows_unregister(handle_.get(), name.c_str());
  names_.clear();
}

Status PsCheckpoint::name_arrays(const Saved& saved, const std::vector<Current>& pins) {
  const ControlView& control = saved.memory->control();
  std::uint32_t s = 0;
  for (std::size_t i = 0; i < saved.counts.size(); ++i) {
    const std::uint64_t begin = saved.layout.begins[i];
    while (begin >= control.shard(s).begin + control.shard(s).count) ++s;
    const std::uint64_t at = begin - control.shard(s).begin;
    const std::uint32_t buffer = pins[s].buffer;
    const auto array = [&](const std::string& name, float* data) {
      return this->name(fmt::format("{}/{}", name, i), BELLOWS_F32, saved.counts[i],
                        BELLOWS_REPLICATED, data + at);
    };
    if (auto named = array("weights", saved.memory->weights().buffer(s, buffer)); !named)
      return named;
    const std::uint32_t copy = control.record(s, buffer).state.load();
    for (std::uint32_t k = 0; k < saved.states.size(); ++k) {
      float* const state = saved.memory->states().buffer(s, kStateCopies * k + copy);
      if (auto named = array(saved.states[k], state); !named) return named;
    }
  }
  if (auto named = name("updates", BELLOWS_U64, 1, BELLOWS_VALUE, &updates_); !named) return named;
  return name("gradients", BELLOWS_U64, totals_.size(), BELLOWS_VALUE, totals_.data());
}

Result<std::optional<std::uint64_t>> PsCheckpoint::restore(const Saved& saved) {
  const ControlView& control = saved.memory->control();
  totals_.assign(kMostLearners, 0);
  const std::vector<Current> fresh(control.geometry().shards);
  auto named = name_arrays(saved, fresh);
  std::uint64_t step = 0;
  const int code = named ? bellows_restore(handle_.get(), &step) : 0;
  if (named) named = status_of(code);
  if (!named || code == BELLOWS_NO_CHECKPOINT) forget();
  if (!named) return named.error();
  if (code == BELLOWS_NO_CHECKPOINT) return std::optional<std::uint64_t>();
  for (std::uint32_t s = 0; s < control.geometry().shards; ++s) {
    for (std::uint32_t l = 0; l < control.geometry().learners; ++l)
      control.record(s, 0, l).total.store(totals_[l]);
    control.shard(s).current.store(Current{updates_, 0}.word());
  }
  control.header().idle_steps = step - std::min(step, updates_);
  return std::optional<std::uint64_t>(step);
}

Status PsCheckpoint::save(const Saved& saved, const std::vector<Current>& pins, std::uint64_t step,
                          bool durable) {
  const ControlView& control = saved.memory->control();
  // A place that this server does not have keeps what it has given.
  totals_.resize(kMostLearners);
  for (std::uint32_t l = 0; l < control.geometry().learners; ++l)
    totals_[l] = control.record(0, pins[0].buffer, l).total.load();
  updates_ = 0;
  for (const Current& pin : pins) updates_ = std::max(updates_, pin.version);
  if (auto named = name_arrays(saved, pins); !named) return named;
  return status_of(durable ? bellows_save(handle_.get(), step)
                           : bellows_save_async(handle_.get(), step));
}

bool PsCheckpoint::has_saved(std::uint64_t step) {
  std::uint64_t saved = 0;
  (void)bellows_wait(handle_.get());
  return bellows_saved_step(handle_.get(), &saved) == BELLOWS_OK && saved == step;
}

Result<std::optional<std::uint64_t>> PsCheckpoint::stop_ahead() {
  std::uint64_t step = 0;
  const int answer = bellows_stop_ahead(handle_.get(), &step);
  if (auto done = status_of(answer); !done) return done.error();
  return answer == 1 ? std::optional(step) : std::nullopt;
}

Result<bool> PsCheckpoint::should_stop(std::uint64_t step) {
  const int answer = bellows_should_stop(handle_.get(), step);
  if (auto done = status_of(answer); !done) return done.error();
  return answer == 1;
}

Status PsCheckpoint::leave(bool finished) {
  const Status waited = status_of(bellows_wait(handle_.get()));
  bellows_finalize(handle_.release(), finished ? 1 : 0);
  return waited;
}

}  // namespace bellows::ps
