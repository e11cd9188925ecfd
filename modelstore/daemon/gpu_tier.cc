// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/gpu_tier.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "modelstore/loader/model_place.h"

namespace bellows {
namespace {

/// Less than who ends a job waits for the answer.
constexpr std::chrono::milliseconds kEnd{600};
constexpr std::chrono::milliseconds kLook{20};
/// There is one tenant in a book: the job's.
constexpr TenantId kTenant = 0;

}  // namespace

GpuTier::GpuTier(EventLoop& loop, const TierLimits& limits, const GpuCopyOptions& options,
                 std::chrono::milliseconds room, MemoryTier& memory, const ModelRegistry& registry,
                 Say say)
    : limits_(limits),
      room_(room),
      memory_(memory),
      registry_(registry),
      say_(std::move(say)),
      copies_(loop, *this, options) {}

Result<std::unique_ptr<GpuTier>> GpuTier::make(EventLoop& loop, const TierLimits& limits,
                                               const GpuCopyOptions& options,
                                               std::chrono::milliseconds room, MemoryTier& memory,
                                               const ModelRegistry& registry, Say say) {
  std::unique_ptr<GpuTier> tier(
      new GpuTier(loop, limits, options, room, memory, registry, std::move(say)));
  auto closes = GpuCloses::make(loop, options.program, [object = tier.get()](std::uint64_t number) {
    object->closed(number);
  });
  if (!closes) return closes.error();
  tier->closes_ = std::move(*closes);
  return tier;
}

GpuTier::Shelf& GpuTier::shelf(const GpuPlace& place, ModelId model) {
  Shelf& of = shelves_.try_emplace(place, limits_).first->second;
  of.book.add_model(model, kTenant);
  return of;
}

void GpuTier::open(TicketId ticket, const GpuPlace& place, ModelId model) {
  wanted_[ticket] = {place, model};
  perform(place, shelf(place, model).book.open(ticket, model, now()));
}

void GpuTier::prefetch(const GpuPlace& place, ModelId model) {
  perform(place, shelf(place, model).book.prefetch(model, now()));
}

void GpuTier::close(TicketId ticket) {
  const auto found = wanted_.find(ticket);
  if (found == wanted_.end()) return;
  const GpuPlace place = found->second.first;
  wanted_.erase(found);
  if (const auto of = shelves_.find(place); of != shelves_.end())
    perform(place, of->second.book.close(ticket, now()));
}

std::optional<LoadProgress> GpuTier::progress(TicketId ticket) const {
  const auto wanted = wanted_.find(ticket);
  if (wanted == wanted_.end()) return std::nullopt;
  const TicketId source = source_of(wanted->second.first, wanted->second.second);
  if (source == 0) return std::nullopt;
  if (const auto copied = copies_.progress(source)) return copied;
  const auto read = memory_.progress(source);
  return read ? read : LoadProgress{};
}

void GpuTier::adopt(const GpuPlace& place, ModelId model, GpuCopy copy) {
  Shelf& of = shelf(place, model);
  const std::uint64_t bytes = copy.bytes;
  of.copies[model] = std::move(copy);
  perform(place, of.book.adopt(model, bytes, now()));
}

void GpuTier::tell_of_copies() {
  for (const auto& [place, of] : shelves_)
    for (const auto& [model, copy] : of.copies)
      if (watcher_) watcher_->copy_changed(place, model, &copy);
}

BookRoom GpuTier::room(const GpuPlace& place) const {
  const auto of = shelves_.find(place);
  return of == shelves_.end() ? BookRoom{limits_.bytes, 0, 0} : of->second.book.room();
}

std::vector<GpuModel> GpuTier::models_on(const GpuPlace& place) const {
  std::vector<GpuModel> models;
  const auto of = shelves_.find(place);
  if (of == shelves_.end()) return models;
  const ModelBook& book = of->second.book;
  for (const ModelId id : book.models()) {
    GpuModel model{id, book.state(id), book.entry(id), 0, book.references(id)};
    if (model.state == ModelBook::State::absent && !model.entry.trouble) continue;
    // To look for one among all that are on their way takes long where there are many.
    if (model.state == ModelBook::State::filling)
      if (const auto copied = copies_.progress(source_of(place, id))) model.copied = copied->done;
    models.push_back(std::move(model));
  }
  return models;
}

std::map<GpuPlace, std::uint64_t> GpuTier::left_behind() const {
  std::map<GpuPlace, std::uint64_t> bytes;
  for (const auto& [number, closing] : closing_)
    if (closing.eviction == 0) bytes[closing.place] += closing.bytes;
  return bytes;
}

void GpuTier::count(const GpuPlace& place, std::uint64_t GpuCounts::*what) {
  const auto tenant = host_ ? host_->tenant_of(place.job) : std::nullopt;
  if (tenant) ++(counts_[*tenant].*what);
}

void GpuTier::perform(const GpuPlace& place, BookDecisions decisions) {
  for (BookDecision& decision : decisions) to_do_.emplace_back(place, std::move(decision));
  if (performing_) return;
  performing_ = true;
  while (!to_do_.empty()) {
    const auto [of, decision] = std::move(to_do_.front());
    to_do_.pop_front();
    // Its job may have ended meanwhile.
    if (shelves_.count(of) != 0) perform_one(of, decision);
  }
  performing_ = false;
}

void GpuTier::perform_one(const GpuPlace& place, const BookDecision& decision) {
  if (const auto* load = std::get_if<decide::Load>(&decision)) return begin(place, load->model);
  if (const auto* fill = std::get_if<decide::Fill>(&decision)) return copy(place, fill->model);
  if (const auto* abandon = std::get_if<decide::Abandon>(&decision)) {
    count(place, &GpuCounts::no_room);
    return forget(source_of(place, abandon->model));
  }
  if (const auto* evict = std::get_if<decide::Evict>(&decision)) {
    auto taken = shelves_.at(place).copies.extract(evict->model);
    if (!taken.empty()) give_up(place, evict->model, std::move(taken.mapped()), evict->eviction);
    return;
  }
  if (const auto* granted = std::get_if<decide::Grant>(&decision))
    return grant(place, granted->ticket);
  const auto& refused = std::get<decide::Refuse>(decision);
  if (wanted_.erase(refused.ticket) != 0 && host_) host_->refused(refused.ticket, refused.error);
}

/// First it has to be in memory, and stays there until it is copied.
void GpuTier::begin(const GpuPlace& place, ModelId model) {
  const TicketId source = next_source_++;
  making_[source] = {place, model, now(), Time::max(), 0};
  memory_.open(source, model, *this);
}

void GpuTier::granted(TicketId source, const ModelMemory& memory) {
  const auto found = making_.find(source);
  if (found == making_.end()) return memory_.close(source);
  const GpuPlace place = found->second.place;
  found->second.deadline = now() + room_;
  perform(place,
          shelves_.at(place).book.sized(found->second.model, room_on_gpu(memory.bytes), now()));
}

void GpuTier::refused(TicketId source, const Error& error) { fail(source, error); }

void GpuTier::copy(const GpuPlace& place, ModelId model) {
  const TicketId source = source_of(place, model);
  const ModelMemory* memory = memory_.memory(model);
  if (source == 0) return;
  if (!memory) return fail(source, Error{ErrorKind::internal, "the model is in memory no more"});
  making_.at(source).deadline = Time::max();
  copies_.start(source, place, *memory);
}

void GpuTier::copy_done(std::uint64_t source, GpuCopy copy) {
  const auto found = making_.find(source);
  if (found == making_.end()) return;
  const Making made = found->second;
  forget(source);
  if (const auto* registered = registry_.get(made.model))
    say_(fmt::format(
        "copied {} to {}: {} bytes in {} ms", shown_place(registered->from.path),
        made.place.to_string(), copy.bytes,
        std::chrono::duration_cast<std::chrono::milliseconds>(now() - made.began).count()));
  Shelf& of = shelves_.at(made.place);
  const GpuCopy& placed = of.copies[made.model] = std::move(copy);
  // Before it is lent: a restarted daemon has to find it.
  if (watcher_) watcher_->copy_changed(made.place, made.model, &placed);
  count(made.place, &GpuCounts::loads);
  perform(made.place, of.book.loaded(made.model, now()));
}

void GpuTier::copy_failed(std::uint64_t source, const Error& error) {
  say_(error.text);
  if (error.kind != ErrorKind::busy || !make_way(source)) fail(source, error);
}

bool GpuTier::make_way(TicketId source) {
  Making& made = making_.at(source);
  Shelf& of = shelves_.at(made.place);
  std::optional<ModelId> oldest;
  for (const auto& [model, copy] : of.copies)
    if (of.book.references(model) == 0 &&
        (!oldest || of.book.use(model).last_used < of.book.use(*oldest).last_used))
      oldest = model;
  if (!oldest) return false;
  made.after = next_close_;
  made.deadline = now() + room_;
  perform(made.place, of.book.evict(*oldest));
  return next_close_ > made.after;
}

void GpuTier::copy_again(std::uint64_t closed) {
  std::vector<std::pair<GpuPlace, ModelId>> ready;
  for (auto& [source, made] : making_)
    if (made.after == closed) {
      made.after = 0;
      ready.emplace_back(made.place, made.model);
    }
  for (const auto& [place, model] : ready) copy(place, model);
}

void GpuTier::fail(TicketId source, const Error& error) {
  const auto found = making_.find(source);
  if (found == making_.end()) return;
  const Making failed = found->second;
  forget(source);
  count(failed.place, error.kind == ErrorKind::busy ? &GpuCounts::no_room : &GpuCounts::failed);
  perform(failed.place, shelves_.at(failed.place).book.failed(failed.model, error, now()));
}

void GpuTier::forget(TicketId source) {
  if (making_.erase(source) == 0) return;
  copies_.stop(source);
  memory_.close(source);
}

TicketId GpuTier::source_of(const GpuPlace& place, ModelId model) const {
  const auto found = std::find_if(making_.begin(), making_.end(), [&](const auto& entry) {
    return entry.second.place == place && entry.second.model == model;
  });
  return found == making_.end() ? 0 : found->first;
}

void GpuTier::grant(const GpuPlace& place, TicketId ticket) {
  const auto wanted = wanted_.find(ticket);
  // It was closed between the decision and now.
  if (wanted == wanted_.end()) return;
  const auto& copies = shelves_.at(place).copies;
  const auto copy = copies.find(wanted->second.second);
  if (host_ && copy != copies.end()) host_->granted(ticket, copy->second);
}

void GpuTier::give_up(const GpuPlace& place, ModelId model, GpuCopy copy, EvictionId eviction) {
  if (watcher_) watcher_->copy_changed(place, model, nullptr);
  discard(place, std::move(copy.memory), copy.bytes, eviction);
}

void GpuTier::discard(const GpuPlace& place, Fd memory, std::uint64_t bytes, EvictionId eviction) {
  const std::uint64_t number = next_close_++;
  closing_[number] = {place, eviction, std::move(memory), bytes};
  watcher_ ? watcher_->when_dropped([this, number] { close_memory(number); })
           : close_memory(number);
}

void GpuTier::close_memory(std::uint64_t number) {
  closes_->close(std::move(closing_.at(number).memory), number);
}

void GpuTier::closed(std::uint64_t number) {
  const auto found = closing_.find(number);
  if (found == closing_.end()) return;
  const GpuPlace place = found->second.place;
  const EvictionId eviction = found->second.eviction;
  closing_.erase(found);
  if (const auto of = shelves_.find(place); of != shelves_.end() && eviction != 0)
    perform(place, of->second.book.freed(eviction, now()));
  copy_again(number);
  finish_endings(now());
}

void GpuTier::end(const std::string& job, Ended done) {
  std::vector<TicketId> sources;
  for (const auto& [source, made] : making_)
    if (made.place.job == job) sources.push_back(source);
  for (const TicketId source : sources) forget(source);
  std::erase_if(wanted_, [&](const auto& entry) { return entry.second.first.job == job; });
  for (auto of = shelves_.begin(); of != shelves_.end();) {
    if (of->first.job != job) {
      ++of;
      continue;
    }
    const auto shelf = shelves_.extract(of++);
    for (auto& [model, copy] : shelf.mapped().copies)
      give_up(shelf.key(), model, std::move(copy), 0);
  }
  // Their book is gone, and the next may give the same numbers.
  for (auto& [number, closing] : closing_)
    if (closing.place.job == job) closing.eviction = 0;
  if (done) endings_.push_back({job, std::move(done), now() + kEnd});
  finish_endings(now());
}

bool GpuTier::is_free(const std::string& job) const {
  return !copies_.is_at_work(job) &&
         std::none_of(closing_.begin(), closing_.end(),
                      [&](const auto& entry) { return entry.second.place.job == job; });
}

void GpuTier::finish_endings(Time now) {
  std::list<Ending> finished;
  for (auto ending = endings_.begin(); ending != endings_.end();) {
    const auto next = std::next(ending);
    if (is_free(ending->job) || ending->deadline <= now)
      finished.splice(finished.end(), endings_, ending);
    ending = next;
  }
  for (const Ending& ending : finished)
    ending.done(is_free(ending.job)
                    ? Status()
                    : Status(Error{ErrorKind::unavailable,
                                   fmt::format("memory of GPUs that job {} had is not free yet: "
                                               "the driver has not answered",
                                               ending.job)}));
}

GpuTier::Time GpuTier::tick(Time now) {
  Time next = copies_.tick(now);
  std::vector<TicketId> overdue;
  for (const auto& [source, made] : making_)
    if (made.deadline <= now) overdue.push_back(source);
  for (const TicketId source : overdue)
    fail(source,
         Error{ErrorKind::busy, "there is no room for the model on the GPU; try again later"});
  for (const auto& [source, made] : making_) next = std::min(next, made.deadline);
  // Of a model that was removed, or has a new version, nothing stays.
  std::vector<std::pair<GpuPlace, ModelId>> removed;
  for (const auto& [place, of] : shelves_)
    for (const auto& [model, copy] : of.copies)
      if (!registry_.get(model)) removed.emplace_back(place, model);
  for (const auto& [place, model] : removed)
    perform(place, shelves_.at(place).book.retire(model, now));
  for (auto& [place, of] : shelves_) {
    perform(place, of.book.expire(now));
    if (const auto expiry = of.book.next_expiry()) next = std::min(next, *expiry);
  }
  finish_endings(now);
  return endings_.empty() ? next : std::min(next, now + kLook);
}

}  // namespace bellows
