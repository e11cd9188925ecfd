// SPDX-License-Identifier: Apache-2.0
// A step whose files look right, but of which a block was damaged at rest: the restore finds it,
// and every rank goes on from the step before.
#include <criterion/criterion.h>

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/client/handle.h"
#include "checkpoint/protocol/step_choice.h"
#include "tests/unit/checkpoint/rank_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

std::string shard_of(const Place& place, std::uint64_t step, std::uint32_t rank,
                     std::uint32_t world) {
  return step_path(place.checkpoints(), step) + "/" + shard_name(rank, world);
}

// A byte of the file's last block, which is that of an array.
void damage(const std::string& file) {
  flip_byte(file, static_cast<std::int64_t>(std::filesystem::file_size(file)) - 1);
}

void save_steps(int world, std::uint64_t last) {
  const auto save = [&](int rank, bellows_t* b) {
    Model model(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(world));
    int rc = model.add_to(b);
    for (std::uint64_t step = 1; rc == 0 && step <= last; ++step) {
      model.fill(step);
      rc = bellows_save(b, step);
    }
    return rc == 0 ? bellows_finalize(b, 1) : rc;
  };
  cr_assert(all(run_ranks(world, save), 0));
}

// 0 when the rank gets the step, bit for bit.
int restores(int rank, int world, bellows_t* b, std::uint64_t wanted) {
  Model model(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(world));
  Model right(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(world));
  std::uint64_t step = 0;
  right.fill(wanted);
  if (model.add_to(b) != 0 || bellows_restore(b, &step) != BELLOWS_OK) return 1;
  return step == wanted && model == right ? bellows_finalize(b, 1) : 2;
}

/// An array of several blocks, at a page or not.
class LargeArray {
 public:
  explicit LargeArray(std::size_t offset) : memory_((20 << 20) + 8192), bytes_(20 << 20) {
    while (reinterpret_cast<std::uintptr_t>(data()) % 4096 != 0) ++first_;
    first_ += offset;
  }
  unsigned char* data() { return memory_.data() + first_; }
  void fill(std::uint64_t step) {
    for (std::size_t i = 0; i < bytes_; ++i) data()[i] = static_cast<unsigned char>(i * step >> 9);
  }
  bool holds(std::uint64_t step) {
    LargeArray right(0);
    right.fill(step);
    return std::equal(data(), data() + bytes_, right.data());
  }
  int add_to(bellows_t* b) {
    const std::uint64_t shape[] = {bytes_};
    return bellows_register(b, "large", BELLOWS_U8, 1, shape, BELLOWS_SHARDED, 0, bytes_, data());
  }

 private:
  std::vector<unsigned char> memory_;
  std::size_t first_ = 0;
  const std::size_t bytes_;
};

}  // namespace

Test(bad_step, what_a_rank_reads_itself_is_verified_too, .timeout = 60) {
  for (const std::size_t offset : {0, 16, 5}) {
    Place place;
    const auto save = [&](int, bellows_t* b) {
      LargeArray array(offset);
      int rc = array.add_to(b);
      for (std::uint64_t step = 1; rc == 0 && step <= 2; ++step) {
        array.fill(step);
        rc = bellows_save(b, step);
      }
      return rc == 0 ? bellows_finalize(b, 1) : rc;
    };
    const auto restore = [&](std::uint64_t wanted) {
      return [=](int, bellows_t* b) {
        LargeArray array(offset);
        std::uint64_t step = 0;
        if (array.add_to(b) != 0 || bellows_restore(b, &step) != BELLOWS_OK) return 1;
        return step == wanted && array.holds(wanted) ? bellows_finalize(b, 1) : 2;
      };
    };
    cr_assert(all(run_ranks(1, save), 0));
    cr_expect(all(run_ranks(1, restore(2)), 0));
    flip_byte(shard_of(place, 2, 0, 1), 10 << 20);
    cr_expect(all(run_ranks(1, restore(1)), 0));
  }
}

// The rank reads its array in place, and then it turns out that the step is bad; the step before it
// has no such array.
Test(bad_step, an_array_that_only_the_bad_step_has_keeps_what_it_had, .timeout = 60) {
  Place place;
  const auto with_state = [](bellows_t* b, std::vector<unsigned char>* state) {
    const std::uint64_t shape[] = {state->size()};
    return bellows_register(b, "state", BELLOWS_U8, 1, shape, BELLOWS_PER_RANK, 0, 0,
                            state->data());
  };
  const auto save = [&](int, bellows_t* b) {
    std::vector<unsigned char> small(4 << 20, 1), state(8 << 20, 2);
    LargeArray array(0);
    array.fill(1);
    int rc = with_state(b, &small);
    if (rc == 0) rc = array.add_to(b);
    if (rc == 0) rc = bellows_save(b, 1);
    if (rc == 0) rc = with_state(b, &state);
    if (rc == 0) rc = bellows_save(b, 2);
    return rc == 0 ? bellows_finalize(b, 1) : rc;
  };
  cr_assert(all(run_ranks(1, save), 0));
  damage(shard_of(place, 2, 0, 1));
  const auto restore = [&](int, bellows_t* b) {
    std::vector<unsigned char> state(8 << 20, 3);
    const std::vector<unsigned char> before = state;
    LargeArray array(0);
    std::uint64_t step = 0;
    if (with_state(b, &state) != 0 || array.add_to(b) != 0) return 1;
    if (bellows_restore(b, &step) != BELLOWS_OK || step != 1 || !array.holds(1)) return 2;
    return state == before ? bellows_finalize(b, 1) : 3;
  };
  cr_expect(all(run_ranks(1, restore), 0));
}

// One descriptor is all that it may still have, and the source has taken it.
Test(bad_step, a_rank_short_of_descriptors_is_given_all, .timeout = 60) {
  Place place;
  const auto save = [&](int, bellows_t* b) {
    LargeArray array(0);
    array.fill(1);
    const int rc = array.add_to(b) ? 1 : bellows_save(b, 1);
    return rc == 0 ? bellows_finalize(b, 1) : rc;
  };
  cr_assert(all(run_ranks(1, save), 0));
  const auto restore = [&](int, bellows_t* b) {
    LargeArray array(0);
    std::uint64_t step = 0;
    if (array.add_to(b) != 0) return 1;
    const int next = dup(0);
    close(next);
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(next) + 1;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    if (bellows_restore(b, &step) != BELLOWS_OK) return 3;
    return step == 1 && array.holds(1) ? bellows_finalize(b, 1) : 4;
  };
  cr_expect(all(run_ranks(1, restore), 0));
}

Test(bad_step, one_rank_goes_back_to_the_one_before, .timeout = 60) {
  Place place;
  save_steps(1, 3);
  damage(shard_of(place, 3, 0, 1));
  cr_expect(all(run_ranks(1, [](int r, bellows_t* b) { return restores(r, 1, b, 2); }), 0));
  damage(shard_of(place, 2, 0, 1));
  cr_expect(all(run_ranks(1, [](int r, bellows_t* b) { return restores(r, 1, b, 1); }), 0));
}

Test(bad_step, all_ranks_go_back_to_the_one_before, .timeout = 60) {
  Place place;
  save_steps(3, 2);
  damage(shard_of(place, 2, 2, 3));
  cr_expect(all(run_ranks(3, [](int r, bellows_t* b) { return restores(r, 3, b, 1); }), 0));
}

Test(bad_step, without_a_good_step_restore_fails_and_says_why, .timeout = 60) {
  for (int world : {1, 2}) {
    Place place;
    save_steps(world, 2);
    const std::string file = shard_of(place, 2, 0, static_cast<std::uint32_t>(world));
    damage(file);
    damage(shard_of(place, 1, 0, static_cast<std::uint32_t>(world)));
    const auto restore = [&](int rank, bellows_t* b) {
      Model model(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(world));
      std::uint64_t step = 0;
      if (model.add_to(b) != 0 || bellows_restore(b, &step) != BELLOWS_ERR_CORRUPT) return 1;
      const std::string why = bellows_error(b);
      if (!has(why, "all 2 are damaged") || !has(why, file + " is damaged: the bytes from ")) {
        return 2;
      }
      return 0;
    };
    cr_expect(all(run_ranks(world, restore), 0), "of %d ranks", world);
  }
}

Test(bad_step, a_step_that_is_saved_again_is_good_again, .timeout = 60) {
  Place place;
  save_steps(1, 2);
  damage(shard_of(place, 2, 0, 1));
  const auto run = [](int rank, bellows_t* b) {
    Model model(static_cast<std::uint32_t>(rank), 1), right(static_cast<std::uint32_t>(rank), 1);
    std::uint64_t step = 0;
    if (model.add_to(b) != 0 || bellows_restore(b, &step) != BELLOWS_OK || step != 1) return 1;
    model.fill(2);
    return bellows_save(b, 2) == BELLOWS_OK ? bellows_finalize(b, 1) : 2;
  };
  cr_assert(all(run_ranks(1, run), 0));
  cr_expect(all(run_ranks(1, [](int r, bellows_t* b) { return restores(r, 1, b, 2); }), 0));
}

// Within one handle, too: what came after the older step is trained and saved once more.
Test(bad_step, after_a_step_back_the_later_steps_are_saved_again, .timeout = 60) {
  Place place;
  const auto run = [&](int, bellows_t* b) {
    Model model(0, 1), right(0, 1);
    int rc = model.add_to(b);
    for (std::uint64_t step = 1; rc == 0 && step <= 4; ++step) {
      model.fill(step);
      rc = bellows_save(b, step);
    }
    if (rc != 0) return 1;
    damage(shard_of(place, 4, 0, 1));
    for (const auto& buffer : b->buffers)
      std::fill_n(buffer.memory.data(), buffer.memory.size(), 0x55);
    std::uint64_t step = 0;
    right.fill(3);
    if (bellows_restore(b, &step) != BELLOWS_OK || step != 3 || !(model == right)) return 2;
    if (bellows_saved_step(b, &step) != BELLOWS_OK || step != 3) return 3;
    if (bellows_save(b, 2) != BELLOWS_ERR_INVALID) return 4;
    for (step = 4; step <= 5; ++step) {
      model.fill(step);
      if (bellows_save_async(b, step) != BELLOWS_OK) return 5;
    }
    if (bellows_wait(b) != BELLOWS_OK || bellows_save(b, 4) != BELLOWS_ERR_INVALID) return 6;
    return bellows_finalize(b, 1);
  };
  cr_assert(all(run_ranks(1, run), 0));
  for (const std::uint64_t step : {4, 5})
    cr_expect(verify_step(place.checkpoints(), step).ok(), "step %lu is bad", step);
  cr_expect(all(run_ranks(1, [](int r, bellows_t* b) { return restores(r, 1, b, 5); }), 0));
}

Test(bad_step, the_choice_goes_past_what_was_noted, .timeout = 10) {
  StepChoice choice;
  cr_expect(!choice.find().search.whole && choice.find().search.bad.empty());
  const event::RestoreError bad{.step = 9, .error = {ErrorKind::corrupt, "damaged"}};
  choice.note_bad(bad);
  choice.note_bad(bad);
  cr_expect(choice.find().search.bad.size() == 1 && choice.find().search.bad[0].step == 9);
  event::Found found{8, {{9, "damaged"}}};
  cr_expect(choice.offer(found).step == 8u && !choice.offer(found).error);
  found.step.reset();
  cr_assert(choice.offer(found).error);
  cr_expect(has(choice.offer(found).error->text, "step 9: damaged"));
  cr_expect(!choice.offer({}).step && !choice.offer({}).error);
  choice.note_good(9);
  cr_expect(choice.find().search.bad.empty());
}

// A store may fail for a moment, and what was acknowledged must not be given up for that.
Test(bad_step, what_could_not_be_read_stays_on_offer, .timeout = 10) {
  StepChoice choice;
  event::RestoreError failed{.step = 9};
  for (const ErrorKind kind : {ErrorKind::io, ErrorKind::denied, ErrorKind::unavailable}) {
    failed.error.kind = kind;
    for (int i = 0; i < 3; ++i) cr_expect(!choice.note_bad(failed));
    cr_expect(choice.find().search.bad.empty());
  }
  failed.error.kind = ErrorKind::corrupt;
  cr_expect(choice.note_bad(failed) && choice.note_bad(failed));
  cr_expect(choice.find().search.bad.size() == 1);
  choice.note_good(9);
  cr_expect(choice.find().search.bad.empty());
}

// Nor must a program go back to an older step than it was told of, or to the start.
Test(bad_step, a_restore_that_cannot_read_the_newest_step_fails, .timeout = 60) {
  for (int world : {1, 2}) {
    Place place;
    save_steps(world, 3);
    {
      const OpenBlock block(shard_of(place, 3, 0, static_cast<std::uint32_t>(world)));
      const auto restore = [&](int rank, bellows_t* b) {
        Model model(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(world));
        std::uint64_t step = 0;
        if (model.add_to(b) != 0 || bellows_restore(b, &step) != BELLOWS_ERR_IO) return 1;
        return has(bellows_error(b), "step 3 cannot be read at present") ? 0 : 2;
      };
      cr_expect(all(run_ranks(world, restore), 0), "of %d ranks", world);
    }
    const auto again = [&](int r, bellows_t* b) { return restores(r, world, b, 3); };
    cr_expect(all(run_ranks(world, again), 0), "of %d ranks", world);
  }
}
