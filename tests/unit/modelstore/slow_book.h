// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "modelstore/book/model_book.h"

namespace bellows::model_test {

/// What modelstore/book/README.md says, written as plainly as can be: it remembers nothing that it
/// can add up. It says what is to be done as text, and knows no reasons.
class SlowBook {
 public:
  struct Row {
    ModelId id = 0;
    TenantId tenant = 0;
    std::string state = "absent";
    std::uint64_t bytes = 0;
    std::vector<TicketId> waiting, holding;
    bool pinned = false, retired = false;
    std::uint64_t uses = 0;
    std::int64_t began = 0, last_used = 0, load_time = 0;  ///< ms
  };
  /// Memory that is evicted and not yet free.
  struct Gone {
    EvictionId eviction;
    TenantId tenant;
    std::uint64_t bytes;
  };
  struct Budget {
    TenantId tenant;
    std::uint64_t bytes;
  };

  SlowBook(std::uint64_t room, EvictionPolicy policy, std::int64_t time_to_live,
           std::vector<Budget> budgets)
      : room_(room), policy_(policy), time_to_live_(time_to_live), budgets_(std::move(budgets)) {}

  void add_model(ModelId id, TenantId tenant) {
    rows.emplace_back().id = id;
    rows.back().tenant = tenant;
  }

  std::string open(TicketId ticket, ModelId id, std::int64_t now) {
    said_.clear();
    for (Row& r : rows)
      if (has(r.waiting, ticket) || has(r.holding, ticket)) return said_;
    Row* r = row(id);
    if (!r || r->retired) {
      say("refuse", ticket);
    } else if (r->state == "resident") {
      grant(*r, ticket, now);
    } else {
      r->waiting.push_back(ticket);
      want(*r, now);
    }
    return said_;
  }

  std::string prefetch(ModelId id, std::int64_t now) {
    said_.clear();
    Row* r = row(id);
    if (r && !r->retired && r->state != "resident") want(*r, now);
    return said_;
  }

  std::string close(TicketId ticket, std::int64_t now) {
    said_.clear();
    for (Row& r : rows) {
      remove(r.waiting, ticket);
      if (!has(r.holding, ticket)) continue;
      remove(r.holding, ticket);
      r.last_used = now;
      if (r.retired) evict_if_idle(r);
    }
    return settled(now);
  }

  std::string sized(ModelId id, std::uint64_t bytes, std::int64_t now) {
    said_.clear();
    Row* r = row(id);
    if (!r || r->state != "sizing") return said_;
    r->state = "waiting";
    r->bytes = bytes;
    queue_.push_back(id);
    return settled(now);
  }

  std::string loaded(ModelId id, std::int64_t now) {
    said_.clear();
    Row* r = row(id);
    if (!r || r->state != "filling") return said_;
    r->state = "resident";
    r->load_time = now - r->began;
    r->last_used = now;
    std::sort(r->waiting.begin(), r->waiting.end());
    for (TicketId ticket : std::exchange(r->waiting, {})) grant(*r, ticket, now);
    if (r->retired) evict_if_idle(*r);
    return settled(now);
  }

  std::string failed(ModelId id, std::int64_t now) {
    said_.clear();
    Row* r = row(id);
    if (!r || (r->state != "sizing" && r->state != "waiting" && r->state != "filling"))
      return said_;
    remove(queue_, id);
    end(*r);
    return settled(now);
  }

  std::string freed(EvictionId eviction, std::int64_t now) {
    said_.clear();
    if (std::erase_if(gone, [=](const Gone& g) { return g.eviction == eviction; }) == 0)
      return said_;
    return settled(now);
  }

  std::string retire(ModelId id, std::int64_t now) {
    said_.clear();
    Row* r = row(id);
    if (!r || r->retired) return said_;
    r->retired = true;
    r->pinned = false;
    evict_if_idle(*r);
    return settled(now);
  }

  std::string evict(ModelId id) {
    said_.clear();
    if (Row* r = row(id)) evict_if_idle(*r);
    return said_;
  }

  void pin(ModelId id, bool pinned) {
    if (Row* r = row(id); r && !r->retired) r->pinned = pinned;
  }

  std::string expire(std::int64_t now) {
    said_.clear();
    for (Row& r : rows)
      if (time_to_live_ > 0 && now - r.last_used >= time_to_live_) evict_if_idle(r);
    return said_;
  }

  /// What is reserved, resident or not yet freed; of one tenant, or all.
  std::uint64_t used(TenantId tenant = 0) const { return sum(tenant, true); }

  std::vector<Row> rows;  ///< in the order of their ids
  std::vector<Gone> gone;

 private:
  template <typename T>
  static bool has(const std::vector<T>& all, T one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  template <typename T>
  static void remove(std::vector<T>& all, T one) {
    all.erase(std::remove(all.begin(), all.end(), one), all.end());
  }
  Row* row(ModelId id) {
    for (Row& r : rows)
      if (r.id == id) return &r;
    return nullptr;
  }
  void say(const char* what, std::uint64_t of) {
    said_ += (said_.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(of);
  }
  std::uint64_t budget(TenantId tenant) const {
    for (const Budget& b : budgets_)
      if (b.tenant == tenant) return b.bytes;
    return 0;
  }
  static bool is_idle(const Row& r) {
    return r.state == "resident" && r.holding.empty() && !r.pinned;
  }
  /// With or without what is not yet free.
  std::uint64_t sum(TenantId tenant, bool with_gone) const {
    std::uint64_t bytes = 0;
    for (const Row& r : rows) {
      const bool counts = r.state == "filling" || r.state == "resident";
      if (counts && (tenant == 0 || r.tenant == tenant)) bytes += r.bytes;
    }
    for (const Gone& g : gone)
      if (with_gone && (tenant == 0 || g.tenant == tenant)) bytes += g.bytes;
    return bytes;
  }

  void grant(Row& r, TicketId ticket, std::int64_t now) {
    say("grant", ticket);
    r.holding.push_back(ticket);
    ++r.uses;
    r.last_used = now;
  }
  void want(Row& r, std::int64_t now) {
    if (r.state != "absent") return;
    r.state = "sizing";
    r.began = now;
    say("load", r.id);
  }
  void evict_if_idle(Row& r) {
    if (!is_idle(r)) return;
    r.state = "absent";
    gone.push_back({next_eviction_++, r.tenant, r.bytes});
    say("evict", r.id);
  }
  void refuse_waiting(Row& r) {
    std::sort(r.waiting.begin(), r.waiting.end());
    for (TicketId ticket : std::exchange(r.waiting, {})) say("refuse", ticket);
  }
  void end(Row& r) {
    r.state = "absent";
    refuse_waiting(r);
  }

  double value(const Row& r, std::int64_t now) const {
    return static_cast<double>(r.load_time) / 1000 /
           (static_cast<double>(now - r.last_used) / 1000 + 1);
  }
  /// The idle ones in the order in which they would go.
  std::vector<Row*> candidates(std::int64_t now) {
    std::vector<Row*> idle;
    for (Row& r : rows)
      if (is_idle(r)) idle.push_back(&r);
    // The rows have the order of their ids, and each sort keeps what it finds equal.
    std::stable_sort(idle.begin(), idle.end(),
                     [](Row* a, Row* b) { return a->last_used < b->last_used; });
    std::stable_sort(idle.begin(), idle.end(), [&](Row* a, Row* b) {
      if (policy_ == EvictionPolicy::lfu) return a->uses < b->uses;
      if (policy_ == EvictionPolicy::largest) return a->bytes > b->bytes;
      return policy_ == EvictionPolicy::cost && value(*a, now) < value(*b, now);
    });
    return idle;
  }

  /// Whether evicting `chosen`, and what is being evicted already, makes room behind `before`.
  bool is_enough(const Row& wanting, const std::vector<Row*>& chosen,
                 const std::vector<Row*>& before, TenantId tenant) const {
    std::uint64_t held = sum(tenant, false) + wanting.bytes;
    for (const Row* r : before)
      if (tenant == 0 || r->tenant == tenant) held += r->bytes;
    for (const Row* r : chosen)
      if (tenant == 0 || r->tenant == tenant) held -= r->bytes;
    return held <= (tenant == 0 ? room_ : budget(tenant));
  }

  /// What must go, if that is enough.
  bool plan(const Row& wanting, const std::vector<Row*>& before, std::int64_t now,
            std::vector<Row*>& chosen) {
    const auto idle = candidates(now);
    for (Row* r : idle)
      if (r->tenant == wanting.tenant && !is_enough(wanting, chosen, before, wanting.tenant))
        chosen.push_back(r);
    if (!is_enough(wanting, chosen, before, wanting.tenant)) return false;
    for (Row* r : idle)
      if (!has(chosen, r) && !is_enough(wanting, chosen, before, 0)) chosen.push_back(r);
    return is_enough(wanting, chosen, before, 0);
  }

  std::string settled(std::int64_t now) {
    std::vector<Row*> before;
    for (ModelId id : std::vector<ModelId>(queue_)) {
      Row& r = *row(id);
      std::vector<Row*> chosen;
      if (r.bytes > room_ || r.bytes > budget(r.tenant) || !plan(r, before, now, chosen)) {
        remove(queue_, id);
        say("abandon", id);
        end(r);
        continue;
      }
      for (Row* each : chosen) evict_if_idle(*each);
      if (used() + r.bytes > room_ || used(r.tenant) + r.bytes > budget(r.tenant)) {
        before.push_back(&r);
        continue;
      }
      remove(queue_, id);
      say("fill", id);
      r.state = "filling";
    }
    return said_;
  }

  std::uint64_t room_;
  EvictionPolicy policy_;
  std::int64_t time_to_live_;
  std::vector<Budget> budgets_;
  std::vector<ModelId> queue_;
  EvictionId next_eviction_ = 1;
  std::string said_;
};

}  // namespace bellows::model_test
