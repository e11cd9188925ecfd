// SPDX-License-Identifier: Apache-2.0
// What a tier decides, event by event.
#include <criterion/criterion.h>

#include <initializer_list>
#include <string>

#include "modelstore/book/model_book.h"
#include "tests/unit/modelstore/book_support.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr auto kLru = EvictionPolicy::lru;

/// A tier of 100 bytes, with models 1 to 9 of tenant 1, and 11 to 19 of tenant 2.
struct Tier {
  explicit Tier(EvictionPolicy policy = kLru, int ttl_ms = 0, std::uint64_t budget = 100)
      : book({100, policy, std::chrono::milliseconds(ttl_ms)}) {
    book.add_tenant(1, budget);
    book.add_tenant(2, 100);
    for (ModelId id = 1; id < 10; ++id) {
      book.add_model(id, 1);
      book.add_model(id + 10, 2);
    }
  }

  BookDecisions open(TicketId ticket, ModelId id, int ms = 0) {
    return book.open(ticket, id, at(ms));
  }
  BookDecisions close(TicketId ticket, int ms = 0) { return book.close(ticket, at(ms)); }
  /// Evictions are counted from 1.
  BookDecisions freed(EvictionId eviction, int ms = 0) { return book.freed(eviction, at(ms)); }
  BookDecisions sized(ModelId id, std::uint64_t bytes, int ms = 0) {
    return book.sized(id, bytes, at(ms));
  }
  BookDecisions loaded(ModelId id, int ms = 0) { return book.loaded(id, at(ms)); }

  /// Resident from `ms` on, and used by nobody.
  void have(ModelId id, std::uint64_t bytes, int ms = 0, int load_ms = 0) {
    cr_assert_eq(text_of(book.prefetch(id, at(ms - load_ms))), "load " + std::to_string(id));
    cr_assert_eq(text_of(sized(id, bytes, ms)), "fill " + std::to_string(id));
    cr_assert_eq(text_of(loaded(id, ms)), "");
  }

  ModelBook book;
};

void expect(const BookDecisions& decisions, const std::string& text, int line) {
  cr_expect(text_of(decisions) == text, "line %d: \"%s\", and not \"%s\"", line,
            text_of(decisions).c_str(), text.c_str());
}
#define EXPECT(decisions, text) expect(decisions, text, __LINE__)

const Error& error_of(const BookDecisions& decisions) {
  for (const BookDecision& decision : decisions)
    if (const auto* refused = std::get_if<decide::Refuse>(&decision)) return refused->error;
  static const Error none{ErrorKind::internal, "nothing was refused"};
  return none;
}

}  // namespace

Test(model_book, loads_once_for_all_who_wait, .timeout = 10) {
  Tier t;
  EXPECT(t.open(1, 1), "load 1");
  EXPECT(t.open(2, 1), "");
  EXPECT(t.sized(1, 60), "fill 1");
  EXPECT(t.open(3, 1), "");
  EXPECT(t.close(2), "");
  cr_expect(t.book.room().used == 60 && t.book.references(1) == 0);
  EXPECT(t.loaded(1), "grant 1, grant 3");
  EXPECT(t.open(4, 1), "grant 4");
  cr_expect(t.book.references(1) == 3);
}

Test(model_book, gives_all_who_wait_the_error, .timeout = 10) {
  Tier t;
  (void)t.open(1, 1);
  (void)t.open(2, 1);
  (void)t.sized(1, 60);
  const auto out = t.book.failed(1, Error{ErrorKind::io, "the disk"}, at(0));
  EXPECT(out, "refuse 1, refuse 2");
  cr_expect(error_of(out).text == "the disk");
  cr_expect(t.book.room().used == 0 && t.book.state(1) == ModelBook::State::absent);
  EXPECT(t.open(3, 1), "load 1");
}

Test(model_book, evicts_by_its_policy, .timeout = 10) {
  const auto victim_of = [](EvictionPolicy policy) {
    Tier t(policy);
    t.have(1, 20, 1000);
    t.have(2, 30, 2000, 900);
    t.have(3, 40, 3000, 100);
    for (TicketId ticket = 1; ticket < 4; ++ticket) {
      (void)t.open(ticket, 1, 3500);
      (void)t.close(ticket, 3500);
    }
    for (TicketId ticket = 4; ticket < 6; ++ticket) {
      (void)t.open(ticket, 3, 3600);
      (void)t.close(ticket, 3600);
    }
    (void)t.open(9, 4, 4000);
    return text_of(t.sized(4, 25, 4000));
  };
  cr_expect(victim_of(EvictionPolicy::lru) == "evict 2");
  cr_expect(victim_of(EvictionPolicy::lfu) == "evict 2");
  cr_expect(victim_of(EvictionPolicy::largest) == "evict 3");
  cr_expect(victim_of(EvictionPolicy::cost) == "evict 1");
}

Test(model_book, goes_on_only_when_the_room_is_free, .timeout = 10) {
  Tier t;
  t.have(1, 80);
  EXPECT(t.open(1, 2), "load 2");
  EXPECT(t.sized(2, 50), "evict 1");
  cr_expect(t.book.room().used == 80 && t.book.state(2) == ModelBook::State::waiting);
  // What is small enough for the room that there is need not wait.
  EXPECT(t.open(2, 3), "load 3");
  EXPECT(t.sized(3, 20), "fill 3");
  EXPECT(t.freed(1), "fill 2");
  cr_expect(t.book.room().used == 70);
}

Test(model_book, never_evicts_what_is_lent_or_pinned, .timeout = 10) {
  Tier t;
  t.have(1, 50);
  t.have(2, 50);
  (void)t.open(1, 1);
  t.book.pin(2, true);
  (void)t.open(2, 3);
  const auto out = t.sized(3, 10);
  EXPECT(out, "abandon 3, refuse 2");
  cr_expect(error_of(out).kind == ErrorKind::busy && has(error_of(out).text, "in use or pinned"));
  t.book.pin(2, false);
  (void)t.open(3, 3);
  EXPECT(t.sized(3, 60), "abandon 3, refuse 3");
  cr_expect(t.book.state(2) == ModelBook::State::resident, "evicting it would not have helped");
  (void)t.open(4, 3);
  EXPECT(t.sized(3, 50), "evict 2");
}

Test(model_book, keeps_tenants_within_their_budgets, .timeout = 10) {
  Tier t(kLru, 0, 50);
  t.have(11, 40);
  t.have(1, 30);
  (void)t.open(1, 2);
  EXPECT(t.sized(2, 30), "evict 1");
  cr_expect(t.book.room_of(1).used == 30 && t.book.state(2) == ModelBook::State::waiting,
            "the tier has room, the budget has not");
  EXPECT(t.freed(1), "fill 2");
  EXPECT(t.loaded(2), "grant 1");
  (void)t.open(2, 3);
  const auto full = t.sized(3, 30);
  EXPECT(full, "abandon 3, refuse 2");
  cr_expect(has(error_of(full).text, "others of its tenant"));
  (void)t.open(3, 4);
  const auto large = t.sized(4, 51);
  EXPECT(large, "abandon 4, refuse 3");
  cr_expect(error_of(large).kind == ErrorKind::busy &&
            has(error_of(large).text, "budget here is 50"));
  (void)t.open(4, 12);
  const auto larger = t.sized(12, UINT64_MAX);
  EXPECT(larger, "abandon 12, refuse 4");
  cr_expect(error_of(larger).kind == ErrorKind::busy);
}

Test(model_book, loads_again_what_somebody_has_mapped_still, .timeout = 10) {
  Tier t(kLru, 1000);
  t.have(1, 80, 0);
  cr_expect(t.book.next_expiry() == at(1000));
  EXPECT(t.book.expire(at(999)), "");
  EXPECT(t.book.expire(at(1000)), "evict 1");
  cr_expect(!t.book.next_expiry());
  EXPECT(t.open(1, 1, 1001), "load 1");
  EXPECT(t.sized(1, 80, 1002), "");
  cr_expect(t.book.room().used == 80, "it waits for the memory that it had");
  EXPECT(t.freed(1, 1003), "fill 1");
  EXPECT(t.loaded(1, 1004), "grant 1");
  EXPECT(t.close(1, 1005), "");
  EXPECT(t.book.evict(1), "evict 1");
  EXPECT(t.open(1, 1, 1006), "load 1");
  EXPECT(t.sized(1, 20, 1007), "fill 1");
  cr_expect(t.book.room().used == 100, "both count");
  EXPECT(t.freed(2, 1008), "");
  cr_expect(t.book.room().used == 20);
}

Test(model_book, use_puts_off_the_end_of_life, .timeout = 10) {
  Tier t(kLru, 1000);
  t.have(1, 10, 0);
  (void)t.open(1, 1, 900);
  EXPECT(t.book.expire(at(5000)), "");
  (void)t.close(1, 5000);
  EXPECT(t.book.expire(at(5999)), "");
  EXPECT(t.book.expire(at(6000)), "evict 1");
}

Test(model_book, a_retired_model_goes_with_its_last_user, .timeout = 10) {
  Tier t;
  t.have(1, 10);
  (void)t.open(1, 1);
  EXPECT(t.book.retire(1, at(0)), "");
  const auto out = t.open(2, 1);
  EXPECT(out, "refuse 2");
  cr_expect(error_of(out).kind == ErrorKind::not_found);
  EXPECT(t.close(1), "evict 1");
  EXPECT(t.freed(1), "");
  cr_expect(t.book.room().used == 0);
  EXPECT(t.open(3, 1), "refuse 3");
}

Test(model_book, a_retired_models_memory_counts_until_it_is_free, .timeout = 10) {
  Tier t;
  t.have(1, 10);
  EXPECT(t.book.retire(1, at(0)), "evict 1");
  cr_expect(t.book.room().used == 10 && t.book.room_of(1).used == 10);
  EXPECT(t.freed(1), "");
  cr_expect(t.book.room().used == 0 && t.book.room_of(1).used == 0);
}

Test(model_book, takes_back_what_is_in_memory, .timeout = 10) {
  Tier t;
  EXPECT(t.book.adopt(1, 60, at(0)), "");
  EXPECT(t.book.adopt(2, 60, at(0)), "evict 2");
  cr_expect(t.book.room().used == 120, "it is there, whatever the limit");
  EXPECT(t.open(1, 1), "grant 1");
  EXPECT(t.open(2, 2), "load 2");
  EXPECT(t.sized(2, 30), "");
  EXPECT(t.freed(1), "fill 2");
}

Test(model_book, ignores_what_cannot_be, .timeout = 10) {
  Tier t;
  EXPECT(t.loaded(1), "");
  EXPECT(t.sized(1, 5), "");
  EXPECT(t.freed(1), "");
  EXPECT(t.close(7), "");
  EXPECT(t.book.failed(99, Error{}, at(0)), "");
  EXPECT(t.open(1, 99), "refuse 1");
  EXPECT(t.open(1, 1), "load 1");
  EXPECT(t.open(1, 2), "");
  EXPECT(t.loaded(1), "");
  (void)t.sized(1, 5);
  EXPECT(t.sized(1, 50), "");
  cr_expect(t.book.room().used == 5);
}
