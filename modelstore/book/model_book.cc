// SPDX-License-Identifier: Apache-2.0
#include "modelstore/book/model_book.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

namespace bellows {

ModelBook::ModelBook(const TierLimits& limits) : limits_(limits), ledger_(limits.bytes) {}

void ModelBook::add_tenant(TenantId tenant, std::uint64_t budget) {
  ledger_.set_budget(tenant, budget);
}

void ModelBook::add_model(ModelId model, TenantId tenant) {
  ledger_.add_tenant(tenant);
  models_.try_emplace(model).first->second.tenant = tenant;
}

ModelBook::BookModel* ModelBook::find(ModelId model) {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : &found->second;
}

BookEntry ModelBook::entry(ModelId model) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return {};
  const BookModel& of = found->second;
  return {of.bytes, of.waiting.size(), of.pinned, of.trouble};
}

std::vector<ModelId> ModelBook::models() const {
  std::vector<ModelId> ids;
  for (const auto& [id, model] : models_) ids.push_back(id);
  return ids;
}

ModelBook::State ModelBook::state(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? State::absent : found->second.state;
}

ModelUse ModelBook::use(ModelId model) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return {};
  return {found->second.last_used, found->second.uses, found->second.load_time};
}

void ModelBook::remember(ModelId id, const ModelUse& use) {
  BookModel* model = find(id);
  if (!model || model->state != State::resident) return;
  model->last_used = use.last_used;
  model->uses = use.uses;
  model->load_time = use.load_time;
}

std::uint64_t ModelBook::references(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? 0 : found->second.holding;
}

void ModelBook::forget_retired(ModelId id) {
  const auto found = models_.find(id);
  if (found != models_.end() && found->second.retired && found->second.state == State::absent)
    models_.erase(found);
}

bool ModelBook::is_idle(const BookModel& model) const {
  return model.state == State::resident && model.holding == 0 && !model.pinned;
}

void ModelBook::evict(ModelId id, BookModel& model, BookDecisions& out) {
  out.push_back(decide::Evict{id, ledger_.evict(model.tenant, model.bytes)});
  model.state = State::absent;
  model.bytes = 0;
}

void ModelBook::want(ModelId id, BookModel& model, Time now, BookDecisions& out) {
  if (model.state != State::absent) return;
  model.state = State::sizing;
  model.began = now;
  model.trouble.reset();
  out.push_back(decide::Load{id});
}

void ModelBook::refuse_all(BookModel& model, const Error& error, BookDecisions& out) {
  model.trouble = error;
  for (TicketId ticket : model.waiting) {
    tickets_.erase(ticket);
    out.push_back(decide::Refuse{ticket, error});
  }
  model.waiting.clear();
}

BookDecisions ModelBook::adopt(ModelId id, std::uint64_t bytes, Time now) {
  BookDecisions out;
  BookModel* model = find(id);
  if (!model || model->state != State::absent) return out;
  model->bytes = bytes;
  model->last_used = now;
  const bool has_room = ledger_.fits(model->tenant, bytes);
  ledger_.reserve(model->tenant, bytes);
  model->state = State::resident;
  if (!has_room || model->retired) evict(id, *model, out);
  forget_retired(id);
  return out;
}

BookDecisions ModelBook::retire(ModelId id, Time now) {
  BookDecisions out;
  BookModel* model = find(id);
  if (!model || model->retired) return out;
  model->retired = true;
  model->pinned = false;
  if (is_idle(*model)) evict(id, *model, out);
  forget_retired(id);
  settle(now, out);
  return out;
}

BookDecisions ModelBook::evict(ModelId id) {
  BookDecisions out;
  if (BookModel* model = find(id); model && is_idle(*model)) evict(id, *model, out);
  return out;
}

void ModelBook::pin(ModelId id, bool pinned) {
  if (BookModel* model = find(id); model && !model->retired) model->pinned = pinned;
}

BookDecisions ModelBook::open(TicketId ticket, ModelId id, Time now) {
  BookDecisions out;
  BookModel* model = find(id);
  if (tickets_.count(ticket) != 0) return out;
  if (!model || model->retired) {
    out.push_back(decide::Refuse{ticket, Error{ErrorKind::not_found, "there is no such model"}});
    return out;
  }
  tickets_[ticket] = id;
  if (model->state == State::resident) {
    ++model->holding;
    ++model->uses;
    model->last_used = now;
    out.push_back(decide::Grant{ticket});
    return out;
  }
  model->waiting.insert(ticket);
  want(id, *model, now, out);
  return out;
}

BookDecisions ModelBook::prefetch(ModelId id, Time now) {
  BookDecisions out;
  BookModel* model = find(id);
  if (model && !model->retired) want(id, *model, now, out);
  return out;
}

BookDecisions ModelBook::close(TicketId ticket, Time now) {
  BookDecisions out;
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return out;
  const ModelId id = found->second;
  BookModel& model = models_.at(id);
  tickets_.erase(found);
  // A load goes on for the next who asks.
  if (model.waiting.erase(ticket) != 0) return out;
  --model.holding;
  model.last_used = now;
  if (model.retired && is_idle(model)) evict(id, model, out);
  forget_retired(id);
  settle(now, out);
  return out;
}

BookDecisions ModelBook::sized(ModelId id, std::uint64_t bytes, Time now) {
  BookDecisions out;
  BookModel* model = find(id);
  if (!model || model->state != State::sizing) return out;
  model->bytes = bytes;
  model->state = State::waiting;
  queue_.push_back(id);
  settle(now, out);
  return out;
}

BookDecisions ModelBook::loaded(ModelId id, Time now) {
  BookDecisions out;
  BookModel* model = find(id);
  if (!model || model->state != State::filling) return out;
  model->state = State::resident;
  model->load_time = now - model->began;
  model->last_used = now;
  model->holding = model->waiting.size();
  model->uses += model->waiting.size();
  for (TicketId ticket : model->waiting) out.push_back(decide::Grant{ticket});
  model->waiting.clear();
  if (model->retired && is_idle(*model)) evict(id, *model, out);
  forget_retired(id);
  settle(now, out);
  return out;
}

BookDecisions ModelBook::failed(ModelId id, const Error& error, Time now) {
  BookDecisions out;
  BookModel* model = find(id);
  if (!model) return out;
  switch (model->state) {
    case State::filling:
      ledger_.release(model->tenant, model->bytes);
      break;
    case State::sizing:
    case State::waiting:
      queue_.erase(std::remove(queue_.begin(), queue_.end(), id), queue_.end());
      break;
    case State::absent:
    case State::resident:
      return out;
  }
  model->state = State::absent;
  model->bytes = 0;
  refuse_all(*model, error, out);
  forget_retired(id);
  settle(now, out);
  return out;
}

BookDecisions ModelBook::freed(EvictionId eviction, Time now) {
  BookDecisions out;
  if (ledger_.free(eviction)) settle(now, out);
  return out;
}

BookDecisions ModelBook::expire(Time now) {
  BookDecisions out;
  if (limits_.time_to_live.count() == 0) return out;
  for (auto& [id, model] : models_)
    if (is_idle(model) && now - model.last_used >= limits_.time_to_live) evict(id, model, out);
  return out;
}

std::optional<ModelBook::Time> ModelBook::next_expiry() const {
  std::optional<Time> next;
  if (limits_.time_to_live.count() == 0) return next;
  for (const auto& [id, model] : models_) {
    const Time expiry = model.last_used + limits_.time_to_live;
    if (is_idle(model) && (!next || expiry < *next)) next = expiry;
  }
  return next;
}

bool ModelBook::goes_first(ModelId a, ModelId b, Time now) const {
  const BookModel &x = models_.at(a), &y = models_.at(b);
  const auto by_age = std::tie(x.last_used, a) < std::tie(y.last_used, b);
  const auto value = [now](const BookModel& m) {
    const std::chrono::duration<double> age = now - m.last_used, load = m.load_time;
    return load.count() / (age.count() + 1);
  };
  switch (limits_.policy) {
    case EvictionPolicy::lru:
      return by_age;
    case EvictionPolicy::lfu:
      return x.uses != y.uses ? x.uses < y.uses : by_age;
    case EvictionPolicy::largest:
      return x.bytes != y.bytes ? x.bytes > y.bytes : by_age;
    case EvictionPolicy::cost:
      return value(x) != value(y) ? value(x) < value(y) : by_age;
  }
  return by_age;
}

std::optional<std::vector<ModelId>> ModelBook::victims(const BookModel& model, const Claims& before,
                                                       Time now) const {
  const auto claimed = before.of.find(model.tenant);
  const std::uint64_t own_before = claimed == before.of.end() ? 0 : claimed->second;
  std::int64_t missing = room().missing(before.all + model.bytes);
  std::int64_t own_missing = room_of(model.tenant).missing(own_before + model.bytes);
  std::vector<ModelId> idle, chosen;
  for (const auto& [id, other] : models_)
    if (is_idle(other)) idle.push_back(id);
  std::sort(idle.begin(), idle.end(), [&](ModelId a, ModelId b) { return goes_first(a, b, now); });
  const auto take = [&](bool own_only) {
    for (ModelId& id : idle) {
      if ((own_only ? own_missing : missing) <= 0) break;
      const BookModel& other = models_.at(id);
      const bool own = other.tenant == model.tenant;
      if (other.state != State::resident || (own_only && !own)) continue;
      if (std::find(chosen.begin(), chosen.end(), id) != chosen.end()) continue;
      chosen.push_back(id);
      missing -= static_cast<std::int64_t>(other.bytes);
      if (own) own_missing -= static_cast<std::int64_t>(other.bytes);
    }
  };
  take(true);
  take(false);
  if (missing > 0 || own_missing > 0) return std::nullopt;
  return chosen;
}

Error ModelBook::no_room(const BookModel& model) const {
  const BookRoom tenant = room_of(model.tenant);
  std::uint64_t own_idle = 0;
  for (const auto& [id, other] : models_)
    if (is_idle(other) && other.tenant == model.tenant) own_idle += other.bytes;
  if (model.bytes > tenant.budget)
    return Error{ErrorKind::busy,
                 fmt::format("the model has {} bytes, and its tenant's budget here is {}",
                             model.bytes, tenant.budget)};
  if (model.bytes > room().budget)
    return Error{ErrorKind::busy, fmt::format("the model has {} bytes, and this node has room "
                                              "for {} bytes of models",
                                              model.bytes, room().budget)};
  if (tenant.used - tenant.evicting - own_idle + model.bytes > tenant.budget)
    return Error{ErrorKind::busy,
                 fmt::format("there is no room for the model's {} bytes: others of its tenant that "
                             "are in use or pinned leave too little of its budget of {} bytes",
                             model.bytes, tenant.budget)};
  return Error{ErrorKind::busy,
               fmt::format("there is no room for the model's {} bytes now: what is in use or "
                           "pinned on this node leaves too little; try again later",
                           model.bytes)};
}

void ModelBook::settle(Time now, BookDecisions& out) {
  Claims claims;
  std::vector<ModelId> still;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const ModelId id = queue_[i];
    BookModel& model = models_.at(id);
    const bool could_fit = ledger_.could_fit(model.tenant, model.bytes);
    const auto chosen = could_fit ? victims(model, claims, now) : std::nullopt;
    if (!chosen) {
      const Error error = no_room(model);
      model.state = State::absent;
      model.bytes = 0;
      out.push_back(decide::Abandon{id});
      refuse_all(model, error, out);
      forget_retired(id);
      continue;
    }
    for (ModelId victim : *chosen) evict(victim, models_.at(victim), out);
    if (ledger_.fits(model.tenant, model.bytes)) {
      ledger_.reserve(model.tenant, model.bytes);
      model.state = State::filling;
      out.push_back(decide::Fill{id});
      continue;
    }
    claims.all += model.bytes;
    claims.of[model.tenant] += model.bytes;
    still.push_back(id);
  }
  queue_ = std::move(still);
}

}  // namespace bellows
