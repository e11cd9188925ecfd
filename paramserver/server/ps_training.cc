// SPDX-License-Identifier: Apache-2.0
// PsServer's side of the memory: what is trained, from where it begins, and who saves it.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "paramserver/server/apply_rule.h"
#include "paramserver/server/ps_server.h"
#include "paramserver/server/tensors.h"

namespace bellows::ps {
namespace {

/// What a learner's memfd has, which it may change while it is read.
Result<std::vector<TensorSpec>> read_tensors(const Fd& fd, std::uint64_t count) {
  std::vector<TensorSpec> tensors(count);
  auto read = read_at(fd.get(), reinterpret_cast<unsigned char*>(tensors.data()),
                      count * sizeof tensors[0], 0, "the sizes of tensors");
  if (!read) return read.error();
  return tensors;
}

/// invalid: a tensor is in a group that there is not, or has rows that it cannot have.
Status check_tensors(const std::vector<TensorSpec>& tensors, const RuleTerms& terms) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    if (tensor.group >= terms.groups)
      return Error{ErrorKind::invalid, fmt::format("a tensor is in group {}, and there are {}",
                                                   tensor.group, terms.groups)};
    if (tensor.width == 0) continue;
    if (tensor.count % tensor.width != 0)
      return Error{ErrorKind::invalid, fmt::format("tensor {} has {} elements, which are no rows "
                                                   "of {}",
                                                   i, tensor.count, tensor.width)};
    // Of rows that are in no gradient, torch decays none, and refuses for that reason.
    if (terms.group[tensor.group].weight_decay != 0)
      return Error{
          ErrorKind::invalid,
          fmt::format("tensor {} has gradients of some rows and a weight decay of {}, which "
                      "do not go together: put it into a group that has none",
                      i, terms.group[tensor.group].weight_decay)};
  }
  return {};
}

/// The first difference between a learner's tensors and those of the first learner; empty: none.
std::string difference_of(const std::vector<TensorSpec>& theirs,
                          const std::vector<TensorSpec>& firsts) {
  if (theirs.size() != firsts.size())
    return fmt::format("a learner has {} tensors, and the first has {}", theirs.size(),
                       firsts.size());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const TensorSpec &its = theirs[i], &first = firsts[i];
    if (its.count != first.count)
      return fmt::format("tensor {} of a learner has {} elements, and that of the first {}", i,
                         its.count, first.count);
    if (its.width != first.width)
      return fmt::format(
          "tensor {} of a learner has a width of {}, and that of the first one of {}", i, its.width,
          first.width);
    if (its.group != first.group)
      return fmt::format("tensor {} of a learner is in group {}, and that of the first in group {}",
                         i, its.group, first.group);
  }
  return "";
}

bool are_same(const TensorLayout& layout, const ControlView& control) {
  if (layout.shards.size() != control.geometry().shards) return false;
  for (std::uint32_t s = 0; s < control.geometry().shards; ++s)
    if (layout.shards[s] != control.shard(s).count) return false;
  return true;
}

Result<Fd> memory_with(const std::vector<TensorSpec>& counts) {
  Fd fd(memfd_create("bellows-ps-tensors", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_error("make", "memory for the sizes of tensors");
  auto written = write_all(
      fd.get(), {reinterpret_cast<const char*>(counts.data()), counts.size() * sizeof counts[0]},
      "the sizes of tensors");
  if (!written) return written.error();
  // The next server reads them.
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) < 0)
    return errno_error("seal", "memory for the sizes of tensors");
  return fd;
}

}  // namespace

Status PsServer::start_saver() {
  auto saver = Saver::start(*options_.save, say_);
  if (!saver) return saver.error();
  saver_ = std::move(*saver);
  auto watch = loop_.watch(saver_->bell().get(), EPOLLIN | EPOLLET,
                           [this](std::uint32_t) { over_ = saver_->end(); });
  if (!watch) return watch.error();
  saver_watch_ = std::move(*watch);
  return {};
}

/// What there is to save, of the memory as it is.
Saved PsServer::saved() const {
  Saved saved;
  saved.memory = &*memory_;
  saved.counts = counts_of(tensors_);
  saved.layout = layout_;
  saved.states = state_names(terms_);
  return saved;
}

Status PsServer::adopt(Inheritance left) {
  auto counts = read_tensors(left.tensors, left.tensor_count);
  if (!counts) return counts.error();
  auto memory = ServerMemory::adopt(std::move(left.files));
  if (!memory) return memory.error();
  const Geometry& geometry = memory->control().geometry();
  if (geometry.states != states_of(left.terms) ||
      geometry.gradient_bytes != gradient_bytes(left.terms) ||
      std::any_of(left.seats.begin(), left.seats.end(),
                  [&](const auto& seat) { return seat.who.learner >= geometry.learners; }))
    return Error{ErrorKind::corrupt, "the memory that was kept is not of the same learners"};
  memory_.emplace(std::move(*memory));
  if (auto sound = check_tensors(*counts, left.terms); !sound) return sound;
  auto layout = lay_out_tensors(counts_of(*counts), options_.threads);
  if (!layout) return layout.error();
  if (!are_same(*layout, memory_->control()) ||
      memory_->control().geometry().row_words != row_words_of(*counts))
    return Error{ErrorKind::corrupt, "the parameter server that ended had other shards"};
  layout_ = std::move(*layout);
  tensors_ = std::move(*counts);
  counts_ = std::move(left.tensors);
  terms_ = left.terms;
  if (auto begun = begin(); !begun) return begun;
  std::vector<Seat> seats;
  for (auto& kept : left.seats) {
    auto slot = SlotMemory::adopt(std::move(kept.slot), memory_->control().geometry());
    if (!slot) return slot.error();
    Seat seat;
    Member& member = seat.joined.member;
    member.who = kept.who;
    seat.joined.slot = std::make_shared<const SlotMemory>(std::move(*slot));
    member.slot = seat.joined.slot->view();
    seat.joined.bell = std::make_shared<const Fd>(std::move(kept.bell));
    seat.process = std::make_shared<const Fd>(std::move(kept.process));
    watch_process(member.who.learner, seat.process);
    seats.push_back(std::move(seat));
  }
  say_(fmt::format("goes on with {} learners", seats.size()));
  seats_->adopt(std::move(seats), options_.mode == Mode::synchronous);
  // Only now: shards that know of no members would take any versions for one cut.
  if (saver_) saver_->save(saved(), cut_.get());
  // The server that ended may have owed a wake.
  for (std::uint32_t s = 0; s < memory_->control().geometry().shards; ++s) shard_steps(s).wake();
  return {};
}

ShardSteps PsServer::shard_steps(std::uint32_t shard) const {
  return {memory_->control(), memory_->weights(), memory_->states(), shard,
          apply_rule(terms_, ranges_of(tensors_, layout_, shard))};
}

/// Starts a thread for each shard of the memory.
Status PsServer::begin() {
  const ControlView& control = memory_->control();
  auto cut = Cut::make(control.geometry().shards);
  if (!cut) return cut.error();
  cut_ = std::move(*cut);
  seats_.emplace(control, options_.first_sequence, [this](std::uint32_t s, std::uint64_t version) {
    shard_steps(s).skip_to(version);
  });
  std::vector<const ShardThread*> threads;
  for (std::uint32_t s = 0; s < control.geometry().shards; ++s) {
    ShardLoop::Fence fence = [this](const Member& member, const std::string& why) {
      to_fence_.add(member.who, why);
    };
    ShardLoop loop(shard_steps(s), options_.mode, std::move(fence), ShardCut(*cut_, s));
    threads_.push_back(std::make_unique<ShardThread>(control, s, std::move(loop), seats_->members(),
                                                     &cut_->bell()));
    if (auto started = threads_.back()->start(); !started) return started;
    threads.push_back(threads_.back().get());
  }
  seats_->watch(std::move(threads));
  return {};
}

Status PsServer::agree(const PsMessage& message, const Fd& counts) const {
  const auto theirs = read_tensors(counts, message.tensors);
  if (!theirs) return theirs.error();
  if (const std::string differs = difference_of(*theirs, tensors_); !differs.empty())
    return Error{ErrorKind::invalid, differs + ": all learners must have the same model"};
  if (message.terms == terms_) return {};
  return Error{ErrorKind::invalid,
               "a learner asks for another optimizer, or other terms of it, than the first did"};
}

/// New memory for the tensors that a learner names: what a rule's state is at first, and no
/// weights.
Status PsServer::make_memory(const PsMessage& join, const Fd& their_counts) {
  auto counts = read_tensors(their_counts, join.tensors);
  if (!counts) return counts.error();
  if (auto sound = check_tensors(*counts, join.terms); !sound) return sound;
  auto layout = lay_out_tensors(counts_of(*counts), options_.threads);
  if (!layout) return layout.error();
  Geometry geometry;
  geometry.learners = options_.learners;
  geometry.gradient_bytes = gradient_bytes(join.terms);
  geometry.states = states_of(join.terms);
  geometry.row_words = row_words_of(*counts);
  auto memory = ServerMemory::make(geometry, layout->shards);
  if (!memory) return memory.error();
  // What is zero need not be written, and takes no room until then.
  for (std::uint32_t s = 0; initial_state(join.terms) != 0 && s < layout->shards.size(); ++s)
    for (std::uint32_t i = 0; i < memory->control().geometry().states; ++i)
      std::fill_n(memory->states().buffer(s, kStateCopies * i), layout->shards[s],
                  initial_state(join.terms));
  auto kept_counts = memory_with(*counts);
  if (!kept_counts) return kept_counts.error();
  memory_.emplace(std::move(*memory));
  tensors_ = std::move(*counts);
  layout_ = std::move(*layout);
  counts_ = std::move(*kept_counts);
  terms_ = join.terms;
  return {};
}

/// False: there is no checkpoint.
Result<bool> PsServer::restore() {
  const auto step = saver_->restore(saved());
  if (!step) return step.error();
  if (*step)
    say_(fmt::format("goes on from the checkpoint of update {}",
                     memory_->control().current(0).version));
  return step->has_value();
}

/// From memory that has its first weights.
Status PsServer::begin_training() {
  auto begun = begin();
  if (begun) begun = keeper_.put_memory(memory_->files(), counts_, tensors_.size(), terms_);
  if (begun && saver_) saver_->save(saved(), cut_.get());
  if (begun) return begun;
  // The next one may be luckier.
  if (saver_) saver_->forget();
  threads_.clear();
  seats_.reset();
  memory_.reset();
  return begun;
}

}  // namespace bellows::ps
