// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/memory_tier.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "modelstore/loader/model_place.h"

namespace bellows {
namespace {

/// A model whose bytes are wrong is read at most that often.
constexpr std::chrono::seconds kBroken{1};

Error wrong_digest(const ModelFrom& from, const ModelDigest& digest) {
  if (from.digest)
    return Error{ErrorKind::corrupt,
                 fmt::format("{} has the digest {}, and must have {}", shown_place(from.path),
                             digest.to_string(), from.digest->to_string())};
  return Error{ErrorKind::corrupt,
               fmt::format("{} was changed since it was first loaded: put a new "
                           "version in another file and add that",
                           shown_place(from.path))};
}

}  // namespace

MemoryTier::MemoryTier(EventLoop& loop, const TierLimits& limits, const LoadOptions& options,
                       ModelRegistry& registry, DiskLink* disk, PeerBook* peers, Say say)
    : registry_(registry),
      disk_(disk),
      files_too_(options.files_too),
      say_(std::move(say)),
      book_(limits),
      loads_(loop, *this, options, disk, peers) {}

Result<std::unique_ptr<MemoryTier>> MemoryTier::make(EventLoop& loop, const TierLimits& limits,
                                                     const LoadOptions& options,
                                                     ModelRegistry& registry, DiskLink* disk,
                                                     PeerBook* peers, Say say) {
  std::unique_ptr<MemoryTier> tier(
      new MemoryTier(loop, limits, options, registry, disk, peers, std::move(say)));
  auto freed = FreedMemory::make(loop, [object = tier.get()](std::uint64_t eviction) {
    object->perform(object->book_.freed(eviction, now()));
  });
  if (!freed) return freed.error();
  tier->freed_ = std::move(*freed);
  return tier;
}

void MemoryTier::add_model(ModelId model) {
  if (const auto* registered = registry_.get(model)) book_.add_model(model, registered->tenant);
}

void MemoryTier::adopt(ModelId model, ModelMemory memory) {
  const auto* registered = registry_.get(model);
  if (const auto sealed = memory.check_sealed(); !sealed || !registered) {
    say_(sealed ? "a model in memory is registered no more" : sealed.error().text);
    return tell(model);
  }
  const std::uint64_t bytes = memory.bytes;
  take_memory(model, std::move(memory));
  loads_.check(model, registered->tenant, *memory_.at(model));
  perform(book_.adopt(model, room_for(bytes), now()));
}

void MemoryTier::take_memory(ModelId model, ModelMemory memory) {
  const auto* registered = registry_.get(model);
  // Another tenant's would tell that the other has these bytes: by its inode and times.
  const auto twin = std::find_if(memory_.begin(), memory_.end(), [&](const auto& entry) {
    const auto* other = registry_.get(entry.first);
    return registered && other && other->tenant == registered->tenant &&
           entry.second->digest == memory.digest;
  });
  if (twin == memory_.end()) {
    memory_[model] = std::make_shared<ModelMemory>(std::move(memory));
  } else {
    freed_->discard(std::move(memory.reader));
    memory_[model] = std::shared_ptr<ModelMemory>(twin->second);
  }
}

void MemoryTier::tell(ModelId model) {
  if (watcher_) watcher_->model_changed(model);
}

const ModelMemory* MemoryTier::memory(ModelId model) const {
  const auto found = memory_.find(model);
  return found == memory_.end() ? nullptr : found->second.get();
}

void MemoryTier::retire(ModelId model) {
  broken_.erase(model);
  perform(book_.retire(model, now()));
}

void MemoryTier::pin(ModelId model, bool pinned) {
  book_.pin(model, pinned);
  tell(model);
  if (pinned) prefetch(model);
}

Status MemoryTier::evict(ModelId model) {
  auto decisions = book_.evict(model);
  if (book_.state(model) != ModelBook::State::absent)
    return Error{ErrorKind::busy, "the model is in use, pinned or on its way"};
  perform(std::move(decisions));
  return {};
}

const Error* MemoryTier::broken(ModelId model) {
  const auto found = broken_.find(model);
  if (found == broken_.end()) return nullptr;
  if (now() < found->second.second) return &found->second.first;
  broken_.erase(found);
  return nullptr;
}

void MemoryTier::open(TicketId ticket, ModelId model, TicketHost& host) {
  if (const Error* error = broken(model)) return host.refused(ticket, Error(*error));
  wanted_[ticket] = {model, &host};
  ++counts_.opens;
  if (book_.state(model) == ModelBook::State::resident) ++counts_.hits;
  perform(book_.open(ticket, model, now()));
}

void MemoryTier::prefetch(ModelId model) {
  if (!broken(model)) perform(book_.prefetch(model, now()));
}

void MemoryTier::close(TicketId ticket) {
  wanted_.erase(ticket);
  perform(book_.close(ticket, now()));
}

std::optional<LoadProgress> MemoryTier::progress(TicketId ticket) const {
  const auto wanted = wanted_.find(ticket);
  if (wanted == wanted_.end() || memory(wanted->second.first)) return std::nullopt;
  const auto load = loads_.progress(wanted->second.first);
  return load ? load : LoadProgress{};
}

MemoryTier::Time MemoryTier::tick(Time now) {
  const Time next = loads_.tick(now);
  store_next();
  perform(book_.expire(now));
  const auto expiry = book_.next_expiry();
  return expiry ? std::min(next, *expiry) : next;
}

void MemoryTier::load_sized(ModelId model, std::uint64_t bytes) {
  perform(book_.sized(model, room_for(bytes), now()));
}

void MemoryTier::load_done(ModelId model, ModelMemory memory, const LoadedFrom& from) {
  const auto* registered = registry_.get(model);
  // Who asks for a digest must get no other bytes, and one version of a name has one digest.
  if (registered && registered->digest && *registered->digest != memory.digest) {
    freed_->discard(std::move(memory.reader));
    return load_failed(model, wrong_digest(registered->from, memory.digest));
  }
  ++(from.disk ? counts_.disk_loads : from.peer.empty() ? counts_.loads : counts_.peer_loads);
  // An image that was found by its digest names no files: they are those of before.
  const bool keeps_files = registered && from.disk && memory.files.empty();
  registry_.note_loaded(model, memory.digest, keeps_files ? registered->files : memory.files,
                        from.source);
  if (registered)
    say_(fmt::format("loaded {}: {} bytes, digest {}{}{}", shown_place(registered->from.path),
                     memory.bytes, memory.digest.to_string(),
                     from.disk           ? ", from its image on the disk"
                     : from.peer.empty() ? ""
                                         : ", from node ",
                     from.peer));
  take_memory(model, std::move(memory));
  // Before it is lent: a restarted daemon has to find it.
  tell(model);
  perform(book_.loaded(model, now()));
  if (!from.disk) want_image(model, from);
}

void MemoryTier::want_image(ModelId model, const LoadedFrom& from) {
  const auto* registered = registry_.get(model);
  if (disk_ && registered && (files_too_ || is_remote_place(registered->from.path)))
    to_store_.emplace_back(model, from);
}

void MemoryTier::store_next() {
  while (disk_ && disk_->may_store() && !to_store_.empty()) {
    const auto [model, from] = std::move(to_store_.front());
    to_store_.pop_front();
    const auto* registered = registry_.get(model);
    const ModelMemory* memory = this->memory(model);
    // It has been evicted since.
    if (!registered || !memory) continue;
    disk_->store({memory, registry_.tenant_name(registered->tenant), from.source, from.took});
  }
}

void MemoryTier::load_failed(ModelId model, const Error& error) {
  say_(error.text);
  if (error.kind == ErrorKind::corrupt)
    broken_.insert_or_assign(model, std::pair(error, now() + kBroken));
  ++(error.kind == ErrorKind::busy ? counts_.no_room : counts_.failed);
  perform(book_.failed(model, error, now()));
}

Status MemoryTier::verify(ModelId model, Verified done) {
  const auto* registered = registry_.get(model);
  const auto found = memory_.find(model);
  if (!registered || found == memory_.end() || book_.state(model) != ModelBook::State::resident)
    return Error{ErrorKind::busy, "the model is not in memory"};
  auto& waiting = verifying_[model];
  waiting.push_back(std::move(done));
  if (waiting.size() == 1) loads_.check(model, registered->tenant, *found->second);
  return {};
}

void MemoryTier::tell_verified(ModelId model, const Status& status) {
  const auto found = verifying_.find(model);
  if (found == verifying_.end()) return;
  const auto waiting = std::move(found->second);
  verifying_.erase(found);
  for (const Verified& done : waiting) done(status);
}

void MemoryTier::check_done(ModelId model, const Result<ModelDigest>& digest) {
  const auto found = memory_.find(model);
  if (found == memory_.end()) return;
  const std::string right = found->second->digest.to_string();
  const bool is_right = digest && *digest == found->second->digest;
  if (is_right) {
    // The daemon before may have ended while it was stored.
    want_image(model, {});
    say_(fmt::format("model {} in memory has its digest still", right));
    return tell_verified(model, {});
  }
  const Error wrong =
      digest ? Error{ErrorKind::corrupt,
                     fmt::format("model {} in memory no longer has its digest: nobody gets it any "
                                 "more",
                                 right)}
             : Error{ErrorKind::unavailable, fmt::format("model {} in memory could not be checked: "
                                                         "{}",
                                                         right, digest.error().text)};
  say_(wrong.text);
  tell_verified(model, wrong);
  if (digest) replace(model);
}

void MemoryTier::replace(ModelId model) {
  const bool pinned = book_.entry(model).pinned;
  std::optional<ModelId> successor;
  if (const auto* registered = registry_.get(model)) {
    auto anew = *registered;
    anew.digest = anew.from.digest;
    anew.files.clear();
    anew.source.reset();
    successor = registry_.add(std::move(anew)).model;
    add_model(*successor);
  }
  retire(model);
  if (successor && pinned) pin(*successor, true);
}

void MemoryTier::discard(Fd memory) { freed_->discard(std::move(memory)); }

void MemoryTier::perform(BookDecisions decisions) {
  to_do_.insert(to_do_.end(), std::make_move_iterator(decisions.begin()),
                std::make_move_iterator(decisions.end()));
  if (performing_) return;
  performing_ = true;
  while (!to_do_.empty()) {
    const BookDecision decision = std::move(to_do_.front());
    to_do_.pop_front();
    perform_one(decision);
  }
  performing_ = false;
}

void MemoryTier::perform_one(const BookDecision& decision) {
  if (const auto* load = std::get_if<decide::Load>(&decision)) return start_load(load->model);
  if (const auto* fill = std::get_if<decide::Fill>(&decision)) return loads_.fill(fill->model);
  if (const auto* abandon = std::get_if<decide::Abandon>(&decision)) {
    ++counts_.no_room;
    return loads_.stop(abandon->model);
  }
  if (const auto* evict = std::get_if<decide::Evict>(&decision))
    return give_up_memory(evict->model, evict->eviction);
  if (const auto* granted = std::get_if<decide::Grant>(&decision)) return grant(granted->ticket);
  const auto& refused = std::get<decide::Refuse>(decision);
  const auto wanted = wanted_.extract(refused.ticket);
  if (!wanted.empty()) wanted.mapped().second->refused(refused.ticket, refused.error);
}

void MemoryTier::start_load(ModelId model) {
  const auto* registered = registry_.get(model);
  if (registered)
    return loads_.start(model, *registered, registry_.tenant_name(registered->tenant));
  perform(book_.failed(model, Error{ErrorKind::not_found, "there is no such model"}, now()));
}

void MemoryTier::give_up_memory(ModelId model, EvictionId eviction) {
  ++counts_.evictions;
  // A check of it would hold it.
  loads_.stop(model);
  tell_verified(model, Error{ErrorKind::busy, "the model was evicted before it was verified"});
  auto memory = std::move(memory_[model]);
  memory_.erase(model);
  tell(model);
  // Another model has it still, and counts it.
  if (!memory || memory.use_count() > 1) return perform(book_.freed(eviction, now()));
  freed_->give_up(std::move(*memory), eviction);
}

void MemoryTier::grant(TicketId ticket) {
  const auto wanted = wanted_.find(ticket);
  // It was closed between the decision and now.
  if (wanted == wanted_.end()) return;
  const auto [model, host] = wanted->second;
  const auto memory = memory_.find(model);
  if (memory != memory_.end()) host->granted(ticket, *memory->second);
}

}  // namespace bellows
