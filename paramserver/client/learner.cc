// SPDX-License-Identifier: Apache-2.0
#include "paramserver/client/learner.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace bellows::ps {
namespace {

/// Longer than a small update takes; shorter than to sleep and to be woken.
constexpr std::int64_t kSpin = 20'000;
/// Should a wake be lost with the server that owed it.
constexpr std::int64_t kLongestSleep = 100'000'000;

std::int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
}

void pause_processor() { __builtin_ia32_pause(); }

/// Until the word is another than `seen`, or so long. The memory is mapped for reading only, which
/// is enough.
void sleep_on(std::uint32_t* word, std::uint64_t seen, std::int64_t nanoseconds) {
  const std::int64_t wait = nanoseconds < kLongestSleep ? nanoseconds : kLongestSleep;
  const timespec time = {wait / 1'000'000'000, wait % 1'000'000'000};
  syscall(SYS_futex, word, FUTEX_WAIT, static_cast<std::uint32_t>(seen), &time, nullptr, 0);
}

}  // namespace

bool Learner::attach(const Grant& grant, int control, int weights, int slot, plain::Handle& bell) {
  const Geometry& geometry = grant.geometry;
  if (!geometry.is_valid() || grant.who.learner >= geometry.learners) {
    errno = EINVAL;
    return false;
  }
  if (!control_.map(control, ControlView::bytes(geometry), PROT_READ)) return false;
  const ControlView view(control_.data(), geometry);
  const std::uint64_t slot_bytes = SlotView::bytes(geometry);
  if (!weights_.map_lazily(weights, ArrayView::bytes(view, geometry.buffers()), PROT_READ) ||
      !slot_.map_lazily(slot, slot_bytes, PROT_READ | PROT_WRITE))
    return false;
  // A process that the learner forks would write into its gradients.
  (void)madvise(slot_.data(), slot_bytes, MADV_DONTFORK);
  if (slot_bytes >= kHugeFrom) (void)madvise(slot_.data(), slot_bytes, MADV_HUGEPAGE);
  control_view_ = view;
  weights_view_ = ArrayView(weights_.data(), control_view_, geometry.buffers());
  slot_view_ = SlotView(slot_.data(), geometry);
  bell_.reset(bell.release());
  sequence_ = grant.who.base;
  steps_ = LearnerSteps(control_view_, slot_view_, grant.who);
  who_ = grant.who;
  clock_ = grant.clock;
  lead_ = grant.lead;
  slot_view_.header().attached.store(1);
  return true;
}

unsigned char* Learner::gradient(int wait_ms) {
  // The one before the last must not be read any more.
  return wait_for(sequence_ - 1, wait_ms) ? slot_view_.payload(sequence_ + 1, 0) : nullptr;
}

void Learner::push(float scale) {
  ++sequence_;
  ++clock_;
  slot_view_.header().scale[sequence_ % 2] = scale;
  for (std::uint32_t s = 0; s < geometry().shards; ++s)
    slot_view_.pulled(sequence_, s).store(pulled(s).version, std::memory_order_relaxed);
  steps_.publish(sequence_);
  const std::uint64_t one = 1;
  // It may be full, of wakes that nobody has waited for; then the server is awake.
  if (steps_.must_wake()) (void)!write(bell_.get(), &one, sizeof one);
}

const float* Learner::pull(std::uint32_t shard) {
  for (;;) {
    const Current current = steps_.load(shard);
    steps_.pin(shard, current);
    if (steps_.is_current(shard, current)) return weights_view_.buffer(shard, current.buffer);
  }
}

Current Learner::pulled(std::uint32_t shard) const {
  return Current::of(slot_view_.pin(shard).load(std::memory_order_relaxed));
}

/// Where to wait for a learner that is too far behind; null: none is.
std::uint32_t* Learner::too_slow(Slowest* slowest) const {
  for (std::uint32_t s = 0; s < geometry().shards; ++s) {
    ShardWords& words = control_view_.shard(s);
    *slowest = Slowest::of(words.slowest.load(std::memory_order_seq_cst));
    if (slowest->learner != Slowest::kNobody && clock_ > slowest->clock + lead_)
      return words.slowest_word();
  }
  return nullptr;
}

// The slowest of all is ahead of nobody, so there is always one that does not wait here.
Learner::Others Learner::wait_for_others(int wait_ms) {
  Slowest slowest;
  if (lead_ == UINT32_MAX || !too_slow(&slowest)) return {};
  const std::int64_t end = wait_ms < 0 ? INT64_MAX : now() + wait_ms * std::int64_t{1'000'000};
  Half& waiting = slot_view_.header().waiting;
  bool come = false;
  for (std::int64_t left = end - now(); left > 0; left = end - now()) {
    waiting.store(1, std::memory_order_seq_cst);
    std::uint32_t* const word = too_slow(&slowest);
    if ((come = !word)) break;
    sleep_on(word, slowest.word(), left);
    if (is_fenced()) break;
  }
  waiting.store(0, std::memory_order_relaxed);
  return {come, slowest.learner};
}

bool Learner::is_fenced() const {
  return control_view_.fenced(who_.learner).load(std::memory_order_relaxed) == who_.incarnation;
}

void Learner::leave() { slot_view_.header().left.store(1); }

bool Learner::drain(int wait_ms) { return wait_for(sequence_, wait_ms); }

/// True: all shards have it. Otherwise where to wait.
bool Learner::is_applied(std::uint32_t sequence, std::uint32_t* shard, Current* seen) const {
  for (std::uint32_t s = 0; s < geometry().shards; ++s)
    for (;;) {
      const Current loaded = steps_.load(s);
      const auto is = steps_.see(s, loaded, sequence);
      if (is == LearnerSteps::Seen::applied) break;
      if (is == LearnerSteps::Seen::again) continue;
      *shard = s;
      *seen = loaded;
      return false;
    }
  return true;
}

bool Learner::wait_for(std::uint32_t sequence, int wait_ms) {
  std::uint32_t shard;
  Current seen;
  if (is_applied(sequence, &shard, &seen)) return true;
  const std::int64_t begin = now();
  const std::int64_t end = wait_ms < 0 ? INT64_MAX : begin + wait_ms * std::int64_t{1'000'000};
  for (;;) {
    const std::int64_t at = now();
    if (at - begin >= kSpin && !sleep_for(sequence, end - at)) return false;
    if (at - begin < kSpin) pause_processor();
    if (is_applied(sequence, &shard, &seen)) return true;
  }
}

/// False: there is no time left.
bool Learner::sleep_for(std::uint32_t sequence, std::int64_t nanoseconds) {
  if (nanoseconds <= 0) return false;
  Half& waiting = slot_view_.header().waiting;
  waiting.store(1, std::memory_order_seq_cst);
  std::uint32_t shard;
  Current seen;
  // Again: what was applied before the server could see that it waits, nobody wakes it for.
  if (!is_applied(sequence, &shard, &seen))
    sleep_on(control_view_.shard(shard).sleepers_word(), seen.word(), nanoseconds);
  waiting.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace bellows::ps
