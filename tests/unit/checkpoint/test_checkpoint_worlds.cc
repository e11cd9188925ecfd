// SPDX-License-Identifier: Apache-2.0
// What a program of N ranks saved, one of M restores, with arrays of many blocks and of more than
// 2 GiB, all through the library. BELLOWS_LONG=1 takes every pair up to 8.
#include <criterion/criterion.h>
#include <sys/mman.h>

#include "tests/unit/checkpoint/rank_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

bool long_run() {
  const char* said = getenv("BELLOWS_LONG");
  return said && *said;
}

/// Three arrays of u64: cut along either axis, unevenly, and replicated. Each element says its
/// place in the whole array. Together 30 MB, so every rank's shard has blocks of its own.
class LargeModel {
 public:
  LargeModel(int rank, int world)
      : rows_(rows_of(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(world), kRows)),
        columns_(
            rows_of(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(world), kColumns)),
        by_row_(rows_.count * kColumns),
        by_column_(kRows * columns_.count),
        same_(kRows * kColumns) {}

  int add_to(bellows_t* b) {
    int rc = add(b, "by_row", 0, rows_, by_row_.data());
    if (rc == BELLOWS_OK) rc = add(b, "by_column", 1, columns_, by_column_.data());
    const std::uint64_t shape[] = {kRows, kColumns};
    return rc ? rc
              : bellows_register(b, "same", BELLOWS_U64, 2, shape, BELLOWS_REPLICATED, 0, 0,
                                 same_.data());
  }
  void fill(std::uint64_t step) {
    for_each([=](std::uint64_t* at, std::uint64_t place) { *at = step << 40 | place; });
  }
  bool is_of(std::uint64_t step) {
    bool good = true;
    for_each([&](const std::uint64_t* at, std::uint64_t place) {
      good = good && *at == (step << 40 | place);
    });
    return good;
  }

 private:
  static constexpr std::uint64_t kRows = 1237, kColumns = 1013;

  static int add(bellows_t* b, const char* name, std::int32_t axis, Rows part, void* data) {
    const std::uint64_t shape[] = {kRows, kColumns};
    bellows_array array = BELLOWS_ARRAY_INIT;
    array.name = name;
    array.dtype = BELLOWS_U64;
    array.ndims = 2;
    array.shape = shape;
    array.layout = BELLOWS_SHARDED;
    array.axis = axis;
    array.first = part.first;
    array.count = part.count;
    array.data = part.count > 0 ? data : nullptr;
    return bellows_register_array(b, &array);
  }
  template <class Use>
  void for_each(const Use& use) {
    for (std::uint64_t i = 0; i < by_row_.size(); ++i) {
      use(&by_row_[i], rows_.first * kColumns + i);
    }
    for (std::uint64_t i = 0; i < by_column_.size(); ++i) {
      const std::uint64_t row = i / columns_.count, column = i % columns_.count;
      use(&by_column_[i], row * kColumns + columns_.first + column);
    }
    for (std::uint64_t i = 0; i < same_.size(); ++i) use(&same_[i], i);
  }

  Rows rows_, columns_;
  std::vector<std::uint64_t> by_row_, by_column_, same_;
};

void expect_restored(int saved_by, int world) {
  const auto codes = run_ranks(world, [&](int rank, bellows_t* b) {
    LargeModel model(rank, world);
    std::uint64_t step = 0;
    int rc = model.add_to(b);
    if (rc == BELLOWS_OK) rc = bellows_restore(b, &step);
    if (rc != BELLOWS_OK) return 1;
    if (step != 7 || !model.is_of(7)) return 2;
    return bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 3;
  });
  cr_expect(all(codes, 0), "%d ranks restore what %d saved", world, saved_by);
}

void save_and_restore(int world, const std::vector<int>& others) {
  Place place;
  const auto codes = run_ranks(world, [&](int rank, bellows_t* b) {
    LargeModel model(rank, world);
    model.fill(7);
    if (model.add_to(b) != BELLOWS_OK || bellows_save(b, 7) != BELLOWS_OK) return 1;
    return bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 2;
  });
  cr_assert(all(codes, 0), "%d ranks save", world);
  for (int other : others) expect_restored(world, other);
}

/// 2.1 GiB of one array, zero but for a few bytes.
constexpr std::uint64_t kHuge = (std::uint64_t{21} << 30) / 10;
constexpr std::uint64_t kMarks[] = {0,         4095,         1000000007,        1 << 30,
                                    INT32_MAX, kHuge / 2,    kHuge / 2 - 1,     0x80000000,
                                    kHuge - 1, kHuge - 4096, kHuge - (1 << 22), 0x80000001};

/// The part of one of `world` ranks.
struct Huge {
  Huge(int rank, int world)
      : first(kHuge * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(world)),
        count(kHuge / static_cast<std::uint64_t>(world)),
        data(static_cast<unsigned char*>(mmap(nullptr, count, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                                              0))) {}
  int add_to(bellows_t* b) const {
    return bellows_register(b, "huge", BELLOWS_U8, 1, &kHuge, BELLOWS_SHARDED, first, count, data);
  }
  void mark() const {
    for (std::uint64_t at : kMarks) {
      if (at >= first && at < first + count) data[at - first] = static_cast<unsigned char>(at | 1);
    }
  }
  bool is_marked() const {
    std::uint64_t others = 0;
    for (std::uint64_t i = 0; i < count; ++i) others += data[i] != 0;
    for (std::uint64_t at : kMarks) {
      if (at < first || at >= first + count) continue;
      if (data[at - first] != static_cast<unsigned char>(at | 1)) return false;
      --others;
    }
    return others == 0;
  }

  std::uint64_t first, count;
  unsigned char* data;
};

}  // namespace

Test(worlds, large_arrays_are_restored_by_another_number_of_ranks, .timeout = 600) {
  if (!long_run()) {
    save_and_restore(1, {2, 8});
    save_and_restore(3, {2, 4});
    save_and_restore(8, {1, 5});
    return;
  }
  for (int world = 1; world <= 8; ++world) save_and_restore(world, {1, 2, 3, 4, 5, 6, 7, 8});
}

Test(worlds, an_array_of_more_than_2_GiB, .timeout = 600) {
  if (!long_run()) cr_skip_test("only in the long form");
  Place place;
  const auto saved = run_ranks(
      1,
      [](int rank, bellows_t* b) {
        Huge huge(rank, 1);
        huge.mark();
        if (huge.add_to(b) != BELLOWS_OK || bellows_save(b, 3) != BELLOWS_OK) return 1;
        return bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 2;
      },
      200);
  cr_assert(all(saved, 0));
  for (int world : {1, 2}) {
    const auto restored = run_ranks(
        world,
        [=](int rank, bellows_t* b) {
          Huge huge(rank, world);
          std::uint64_t step = 0;
          if (huge.add_to(b) != BELLOWS_OK || bellows_restore(b, &step) != BELLOWS_OK) return 1;
          if (step != 3 || !huge.is_marked()) return 2;
          return bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 3;
        },
        200);
    cr_expect(all(restored, 0), "%d ranks", world);
  }
}
