// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

#include "modelstore/book/model_book.h"
#include "tests/unit/modelstore/book_support.h"
#include "tests/unit/modelstore/slow_book.h"

namespace bellows::model_test {

/// Gives a book and the slow one the same events, some of which cannot be, and holds what it
/// decides against the other and against the promises of its README.
class BookWorld {
 public:
  static constexpr ModelId kModels = 12;
  static constexpr TicketId kTickets = 8;
  static constexpr std::uint64_t kRoom = 100;

  BookWorld(EvictionPolicy policy, std::int64_t time_to_live)
      : book_({kRoom, policy, std::chrono::milliseconds(time_to_live)}),
        slow_(kRoom, policy, time_to_live, {{1, 100}, {2, 60}, {3, 40}}) {
    for (TenantId tenant : {1, 2, 3}) book_.add_tenant(tenant, budget(tenant));
    for (ModelId id = 1; id <= kModels; ++id) add_model(id);
  }

  /// One event; false when a promise is broken, and `trouble` says which.
  bool step(unsigned kind, unsigned a, unsigned b) {
    now_ += b % 7;
    // An event may be about a model that is gone, or never was.
    const ModelId id = b % 64 == 0 ? a % (next_ + 2) : slow_.rows[a % slow_.rows.size()].id;
    const TicketId ticket = 1 + b % kTickets;
    switch (kind % 16) {
      case 0:
      case 1:
      case 2:
        tickets_[ticket].insert(id);
        return same(book_.open(ticket, id, at(now_)), slow_.open(ticket, id, now_), "open");
      case 3:
        return same(book_.prefetch(id, at(now_)), slow_.prefetch(id, now_), "prefetch");
      case 4:
      case 5:
      case 6:
        return close(ticket);
      case 7:
      case 8: {
        const std::uint64_t bytes = b % 32 == 31 ? UINT64_MAX - a : b % 48;
        return same(book_.sized(id, bytes, at(now_)), slow_.sized(id, bytes, now_), "sized");
      }
      case 9:
      case 10:
        return same(book_.loaded(id, at(now_)), slow_.loaded(id, now_), "loaded");
      case 11:
        return same(book_.failed(id, Error{ErrorKind::io, "a fault"}, at(now_)),
                    slow_.failed(id, now_), "failed");
      case 12:
      case 13: {
        const auto& gone = slow_.gone;
        const EvictionId eviction = gone.empty() || b % 8 == 0 ? a : gone[a % gone.size()].eviction;
        return same(book_.freed(eviction, at(now_)), slow_.freed(eviction, now_), "freed");
      }
      case 14:
        if (b % 4 == 0) return same(book_.evict(id), slow_.evict(id), "evict");
        return same(book_.expire(at(now_)), slow_.expire(now_), "expire");
      default:
        return rare(b, id);
    }
  }

  const std::string& trouble() const { return trouble_; }
  /// How often each thing was decided.
  const std::map<std::string, std::uint64_t>& decided() const { return decided_; }

 private:
  static std::uint64_t budget(TenantId tenant) { return tenant == 1 ? 100 : tenant == 2 ? 60 : 40; }

  void add_model(ModelId id) {
    const TenantId tenant = 1 + static_cast<TenantId>(id % 3);
    book_.add_model(id, tenant);
    slow_.add_model(id, tenant);
    current_[(id - 1) % kModels] = id;
    next_ = std::max(next_, id + 1);
  }

  bool rare(unsigned b, ModelId id) {
    if (b % 4 != 0) {
      book_.pin(id, b % 32 == 1);
      slow_.pin(id, b % 32 == 1);
      return true;
    }
    if (!same(book_.retire(id, at(now_)), slow_.retire(id, now_), "retire")) return false;
    // A new version takes the place of the old one; the slow book keeps few rows.
    const ModelId slot = (id - 1) % kModels;
    if (id == current_[slot]) {
      while ((next_ - 1) % kModels != slot) ++next_;
      add_model(next_);
    }
    std::erase_if(slow_.rows, [](const SlowBook::Row& r) {
      return r.retired && r.state == "absent" && r.waiting.empty() && r.holding.empty();
    });
    return true;
  }

  bool close(TicketId ticket) {
    for (auto& [id, holders] : holders_) holders.erase(ticket);
    std::erase_if(holders_, [](const auto& entry) { return entry.second.empty(); });
    tickets_.erase(ticket);
    return same(book_.close(ticket, at(now_)), slow_.close(ticket, now_), "close");
  }

  bool broken(const std::string& what) {
    trouble_ = what;
    return false;
  }

  bool same(const BookDecisions& decisions, const std::string& expected, const std::string& event) {
    const std::string said = text_of(decisions);
    if (said != expected)
      return broken("after " + event + ": \"" + said + "\", and the slow book \"" + expected +
                    "\"");
    for (const BookDecision& decision : decisions) {
      const std::string text = text_of(decision);
      ++decided_[text.substr(0, text.find(' '))];
      if (!keeps_promises(decision)) return broken("after " + event + ": " + text);
    }
    for (TenantId tenant : {1, 2, 3})
      if (book_.room_of(tenant).used > budget(tenant) ||
          book_.room_of(tenant).used != slow_.used(tenant))
        return broken("after " + event + ": a tenant's budget");
    if (book_.room().used > kRoom || book_.room().used != slow_.used())
      return broken("after " + event + ": the tier's room");
    std::erase_if(loading_, [&](ModelId id) {
      const auto state = book_.state(id);
      return state != ModelBook::State::sizing && state != ModelBook::State::waiting &&
             state != ModelBook::State::filling;
    });
    return true;
  }

  bool keeps_promises(const BookDecision& decision) {
    if (const auto* load = std::get_if<decide::Load>(&decision))
      return loading_.insert(load->model).second;
    if (const auto* abandon = std::get_if<decide::Abandon>(&decision))
      return loading_.erase(abandon->model) == 1;
    if (const auto* evict = std::get_if<decide::Evict>(&decision))
      return holders_.count(evict->model) == 0 && book_.references(evict->model) == 0;
    if (const auto* grant = std::get_if<decide::Grant>(&decision)) return is_granted(grant->ticket);
    if (const auto* refuse = std::get_if<decide::Refuse>(&decision))
      return !refuse->error.text.empty();
    return true;
  }

  /// It is of a model that is resident, and was asked for.
  bool is_granted(TicketId ticket) {
    for (ModelId id : tickets_[ticket]) {
      for (const SlowBook::Row& r : slow_.rows)
        if (r.id == id && std::count(r.holding.begin(), r.holding.end(), ticket) == 1) {
          holders_[id].insert(ticket);
          return book_.state(id) == ModelBook::State::resident;
        }
    }
    return false;
  }

  ModelBook book_;
  SlowBook slow_;
  std::int64_t now_ = 0;
  ModelId next_ = 1;
  ModelId current_[kModels] = {};
  std::map<TicketId, std::set<ModelId>> tickets_;
  std::map<ModelId, std::set<TicketId>> holders_;
  std::set<ModelId> loading_;
  std::map<std::string, std::uint64_t> decided_;
  std::string trouble_;
};

}  // namespace bellows::model_test
