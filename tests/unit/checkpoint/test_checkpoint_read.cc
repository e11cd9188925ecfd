// SPDX-License-Identifier: Apache-2.0
// What a directory of steps gives back: the newest whole one, whatever is damaged, and its arrays.
#include <criterion/criterion.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/format/digest.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/read/step_reader.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/checkpoint/two_steps.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

// Step 20 must be passed over for step 10, with a sentence that holds both texts.
void expect_fallback(const TwoSteps& steps, const std::string& file, const std::string& reason) {
  auto newest = newest_step(steps.scratch.path());
  cr_assert(newest.ok());
  cr_assert(newest->step.has_value());
  cr_expect(*newest->step == 10, "found step %lu", *newest->step);
  cr_assert(newest->skipped.size() == 1);
  const std::string& text = newest->skipped[0].error;
  cr_expect(newest->skipped[0].step == 20);
  cr_expect(has(text, file) && has(text, reason), "the sentence is: %s", text.c_str());
}

}  // namespace

Test(store, newest_step_is_the_newest, .timeout = 30) {
  TwoSteps steps;
  auto newest = newest_step(steps.scratch.path());
  cr_assert(newest.ok());
  cr_expect(newest->step == 20u && newest->skipped.empty());
  char target[64] = "";
  cr_assert(readlink((steps.scratch.path() + "/latest").c_str(), target, sizeof target - 1) > 0);
  cr_expect_str_eq(target, "step-00000000000000000020");
}

Test(store, a_missing_directory_has_no_step, .timeout = 30) {
  auto newest = newest_step("/tmp/bellows-test-there-is-no-such-directory");
  cr_assert(newest.ok());
  cr_expect(!newest->step.has_value() && newest->skipped.empty());
}

Test(store, every_flipped_byte_of_a_shard_is_found, .timeout = 60) {
  TwoSteps steps;
  const std::string shard = steps.shard(20, 1);
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(shard));
  for (std::int64_t at = 0; at < size; at += 97) {
    flip_byte(shard, at);
    expect_fallback(steps, shard, "damaged");
    flip_byte(shard, at);
  }
  cr_expect(verify_step(steps.scratch.path(), 20).ok());
}

// A search that leaves the blocks to the restore still sees all that needs no reading of them.
Test(store, a_light_search_reads_no_blocks, .timeout = 30) {
  TwoSteps steps;
  const Search light{.whole = false, .bad = {}};
  const auto newest = [&](const Search& search) {
    return newest_step(steps.scratch.path(), search)->step.value_or(0);
  };
  flip_byte(steps.shard(20, 1), 5000);
  cr_expect(newest(light) == 20 && newest({}) == 10);
  auto found = newest_step(steps.scratch.path(), {.whole = false, .bad = {{20, "known"}}});
  cr_assert(found.ok() && found->step == 10u && found->skipped.size() == 1);
  cr_expect(found->skipped[0].error == "known");
  flip_byte(steps.manifest(20), 100);
  cr_expect(newest(light) == 10);
  flip_byte(steps.manifest(20), 100);
  const std::string index = step_path(steps.scratch.path(), 20) + "/" + index_name(0, 2);
  flip_byte(index, 50);
  cr_expect(newest(light) == 10);
  flip_byte(index, 50);
  cr_expect(newest(light) == 20);
  std::filesystem::resize_file(steps.shard(20, 0), 100);
  cr_expect(newest(light) == 10);
}

Test(store, a_truncated_shard_is_found, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::resize_file(steps.shard(20, 0), 100);
  expect_fallback(steps, steps.shard(20, 0), "truncated");
}

Test(store, a_shard_that_grew_is_found, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::resize_file(steps.shard(20, 0), 1000000);
  expect_fallback(steps, steps.shard(20, 0), "too long");
}

Test(store, a_missing_shard_is_found, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::remove(steps.shard(20, 1));
  expect_fallback(steps, steps.shard(20, 1), "missing");
}

Test(store, a_link_is_not_a_shard, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::rename(steps.shard(20, 1), steps.scratch.path() + "/elsewhere");
  std::filesystem::create_symlink(steps.scratch.path() + "/elsewhere", steps.shard(20, 1));
  expect_fallback(steps, steps.shard(20, 1), "");
}

Test(store, something_else_in_a_file_s_place_is_found, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::remove(steps.manifest(20));
  std::filesystem::create_directory(steps.manifest(20));
  expect_fallback(steps, steps.manifest(20), "not a plain file");
  const std::string step = step_path(steps.scratch.path(), 20);
  std::filesystem::remove_all(step);
  cr_assert(replace_file(step, "no directory", 0600).ok());
  expect_fallback(steps, step, "missing");
}

// It may be the newest that was acknowledged.
Test(store, a_step_that_cannot_be_read_now_is_not_skipped, .timeout = 30) {
  TwoSteps steps;
  const std::string index = step_path(steps.scratch.path(), 20) + "/" + index_name(0, 2);
  for (const std::string& file : {steps.manifest(20), steps.shard(20, 1), index}) {
    const OpenBlock block(file);
    auto newest = newest_step(steps.scratch.path(), {.whole = false, .bad = {}});
    cr_assert(!newest.ok(), "%s: step %lu", file.c_str(), newest->step.value_or(0));
    cr_expect(newest.error().kind == ErrorKind::io);
    cr_expect(has(newest.error().text, "step 20 cannot be read at present") &&
                  has(newest.error().text, file),
              "%s", newest.error().text.c_str());
  }
  auto newest = newest_step(steps.scratch.path());
  cr_expect(newest.ok() && newest->step == 20u && newest->skipped.empty());
}

Test(store, a_failure_that_passes_changes_nothing, .timeout = 30) {
  for (const ErrorKind kind : {ErrorKind::io, ErrorKind::denied, ErrorKind::unavailable}) {
    int looks = 0;
    auto newest = choose_step({1, 2, 3}, [&](std::uint64_t step) {
      ++looks;
      if (step == 3) return Status(Error{ErrorKind::corrupt, "damaged"});
      return step == 2 && looks < 4 ? Status(Error{kind, "not now"}) : Status();
    });
    cr_assert(newest.ok() && newest->step == 2u);
    cr_expect(newest->skipped.size() == 1 && looks == 4, "%d looks", looks);
  }
}

Test(store, every_flipped_byte_of_a_manifest_is_found, .timeout = 60) {
  TwoSteps steps;
  const std::string path = steps.manifest(20);
  const auto text = read_file(path, 1 << 20);
  cr_assert(text.ok());
  for (std::size_t at = 0; at < text->size(); ++at) {
    // White space may change without changing what the manifest says.
    if (std::isspace(static_cast<unsigned char>((*text)[at]))) continue;
    flip_byte(path, static_cast<std::int64_t>(at));
    expect_fallback(steps, path, "");
    flip_byte(path, static_cast<std::int64_t>(at));
  }
}

Test(store, a_missing_or_empty_manifest_is_found, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::resize_file(steps.manifest(20), 0);
  expect_fallback(steps, steps.manifest(20), "not a manifest");
  std::filesystem::remove(steps.manifest(20));
  expect_fallback(steps, steps.manifest(20), "missing");
}

Test(store, a_manifest_of_another_step_is_found, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::copy_file(steps.manifest(10), steps.manifest(20),
                             std::filesystem::copy_options::overwrite_existing);
  expect_fallback(steps, steps.manifest(20), "step 10");
}

Test(store, any_type_and_shape_comes_back, .timeout = 60) {
  ScratchDir scratch;
  FileOps ops;
  StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{2});
  cr_assert(writer.take_ownership().ok());
  std::vector<unsigned char> data(4096);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 7);
  Snapshot snapshot;
  snapshot.step = 1;
  snapshot.data = data.data();
  wire::Placer placer;
  const std::vector<std::vector<std::uint64_t>> shapes = {
      {}, {0}, {5}, {2, 3}, {2, 0, 3}, {1, 2, 1, 2, 1, 2, 1, 2}};
  for (std::uint32_t dtype = 1; dtype <= 16; ++dtype) {
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      ArrayPart part{
          "t" + std::to_string(dtype) + "/s" + std::to_string(s),
          f32_array(shapes[s], s >= 2 && s % 2, 0, shapes[s].empty() ? 1 : shapes[s][0])};
      part.array.dtype = dtype;
      cr_assert(check_part(part).ok());
      std::uint64_t offset = 0;
      cr_assert(placer.place(part.bytes() % 1024, &offset));
      snapshot.parts.push_back(part);
      snapshot.offsets.push_back(offset % 2048);
    }
  }
  cr_assert(writer.begin_step(1).ok());
  std::atomic<bool> cancelled{false};
  auto shard = write_shard(ops, writer.shard_path(1, 0, 1), snapshot, cancelled);
  cr_assert(shard.ok(), "%s", shard.error().text.c_str());
  auto done = writer.commit(1, {*shard});
  cr_assert(done.ok(), "%s", done.error().text.c_str());
  auto manifest = verify_step(scratch.path(), 1);
  cr_assert(manifest.ok());
  auto reader = StepReader::open(step_path(scratch.path(), 1), *manifest);
  cr_assert(reader.ok(), "%s", reader.error().text.c_str());
  std::vector<unsigned char> back(data.size());
  const auto read = (*reader)->read({0, snapshot.parts, snapshot.offsets, back.data()});
  cr_assert(read.ok() && read->empty(), "%s", read.ok() ? "kept" : read.error().text.c_str());
  for (std::size_t i = 0; i < snapshot.parts.size(); ++i) {
    cr_expect(memcmp(back.data() + snapshot.offsets[i], data.data() + snapshot.offsets[i],
                     snapshot.parts[i].bytes()) == 0,
              "%s", snapshot.parts[i].name.c_str());
  }
}

Test(store, another_type_or_shape_is_a_sentence, .timeout = 30) {
  TwoSteps steps;
  auto manifest = verify_step(steps.scratch.path(), 20);
  auto reader = StepReader::open(step_path(steps.scratch.path(), 20), *manifest);
  cr_assert(reader.ok());
  std::vector<unsigned char> room(4096);
  const auto refused = [&](const ArrayPart& part, const char* words) {
    auto read = (*reader)->read({0, {part}, {0}, room.data()});
    cr_assert(!read.ok());
    cr_expect(has(read.error().text, words), "%s", read.error().text.c_str());
  };
  refused({"y", f32_array({10}, 1, 0, 10)}, "step 20 holds no array y");
  refused({"x", f32_array({11}, 1, 0, 11)},
          "array x is f32[10] sharded in step 20, the program "
          "registered f32[11] sharded");
  refused({"x", f32_array({10}, 0)}, "registered f32[10]");
  ArrayPart other{"x", f32_array({10}, 1, 0, 10)};
  other.array.dtype = 4;
  refused(other, "f64[10]");
}

// Libraries differ in the last digits of other numbers, and the digest is of the text.
Test(store, a_step_s_time_is_in_quarters, .timeout = 30) {
  TwoSteps steps;
  for (const std::uint64_t step : {10, 20}) {
    auto manifest = read_manifest(step_path(steps.scratch.path(), step));
    cr_assert(manifest.ok());
    cr_expect(std::fmod(manifest->time, 0.25) == 0, "%.6f", manifest->time);
    cr_expect(std::abs(manifest->time - static_cast<double>(time(nullptr))) < 30);
  }
}

Test(store, bad_manifests_are_refused, .timeout = 30) {
  ShardFile shard;
  shard.file = shard_name(0, 1);
  shard.index = index_name(0, 1);
  shard.index_xxh3 = std::string(32, 'a');
  const Manifest good{7, 1, "a", 1.5, {shard}};
  cr_assert(Manifest::parse(good.to_string()).ok());
  for (const char* text : {"", "{}", "[]", "null", "{\"format\":\"bellows-checkpoint/3\"}",
                           "{\"format\":\"bellows-checkpoint/1\",\"digest\":3}", "\xff\xfe"}) {
    auto parsed = Manifest::parse(text);
    cr_expect(!parsed.ok() && parsed.error().kind == ErrorKind::corrupt, "%s", text);
  }
  // A digest that fits does not make other kinds of numbers good.
  const auto other = [&](const char* key, const nlohmann::json& value) {
    auto text = nlohmann::json::parse(good.to_string());
    text.erase("digest");
    (text.contains(key) ? text : text["shards"][0])[key] = value;
    text["digest"] = digest_of(text.dump());
    return Manifest::parse(text.dump()).ok();
  };
  cr_expect(other("step", 7) && !other("step", 7.0) && !other("step", -1));
  cr_expect(!other("world", (std::uint64_t{1} << 32) + 1) &&
            !other("rank", std::uint64_t{1} << 32));
  cr_expect(other("size", 0) && !other("size", -1) && !other("index_size", 0.0));
  const auto refused = [](Manifest m) { return !Manifest::parse(m.to_string()).ok(); };
  Manifest m = good;
  m.shards[0].file = "../x";
  cr_expect(refused(m));
  m = good;
  m.shards[0].index_xxh3 = "short";
  cr_expect(refused(m));
  m = good;
  m.shards[0].index = m.shards[0].file;
  cr_expect(refused(m));
  m = good;
  m.world = 2;
  cr_expect(refused(m));
  m = good;
  m.world = 0;
  m.shards.clear();
  cr_expect(refused(m));
}
