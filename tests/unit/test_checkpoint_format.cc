// SPDX-License-Identifier: Apache-2.0
// Golden files of every version of the format: what was written once must load for ever.
#include <criterion/criterion.h>

#include "tests/unit/checkpoint_arrays.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

/// What golden/v1 holds, as three ranks saved it.
std::vector<ArrayPart> model_v1(std::uint32_t rank, std::uint32_t world) {
  std::vector<ArrayPart> out;
  const Rows rows = rows_of(rank, world, 10);
  for (std::uint32_t dtype = 1; dtype <= 12; ++dtype) {
    const std::string name = "t" + std::to_string(dtype);
    out.push_back({"sharded/" + name, f32_array({10, 3}, wire::kSharded, rows.first, rows.count)});
    out.back().array.dtype = dtype;
    out.push_back({"whole/" + name, f32_array({5}, wire::kReplicated)});
    out.back().array.dtype = dtype;
  }
  out.push_back({"scalar", f32_array({}, wire::kReplicated)});
  out.back().array.dtype = 12;
  out.push_back({"empty", f32_array({0, 4}, wire::kSharded, 0, 0)});
  return out;
}

}  // namespace

Test(format, version_1_loads_at_any_world_size, .timeout = 60) {
  const std::string dir = std::string(GOLDEN) + "/v1";
  auto newest = newest_step(dir);
  cr_assert(newest.ok() && newest->step == 40u, "%s",
            newest.ok() && newest->skipped.size() ? newest->skipped[0].error.c_str() : "no step");
  auto reader = open_step(dir, 40);
  cr_assert(reader.ok(), "%s", reader.error().text.c_str());
  cr_expect((*reader)->check_whole().ok());
  for (std::uint32_t world : {1u, 2u, 3u, 5u}) {
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const std::string wrong = restore_model(**reader, rank, world, model_v1);
      cr_expect(wrong.empty(), "rank %u of %u: %s", rank, world, wrong.c_str());
    }
  }
}

Test(format, damage_in_version_1_is_found, .timeout = 60) {
  ScratchDir scratch;
  std::filesystem::copy(
      std::string(GOLDEN) + "/v1", scratch.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  flip_byte(step_path(scratch.path(), 40) + "/shard-00001-of-00003.h5", 5000);
  auto newest = newest_step(scratch.path());
  cr_assert(newest.ok() && !newest->step && newest->skipped.size() == 1);
  cr_expect(has(newest->skipped[0].error, "shard-00001-of-00003.h5 is damaged"), "%s",
            newest->skipped[0].error.c_str());
}
