// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "paramserver/client/learner.h"
#include "paramserver/server/server_memory.h"
#include "paramserver/server/shard_thread.h"
#include "tests/unit/paramserver/ps_support.h"

namespace bellows::ps_test {

using namespace bellows::ps;

/// Ends the program, which a test reports as a crash: this is also for a program without Criterion.
inline void require(bool holds, const char* otherwise) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", otherwise);
  std::abort();
}

inline std::uint32_t mark(std::uint32_t learner, std::uint32_t sequence, std::uint64_t element) {
  const std::uint64_t x = mark_bits(learner, sequence, element);
  return static_cast<std::uint32_t>(x >> 32 ^ x);
}

/// A rule of whole numbers: sums of any order are equal, and none is lost in rounding. The state is
/// the same sum.
inline std::optional<Nonsense> add_marks(const ShardUpdate& update) {
  const std::pair<const float*, float*> arrays[] = {{update.weights, update.new_weights},
                                                    {update.state[0], update.new_state[0]}};
  for (const auto& [old, made] : arrays) {
    auto* fresh = reinterpret_cast<std::uint32_t*>(made);
    std::memcpy(fresh, old, update.elements * sizeof *fresh);
    for (const void* gradient : update.gradients)
      for (std::uint64_t i = 0; i < update.elements; ++i)
        fresh[i] += static_cast<const std::uint32_t*>(gradient)[i];
  }
  return std::nullopt;
}

/// A server in threads of this process, and slots for learners anywhere.
class World {
 public:
  World(std::uint32_t learners, const std::vector<std::uint64_t>& counts,
        Mode mode = Mode::asynchronous)
      : mode_(mode) {
    Geometry geometry;
    geometry.learners = learners;
    geometry.states = 1;
    auto cut = Cut::make(static_cast<std::uint32_t>(counts.size()));
    require(cut.ok(), "no cut");
    cut_ = std::move(*cut);
    auto made = ServerMemory::make(geometry, counts);
    require(made.ok(), made ? "" : made.error().text.c_str());
    memory_.emplace(std::move(*made));
  }

  /// A slot for a learner, whose first sequence is the one after base.
  void join(std::uint32_t learner, std::uint32_t incarnation, std::uint32_t base) {
    auto slot = SlotMemory::make(geometry(), base);
    require(slot.ok(), "no slot");
    auto kept = std::make_shared<const SlotMemory>(std::move(*slot));
    auto bell = std::make_shared<const Fd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Member member;
    member.who = {learner, incarnation, base};
    member.slot = kept->view();
    joined_.push_back({member, std::move(kept), std::move(bell)});
    members_.set(joined_);
  }

  /// It has ended: only what it has published by now counts.
  void end(std::uint32_t learner) {
    Member& member = find(learner).member;
    member.last = member.slot.header().published.load();
    members_.set(joined_);
  }
  /// Until all shards have what counts.
  bool wait_for_end(std::uint32_t learner) {
    const std::uint32_t last = *find(learner).member.last;
    return eventually([&] {
      for (std::uint32_t s = 0; s < geometry().shards; ++s)
        if (steps(s).applied(find(learner).member) != last) return false;
      return true;
    });
  }
  void leave(std::uint32_t learner) {
    std::erase_if(joined_, [learner](const Joined& j) { return j.member.who.learner == learner; });
    members_.set(joined_);
  }
  /// As a new server finds the memory.
  void restart() {
    stop();
    MemoryFiles files;
    files.control.reset(dup(memory_->files().control.get()));
    files.weights.reset(dup(memory_->files().weights.get()));
    files.states.reset(dup(memory_->files().states.get()));
    auto adopted = ServerMemory::adopt(std::move(files));
    require(adopted.ok(), adopted ? "" : adopted.error().text.c_str());
    memory_.emplace(std::move(*adopted));
  }

  /// The learner's side of the slot that was made last for it.
  void attach(std::uint32_t learner, Learner* out) const {
    for (std::size_t i = joined_.size(); i-- > 0;) {
      const Joined& joined = joined_[i];
      if (joined.member.who.learner != learner) continue;
      const Grant grant = {geometry(), joined.member.who};
      plain::Handle bell(dup(joined.bell->get()));
      require(out->attach(grant, memory_->files().control.get(), memory_->files().weights.get(),
                          joined.slot->file().get(), bell),
              "the learner cannot map the memory");
      return;
    }
    require(false, "there is no such learner");
  }

  void start() {
    for (std::uint32_t s = 0; s < geometry().shards; ++s) {
      ShardLoop::Fence fence = [this](const Member& member, const std::string&) {
        const std::lock_guard lock(mutex_);
        fenced_.push_back(member.who.learner);
      };
      threads_.push_back(std::make_unique<ShardThread>(
          control(), s, ShardLoop(steps(s), mode_, std::move(fence), ShardCut(*cut_, s)), members_,
          &cut_->bell()));
      require(threads_.back()->start().ok(), "no thread");
    }
  }
  void stop() { threads_.clear(); }

  ShardSteps steps(std::uint32_t shard) const {
    return {control(), memory_->weights(), memory_->states(), shard, add_marks};
  }
  std::vector<Member> plain_members() const {
    std::vector<Member> all;
    for (const Joined& joined : joined_) all.push_back(joined.member);
    return all;
  }
  /// As the learner may write to it.
  SlotHeader& slot_of(std::uint32_t learner) { return writable(learner).header(); }
  Word& pin_of(std::uint32_t learner, std::uint32_t shard) { return writable(learner).pin(shard); }
  std::vector<std::uint32_t> fenced() {
    const std::lock_guard lock(mutex_);
    std::sort(fenced_.begin(), fenced_.end());
    fenced_.erase(std::unique(fenced_.begin(), fenced_.end()), fenced_.end());
    return fenced_;
  }
  const ArrayView& weights() const { return memory_->weights(); }
  const ArrayView& states() const { return memory_->states(); }
  Cut& cut() { return *cut_; }
  const Geometry& geometry() const { return memory_->control().geometry(); }
  const ControlView& control() const { return memory_->control(); }
  struct Pushed {
    std::uint32_t learner, base, count;
  };
  /// That these gradients are in the weights, once each, and no other.
  void expect_sums(const std::vector<Pushed>& pushed) const {
    std::uint64_t begin = 0;
    for (std::uint32_t s = 0; s < geometry().shards; ++s) {
      const auto sums = this->sums(s);
      for (std::uint64_t i = 0; i < sums.size(); ++i) {
        std::uint32_t expected = 0;
        for (const Pushed& of : pushed)
          for (std::uint32_t q = 1; q <= of.count; ++q)
            expected += mark(of.learner, of.base + q, begin + i);
        require(sums[i] == expected, "a gradient is missing, or there twice");
      }
      begin += sums.size();
    }
  }

  /// The current weights of a shard, as whole numbers.
  std::vector<std::uint32_t> sums(std::uint32_t shard) const {
    const Current current = control().current(shard);
    const float* data = memory_->weights().buffer(shard, current.buffer);
    std::vector<std::uint32_t> all(control().shard(shard).count);
    std::memcpy(all.data(), data, all.size() * sizeof all[0]);
    return all;
  }

  Joined& find(std::uint32_t learner) {
    const auto found = std::find_if(joined_.begin(), joined_.end(), [learner](const Joined& j) {
      return j.member.who.learner == learner;
    });
    require(found != joined_.end(), "there is no such learner");
    return *found;
  }
  SlotView writable(std::uint32_t learner) {
    auto mapping = std::make_unique<plain::Mapping>();
    require(mapping->map(find(learner).slot->file().get(), SlotView::bytes(geometry()),
                         PROT_READ | PROT_WRITE),
            "the slot cannot be mapped");
    hostile_.push_back(std::move(mapping));
    return {hostile_.back()->data(), geometry()};
  }

 private:
  Mode mode_;
  std::vector<std::unique_ptr<plain::Mapping>> hostile_;
  std::optional<ServerMemory> memory_;
  std::unique_ptr<Cut> cut_;
  std::vector<Joined> joined_;
  Members members_;
  std::vector<std::unique_ptr<ShardThread>> threads_;
  std::mutex mutex_;
  std::vector<std::uint32_t> fenced_;
};

inline void push_mark(Learner& learner, std::uint32_t number) {
  auto* gradient = reinterpret_cast<std::uint32_t*>(learner.gradient(20000));
  require(gradient, "no room for a gradient");
  for (std::uint64_t i = 0; i < learner.geometry().elements; ++i)
    gradient[i] = mark(number, learner.sequence() + 1, i);
  learner.push(1);
}

}  // namespace bellows::ps_test
