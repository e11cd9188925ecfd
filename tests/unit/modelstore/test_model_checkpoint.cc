// SPDX-License-Identifier: Apache-2.0
// Steps of checkpoints as models, read in place.
#include <criterion/criterion.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/format/digest.h"
#include "modelstore/catalogue/catalogue.h"
#include "tests/unit/checkpoint/checkpoint_arrays.h"
#include "tests/unit/modelstore/loader_process.h"
#include "tests/unit/modelstore/model_files.h"
#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;
using checkpoint_test::along;
using checkpoint_test::bytes_of;
using checkpoint_test::f32_array;
using checkpoint_test::flip_byte;

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kStep = 30;

wire::Array typed(wire::Array array, std::uint32_t dtype) {
  array.dtype = dtype;
  return array;
}

wire::Array whole(wire::Array array) {
  array.first = 0;
  array.count = wire::axis_extent(array);
  return array;
}

/// What the ranks of a world register: several blocks, each axis, pieces of a replicated array,
/// arrays without bytes, opaque bytes, and what is no tensor.
std::vector<ArrayPart> registered(std::uint32_t rank, std::uint32_t world) {
  return {{"rows", along({3000, 1000}, 0, rank, world)},
          {"layer/columns", along({50, 40, 30}, 1, rank, world)},
          {"layer/innermost", typed(along({70, 90}, 1, rank, world), 2)},
          {"spread", f32_array({1000, 700}, wire::kReplicated)},
          {"scalar", typed(f32_array({}, wire::kReplicated), 8)},
          {"text", typed(f32_array({77}, wire::kReplicated), 16)},
          {"empty", f32_array({0, 5}, wire::kReplicated)},
          {"of-this-rank", f32_array({10}, wire::kPerRank)},
          {"value", typed(f32_array({3}, wire::kValue), 8)}};
}
const std::set<std::string> kNoTensors = {"of-this-rank", "value"};

/// A directory with a step in it, which may be damaged.
class SavedStep {
 public:
  explicit SavedStep(std::uint32_t world = 3, const checkpoint_test::Model& model = registered)
      : writer_(ops_, scratch_.path(), "job.0.1", Retention{5}) {
    cr_assert(writer_.take_ownership().ok());
    const auto saved = checkpoint_test::save_model(writer_, ops_, kStep, world, model);
    cr_assert(saved.ok(), "%s", saved.error().text.c_str());
    manifest_ = *read_manifest(path());
  }

  const std::string& directory() const { return scratch_.path(); }
  std::string path() const { return step_path(scratch_.path(), kStep); }
  std::string shard(std::uint32_t rank) const { return path() + "/" + manifest_.shards[rank].file; }
  std::string index(std::uint32_t rank) const {
    return path() + "/" + manifest_.shards[rank].index;
  }

  /// Changes an index, and makes the manifest one that has it.
  void change(std::uint32_t rank, const std::function<void(ShardIndex&)>& how) {
    ShardIndex index = *read_index(path(), manifest_, manifest_.shards[rank]);
    how(index);
    const std::string text = index.to_string();
    write_file(this->index(rank), text);
    manifest_.shards[rank].index_size = text.size();
    manifest_.shards[rank].index_xxh3 = bellows::digest_of(text);
    write_file(path() + "/manifest.json", manifest_.to_string());
  }

 private:
  ScratchDir scratch_;
  FileOps ops_;
  StoreWriter writer_;
  Manifest manifest_;
};

struct Loaded {
  LoaderMessage sized;
  LoaderMessage done;
  std::string memory;
};

Loaded load(const std::string& path) {
  LoaderProcess loader;
  loader.load(path);
  Loaded out;
  out.sized = loader.next();
  cr_assert(out.sized.word == LoaderWord::sized, "%s", out.sized.to_error().text.c_str());
  out.done = loader.fill(out.sized.bytes);
  cr_assert(out.done.word == LoaderWord::done, "%s", out.done.to_error().text.c_str());
  out.memory = loader.memory();
  return out;
}

/// What is said of a step that turns out to be bad when its blocks are read.
std::string failure(const std::string& path, const std::function<void()>& meanwhile = {}) {
  LoaderProcess loader;
  loader.load(path);
  const LoaderMessage sized = loader.next();
  cr_assert(sized.word == LoaderWord::sized, "%s", sized.to_error().text.c_str());
  if (meanwhile) meanwhile();
  const LoaderMessage done = loader.fill(sized.bytes);
  cr_assert(done.word == LoaderWord::failed);
  cr_expect(done.to_error().kind == ErrorKind::corrupt);
  return done.to_error().text;
}

void expect_registered(const Loaded& loaded) {
  catalogue::View view;
  cr_assert_null(
      view.open(loaded.memory.data() + loaded.sized.catalogue_at, loaded.sized.catalogue_bytes));
  std::uint32_t tensors = 0;
  for (ArrayPart part : registered(0, 1)) {
    const std::uint32_t i = view.find(part.name.data(), part.name.size());
    if (kNoTensors.contains(part.name)) {
      cr_expect_eq(i, view.count(), "%s is a tensor", part.name.c_str());
      continue;
    }
    ++tensors;
    cr_assert_lt(i, view.count(), "%s is missing", part.name.c_str());
    part.array = whole(part.array);
    const auto bytes = bytes_of(part, 0);
    const catalogue::Record& record = view.record(i);
    cr_expect_eq(record.type, part.array.dtype == 16 ? 9u : part.array.dtype);
    cr_expect(record.dims == part.array.ndims &&
              std::equal(record.shape, record.shape + record.dims, part.array.shape));
    cr_expect_eq(record.offset % (bytes.size() >= 65536 ? 4096 : 64), 0);
    cr_expect(record.bytes == bytes.size() && std::equal(bytes.begin(), bytes.end(),
                                                         reinterpret_cast<const unsigned char*>(
                                                             loaded.memory.data() + record.offset)),
              "%s has other bytes", part.name.c_str());
  }
  cr_expect_eq(view.count(), tensors);
}

}  // namespace

Test(model_checkpoint, puts_arrays_together_that_ranks_have_in_parts, .timeout = 60) {
  const SavedStep step;
  const Loaded loaded = load(step.path());
  expect_registered(loaded);
  cr_expect(loaded.done.digest == model_test::digest_of(loaded.memory));
}

Test(model_checkpoint, is_one_model_whatever_world_saved_it, .timeout = 60) {
  const SavedStep one(1), three(3), many(17);
  const Loaded of_one = load(one.path()), of_many = load(many.path());
  expect_registered(of_many);
  cr_expect(of_one.done.digest == load(three.path()).done.digest);
  cr_expect(of_one.done.digest == of_many.done.digest);
}

Test(model_checkpoint, reads_a_step_by_a_link, .timeout = 60) {
  const SavedStep step;
  expect_registered(load(step.directory() + "/latest"));
}

Test(model_checkpoint, holds_every_block_against_its_digest, .timeout = 100) {
  const SavedStep step;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    // In the middle of what the rank stored.
    const auto middle = static_cast<std::int64_t>(fs::file_size(step.shard(rank)) / 2);
    flip_byte(step.shard(rank), middle);
    const std::string text = failure(step.path());
    cr_expect(has(text, step.shard(rank)) && has(text, "do not match their digest"), "%s",
              text.c_str());
    flip_byte(step.shard(rank), middle);
  }
  expect_registered(load(step.path()));
}

Test(model_checkpoint, refuses_damaged_files, .timeout = 60) {
  const SavedStep step;
  const std::string manifest = step.path() + "/manifest.json";
  flip_byte(step.index(1), 40);
  cr_expect(has(refusal(step.path(), ErrorKind::corrupt), "another digest for it"));
  flip_byte(step.index(1), 40);
  flip_byte(manifest, 40);
  cr_expect(has(refusal(step.path(), ErrorKind::corrupt), manifest));
  flip_byte(manifest, 40);
  fs::resize_file(step.shard(2), 100);
  cr_expect(has(refusal(step.path(), ErrorKind::corrupt), "has 100 bytes, and its manifest says"));
  write_file(manifest, "{}");
  cr_expect(has(refusal(step.path(), ErrorKind::corrupt), "not a manifest"));
}

Test(model_checkpoint, refuses_indexes_that_contradict_each_other, .timeout = 60) {
  const auto refused = [](const std::function<void(ShardIndex&)>& how) {
    SavedStep step;
    step.change(2, how);
    return refusal(step.path(), ErrorKind::corrupt);
  };
  const auto array = [](ShardIndex& index, const std::string& name) -> wire::Array& {
    const auto found =
        std::find_if(index.arrays.begin(), index.arrays.end(),
                     [&](const StoredPart& stored) { return stored.part.name == name; });
    cr_assert(found != index.arrays.end(), "rank 2 has no part of %s", name.c_str());
    return found->part.array;
  };
  cr_expect(
      has(refused([&](ShardIndex& i) { --array(i, "rows").count; }), "no rank holds the row"));
  cr_expect(has(refused([&](ShardIndex& i) { --array(i, "rows").first; }), "another rank holds"));
  cr_expect(has(refused([&](ShardIndex& i) { array(i, "rows").dtype = 2; }), "another rank as"));
  cr_expect(has(refused([&](ShardIndex& i) { array(i, "rows").shape[0] = 9000; }), "another rank"));
  cr_expect(has(refused([](ShardIndex& i) { i.step = 31; }), "belongs to another shard"));
  cr_expect(has(refused([](ShardIndex& i) { i.arrays[0].offset = i.size; }), "past the end"));
  cr_expect(has(refused([](ShardIndex& i) { i.digests.pop_back(); }), "digests for"));
}

Test(model_checkpoint, says_what_is_no_model, .timeout = 60) {
  const auto only = [](const std::string& name, const wire::Array& array) {
    return [name, array](std::uint32_t, std::uint32_t) {
      return std::vector<ArrayPart>{{name, array}};
    };
  };
  const SavedStep complex(2, only("z", typed(f32_array({5}, wire::kReplicated), 15)));
  const std::string text = refusal(complex.path(), ErrorKind::corrupt);
  cr_expect(has(text, "array z is c128[5]") && has(text, "--except z"), "%s", text.c_str());
  const SavedStep own(2, only("x", f32_array({5}, wire::kPerRank)));
  cr_expect(has(refusal(own.path(), ErrorKind::corrupt), "no replicated or sharded array"));
  const SavedStep step;
  const std::string other = step_path(step.directory(), 31);
  fs::rename(step.path(), other);
  cr_expect(has(refusal(other, ErrorKind::corrupt), "the manifest of step 30"));
  const std::string open = step.directory() + "/.tmp-30-job.0.1";
  fs::rename(other, open);
  cr_expect(has(refusal(open, ErrorKind::invalid), "not committed"));
  fs::rename(open, step.directory() + "/weights");
  expect_registered(load(step.directory() + "/weights"));
}

Test(model_checkpoint, says_that_a_step_was_removed_meanwhile, .timeout = 60) {
  const SavedStep step;
  const std::string read = failure(step.path(), [&] { fs::remove_all(step.path()); });
  cr_expect(has(read, "was removed while it was read") && has(read, "bellows ckpt name"), "%s",
            read.c_str());
  const SavedStep half;
  fs::remove(half.shard(1));
  const std::string opened = refusal(half.path(), ErrorKind::not_found);
  cr_expect(has(opened, half.shard(1)) && has(opened, "is being removed"), "%s", opened.c_str());
}

Test(model_checkpoint, fails_where_there_is_no_memory, .timeout = 60) {
  const SavedStep step;
  LoaderProcess loader;
  loader.load(step.path());
  cr_assert(loader.next().word == LoaderWord::sized);
  const LoaderMessage done = loader.fill(4096);
  cr_expect(done.word == LoaderWord::failed && has(done.to_error().text, "too little memory"));
}

Test(model_checkpoint, is_lent_by_its_name, .timeout = 60) {
  const SavedStep step;
  ModelStore store;
  store.option("--model=trained=" + step.path() + ",tenant=a");
  store.start();
  const auto expected = [](const std::string& name) {
    for (const ArrayPart& part : registered(0, 1))
      if (part.name == name) {
        const auto bytes = bytes_of({name, whole(part.array)}, 0);
        return std::string(bytes.begin(), bytes.end());
      }
    return std::string();
  };
  const OpenModel model = store.open("trained");
  cr_assert(model.ok(), "%s", model.error().c_str());
  for (const std::string name : {"rows", "layer/columns", "spread"})
    cr_expect(model.data(name) == expected(name), "%s has other bytes", name.c_str());
  cr_expect_eq(store.open("trained", "b").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  ControlClient control(store);
  cr_expect_eq(control.add("b", "newest", step.directory() + "/latest"), "");
  const OpenModel added = store.open("newest", "b");
  cr_assert(added.ok(), "%s", added.error().c_str());
  cr_expect_eq(added.digest(), model.digest());
}
