// SPDX-License-Identifier: Apache-2.0
// Random events, all with BELLOWS_LONG=1, on a book and on one that is too plain to be wrong.
#include <criterion/criterion.h>

#include <cstdlib>
#include <random>

#include "tests/unit/modelstore/book_world.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

int events() {
  const char* is_long = std::getenv("BELLOWS_LONG");
  return is_long && *is_long == '1' ? 1'000'000 : 50'000;
}

void run(EvictionPolicy policy, std::int64_t time_to_live) {
  BookWorld world(policy, time_to_live);
  std::mt19937 random(1);
  for (int i = 0; i < events(); ++i)
    cr_assert(world.step(random() >> 4, random() >> 4, random() >> 4), "event %d: %s", i,
              world.trouble().c_str());
  // Else the events would show nothing.
  for (const char* decision : {"load", "fill", "abandon", "evict", "grant", "refuse"})
    cr_expect(world.decided().count(decision) != 0 && world.decided().at(decision) > 200,
              "%s is rare: %lu", decision, world.decided().at(decision));
}

}  // namespace

Test(model_book_random, lru, .timeout = 300) { run(EvictionPolicy::lru, 0); }
Test(model_book_random, lfu, .timeout = 300) { run(EvictionPolicy::lfu, 0); }
Test(model_book_random, largest_first, .timeout = 300) { run(EvictionPolicy::largest, 100); }
Test(model_book_random, cost, .timeout = 300) { run(EvictionPolicy::cost, 300); }
