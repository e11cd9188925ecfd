// SPDX-License-Identifier: Apache-2.0
// bellows.hpp as a C++ program uses it.
#include <criterion/criterion.h>

#include <numeric>

#include "checkpoint/include/bellows.hpp"
#include "tests/unit/checkpoint/library_support.h"

using namespace bellows::checkpoint_test;
using bellows::Checkpoint;
using bellows::CheckpointError;
using bellows::has;

namespace {

std::string refusal(const std::function<void()>& call, int code) {
  try {
    call();
  } catch (const CheckpointError& error) {
    cr_expect(error.code() == code, "%d: %s", error.code(), error.what());
    return error.what();
  }
  return "";
}

struct State {
  std::vector<float> weights = std::vector<float>(6);
  std::vector<std::int64_t> rows = std::vector<std::int64_t>(4);
  std::array<std::uint8_t, 3> random = {};
  double rate = 0;
  bool warm = false;

  void add_to(Checkpoint& checkpoint) {
    const std::uint64_t shape[] = {2, 3};
    checkpoint.replicated("weights", std::span(weights), shape);
    checkpoint.sharded("rows", std::span(rows), 0, rows.size());
    checkpoint.per_rank("random", std::span(random));
    checkpoint.value("rate", rate);
    checkpoint.value("warm", warm);
  }
  bool operator==(const State&) const = default;
};

}  // namespace

static_assert(bellows::dtype_of<char>() == (std::is_signed_v<char> ? BELLOWS_I8 : BELLOWS_U8));
static_assert(bellows::dtype_of<std::uint16_t>() == BELLOWS_U16);
static_assert(bellows::dtype_of<unsigned long long>() == BELLOWS_U64);
static_assert(bellows::dtype_of<std::complex<float>>() == BELLOWS_C64);
static_assert(bellows::dtype_of<std::byte>() == BELLOWS_BYTES);

Test(library_cpp, saves_and_restores_every_layout, .timeout = 60) {
  Place place;
  State state, wanted;
  {
    Checkpoint checkpoint;
    state.add_to(checkpoint);
    cr_expect(!checkpoint.restore() && !checkpoint.saved_step());
    std::iota(state.weights.begin(), state.weights.end(), 1.0f);
    std::iota(state.rows.begin(), state.rows.end(), 10);
    state.random = {7, 8, 9};
    state.rate = 0.125;
    state.warm = true;
    wanted = state;
    checkpoint.save_async(3);
    state.weights[0] = 99;
    checkpoint.wait();
    cr_expect(checkpoint.saved_step() == 3u);
    cr_expect(!checkpoint.should_stop(4));
    cr_expect(!checkpoint.stop_ahead());
    const Checkpoint::Memory memory = checkpoint.memory();
    cr_expect(memory.needed > 0 && memory.needed <= memory.available);
    checkpoint.leave();
  }
  Checkpoint other({"", 0, 1, 2});
  Checkpoint checkpoint(std::move(other));
  State restored;
  restored.add_to(checkpoint);
  cr_expect(checkpoint.restore() == 3u && restored == wanted);
  cr_expect(checkpoint.rank() == 0 && checkpoint.world() == 1);
  checkpoint.finish();
}

Test(library_cpp, what_is_wrong_is_thrown, .timeout = 60) {
  Place place;
  cr_expect(has(refusal([] { Checkpoint({"", 2, 2, 0}); }, BELLOWS_ERR_INVALID), "rank 2 of 2"));
  Checkpoint checkpoint;
  std::vector<float> data(6);
  const std::uint64_t shape[] = {2, 2};
  cr_expect(
      has(refusal([&] { checkpoint.replicated("x", std::span(data), shape); }, BELLOWS_ERR_INVALID),
          "another size than its shape"));
  cr_expect(has(refusal([&] { checkpoint.forget("x"); }, BELLOWS_ERR_INVALID), "no array x"));
  checkpoint.save(2);
  cr_expect(has(refusal([&] { checkpoint.save(1); }, BELLOWS_ERR_INVALID), "ascend"));
  cr_expect(has(refusal([] { bellows::permutation(0, 0, 3, 2, 2); }, BELLOWS_ERR_INVALID), "last"));
  checkpoint.finish();
}
