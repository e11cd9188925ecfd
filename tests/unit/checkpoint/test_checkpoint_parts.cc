// SPDX-License-Identifier: Apache-2.0
// Which rank stores what of an array.
#include <criterion/criterion.h>

#include "tests/unit/checkpoint/checkpoint_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

struct Stored {
  bool any;
  std::uint64_t first;
  std::uint64_t count;
};

Stored stored(const wire::Array& a, std::uint32_t rank, std::uint32_t world) {
  Stored out = {};
  out.any = wire::stored_part(a, "name", 4, rank, world, &out.first, &out.count);
  return out;
}

}  // namespace

Test(parts, a_small_replicated_array_is_stored_once, .timeout = 10) {
  const wire::Array a = f32_array({1000}, wire::kReplicated);
  std::uint32_t ranks = 0;
  for (std::uint32_t rank = 0; rank < 7; ++rank) {
    const Stored s = stored(a, rank, 7);
    ranks += s.any;
    cr_expect(!s.any || (s.first == 0 && s.count == 1000));
  }
  cr_expect(ranks == 1);
}

Test(parts, a_large_replicated_array_is_stored_by_all_ranks, .timeout = 10) {
  const std::uint64_t huge = std::uint64_t{1} << 59;
  for (std::uint64_t rows : {std::uint64_t{262144}, std::uint64_t{262151}, huge, huge + 5}) {
    for (std::uint32_t world : {1u, 2u, 3u, 7u, 1u << 17}) {
      const wire::Array a = f32_array({rows}, wire::kReplicated);
      std::uint64_t next = 0;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const Stored s = stored(a, rank, world);
        cr_assert(s.any && s.first == next);
        next += s.count;
      }
      cr_expect(next == rows);
    }
  }
  // Too few rows to share, or just too small.
  cr_expect(
      stored(f32_array({4, 65536}, 0), 0, 5).any + stored(f32_array({4, 65536}, 0), 1, 5).any +
          stored(f32_array({4, 65536}, 0), 2, 5).any + stored(f32_array({4, 65536}, 0), 3, 5).any +
          stored(f32_array({4, 65536}, 0), 4, 5).any ==
      1);
  cr_expect(stored(f32_array({262143}, 0), 0, 2).any + stored(f32_array({262143}, 0), 1, 2).any ==
            1);
}

Test(parts, values_are_stored_by_rank_0_and_per_rank_arrays_by_all, .timeout = 10) {
  wire::Array a = f32_array({4}, wire::kValue);
  a.count = 4;
  cr_expect(stored(a, 0, 3).any && !stored(a, 1, 3).any && !stored(a, 2, 3).any);
  a.layout = wire::kPerRank;
  cr_expect(stored(a, 0, 3).any && stored(a, 1, 3).any && stored(a, 2, 3).any);
}

Test(parts, bytes_are_those_of_the_part_along_its_axis, .timeout = 10) {
  ArrayPart part{"x", f32_array({3, 5, 7}, wire::kSharded, 0, 3)};
  part.array.axis = 1;
  part.array.first = 1;
  part.array.count = 4;
  cr_expect(check_part(part).ok() && part.bytes() == 4 * 3 * 4 * 7);
  part.array.count = 5;
  cr_expect(!check_part(part).ok());
  // The whole must be a number too, whatever this rank holds of it.
  part.array = f32_array({UINT64_MAX, 8}, wire::kSharded, 0, 1);
  cr_expect(!check_part(part).ok());
}
