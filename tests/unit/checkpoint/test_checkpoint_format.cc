// SPDX-License-Identifier: Apache-2.0
// Golden files of every version of the format: what was written once must load for ever.
#include <criterion/criterion.h>

#include "tests/unit/checkpoint/checkpoint_arrays.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

ArrayPart typed(const std::string& name, std::uint32_t dtype, wire::Array array) {
  array.dtype = dtype;
  return {name, array};
}

/// What golden/v2 holds, as two ranks saved it.
std::vector<ArrayPart> golden_v2(std::uint32_t rank, std::uint32_t world) {
  std::vector<ArrayPart> out;
  for (std::uint32_t dtype = 1; dtype <= 16; ++dtype) {
    const std::string t = "t" + std::to_string(dtype);
    out.push_back(typed("sharded/" + t, dtype, along({3, 5, 2}, 1, rank, world)));
    out.push_back(typed("value/" + t, dtype, f32_array({3}, wire::kValue)));
  }
  out.push_back(typed("whole", 2, f32_array({5}, wire::kReplicated)));
  out.push_back(typed("scalar", 15, f32_array({}, wire::kReplicated)));
  out.push_back(typed("rng", 16, f32_array({2 + rank % 3, 4}, wire::kPerRank)));
  out.push_back(typed("none", 3, along({0, 4}, 0, rank, world)));
  return out;
}

/// Every type in every layout.
std::vector<ArrayPart> model_v2(std::uint32_t rank, std::uint32_t world) {
  std::vector<ArrayPart> out;
  for (std::uint32_t dtype = 1; dtype <= 16; ++dtype) {
    const std::string t = "t" + std::to_string(dtype);
    out.push_back(typed("a0/" + t, dtype, along({7, 3}, 0, rank, world)));
    out.push_back(typed("a1/" + t, dtype, along({3, 5, 2}, 1, rank, world)));
    out.push_back(typed("a2/" + t, dtype, along({2, 3, 9}, 2, rank, world)));
    out.push_back(typed("none/" + t, dtype, along({0, 4}, 0, rank, world)));
    out.push_back(typed("hollow/" + t, dtype, along({3, 0, 4}, 0, rank, world)));
    out.push_back(typed("whole/" + t, dtype, f32_array({5}, wire::kReplicated)));
    out.push_back(typed("scalar/" + t, dtype, f32_array({}, wire::kReplicated)));
    out.push_back(typed("rng/" + t, dtype, f32_array({2 + rank % 3, 4}, wire::kPerRank)));
    out.push_back(typed("seed/" + t, dtype, f32_array({}, wire::kPerRank)));
    out.push_back(typed("value/" + t, dtype, f32_array({3}, wire::kValue)));
    out.push_back(typed("one/" + t, dtype, f32_array({}, wire::kValue)));
  }
  return out;
}

/// The same and an array large enough for all ranks to store a piece of more than one block.
std::vector<ArrayPart> model_with_pieces(std::uint32_t rank, std::uint32_t world) {
  std::vector<ArrayPart> out = model_v2(rank, world);
  out.push_back(typed("spread", 4, f32_array({1031, 1750}, wire::kReplicated)));
  return out;
}

}  // namespace

Test(format, version_2_loads_at_any_world_size, .timeout = 60) {
  const std::string dir = std::string(GOLDEN) + "/v2";
  auto reader = open_step(dir, 50);
  cr_assert(reader.ok(), "%s", reader.error().text.c_str());
  for (std::uint32_t world : {1u, 2u, 3u, 5u}) {
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const std::string wrong = restore_model(**reader, rank, world, golden_v2);
      cr_expect(wrong.empty(), "rank %u of %u: %s", rank, world, wrong.c_str());
    }
  }
}

Test(format, other_readers_agree_wherever_the_directory_lies, .timeout = 120) {
  for (std::uint32_t world : {1u, 3u}) {
    ScratchDir scratch;
    FileOps ops;
    StoreWriter writer(ops, scratch.path() + "/first", "job.0.1", Retention{2});
    cr_assert(writer.take_ownership().ok());
    const Status saved = save_model(writer, ops, 50, world, model_with_pieces);
    cr_assert(saved.ok(), "%s", why(saved).c_str());
    std::filesystem::rename(scratch.path() + "/first", scratch.path() + "/second");
    const std::string command =
        std::string(CHECK) + " " + step_path(scratch.path() + "/second", 50) + " > /dev/null";
    cr_expect(system(command.c_str()) == 0, "%s", command.c_str());
  }
}
