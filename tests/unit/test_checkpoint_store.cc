// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include "checkpoint/step_reader.h"
#include "checkpoint/store_names.h"
#include "tests/unit/checkpoint_support.h"
#include "tests/unit/failing_ops.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

/// A directory with steps 10 and 20 in it.
struct TwoSteps {
  TwoSteps() : writer(ops, scratch.path(), "job.0.1", Retention{5}) {
    if (!writer.take_ownership() || !save_step(writer, ops, 10) || !save_step(writer, ops, 20)) {
      abort();
    }
  }
  std::string shard(std::uint64_t step, std::uint32_t rank) const {
    return step_path(scratch.path(), step) + "/" + shard_name(rank, 2);
  }
  std::string manifest(std::uint64_t step) const {
    return step_path(scratch.path(), step) + "/manifest.json";
  }

  ScratchDir scratch;
  FileOps ops;
  StoreWriter writer;
};

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

Test(store, a_link_is_no_shard, .timeout = 30) {
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
Test(store, a_step_that_cannot_be_read_now_is_not_passed_over, .timeout = 30) {
  TwoSteps steps;
  const std::string index = step_path(steps.scratch.path(), 20) + "/" + index_name(0, 2);
  for (const std::string& file : {steps.manifest(20), steps.shard(20, 1), index}) {
    const OpenBlock block(file);
    auto newest = newest_step(steps.scratch.path(), {.whole = false, .bad = {}});
    cr_assert(!newest.ok(), "%s: step %lu", file.c_str(), newest->step.value_or(0));
    cr_expect(newest.error().kind == ErrorKind::io);
    cr_expect(
        has(newest.error().text, "step 20 cannot be read now") && has(newest.error().text, file),
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

Test(store, keeps_the_last_steps_only, .timeout = 30) {
  ScratchDir scratch;
  FileOps ops;
  StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{2});
  cr_assert(writer.take_ownership().ok());
  for (std::uint64_t step = 1; step <= 5; ++step) cr_assert(save_step(writer, ops, step).ok());
  auto left = list_steps(scratch.path());
  cr_assert(left.ok());
  cr_expect(*left == (std::vector<std::uint64_t>{4, 5}));
  auto names = list_names(scratch.path());
  for (const std::string& name : *names) cr_expect(!name.starts_with(".tmp-"), "%s", name.c_str());
}

Test(store, keeps_every_nth_step_and_the_named_ones, .timeout = 60) {
  ScratchDir scratch;
  FileOps ops;
  StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{2, 4});
  cr_assert(writer.take_ownership().ok());
  for (std::uint64_t step = 1; step <= 9; ++step) {
    cr_assert(save_step(writer, ops, step).ok());
    if (step == 3) cr_assert(add_step_name(ops, scratch.path(), "best", 3).ok());
  }
  auto left = list_steps(scratch.path());
  cr_assert(left.ok());
  cr_expect(*left == (std::vector<std::uint64_t>{3, 4, 8, 9}));
}

Test(store, a_step_that_is_still_written_survives_the_commit_of_another, .timeout = 30) {
  TwoSteps steps;
  auto first = write_rank(steps.writer, steps.ops, 30, 0, 2, rows_of(0, 2, 10), 10);
  cr_assert(first.ok());
  // The younger of two saves in flight may be complete first.
  cr_assert(save_step(steps.writer, steps.ops, 40).ok());
  auto second = write_rank(steps.writer, steps.ops, 30, 1, 2, rows_of(1, 2, 10), 10);
  cr_assert(second.ok());
  auto done = steps.writer.commit(30, {*first, *second});
  cr_expect(done.ok(), "%s", done.error().text.c_str());
  cr_expect(verify_step(steps.scratch.path(), 30).ok());
}

Test(store, a_damaged_step_does_not_count_as_kept, .timeout = 30) {
  TwoSteps steps;
  flip_byte(steps.shard(20, 0), 3000);
  StoreWriter next(steps.ops, steps.scratch.path(), "job.0.2", Retention{2});
  cr_assert(next.take_ownership().ok());
  auto found = next.find({});
  cr_assert(found.ok() && found->step == 10u);
  cr_assert(save_step(next, steps.ops, 15).ok());
  cr_expect(verify_step(steps.scratch.path(), 10).ok());
  cr_expect(verify_step(steps.scratch.path(), 15).ok());
  auto newest = newest_step(steps.scratch.path());
  cr_expect(newest.ok() && newest->step == 15u);
  // Coming to the damaged step again replaces it.
  cr_assert(save_step(next, steps.ops, 20).ok());
  cr_expect(verify_step(steps.scratch.path(), 20).ok());
}

Test(store, an_older_attempt_is_fenced_off, .timeout = 30) {
  TwoSteps steps;
  StoreWriter next(steps.ops, steps.scratch.path(), "job.1.1", Retention{5});
  cr_assert(next.take_ownership().ok());
  auto status = save_step(steps.writer, steps.ops, 30);
  cr_assert(!status.ok());
  cr_expect(status.error().kind == ErrorKind::busy);
  cr_expect(has(why(status), "job.1.1") && has(why(status), "owner.json"), "%s",
            why(status).c_str());
  auto newest = newest_step(steps.scratch.path());
  cr_expect(newest.ok() && newest->step == 20u && newest->skipped.empty());
}

Test(store, the_next_attempt_collects_what_a_dead_one_left, .timeout = 30) {
  TwoSteps steps;
  const std::string left = steps.scratch.path() + "/.tmp-30-job.0.1";
  std::filesystem::create_directories(left);
  cr_assert(save_step(steps.writer, steps.ops, 25).ok());
  std::filesystem::create_directories(left);
  StoreWriter next(steps.ops, steps.scratch.path(), "job.0.2", Retention{5});
  cr_assert(next.take_ownership().ok());
  cr_expect(!std::filesystem::exists(left));
  // What this attempt writes already is not touched.
  cr_assert(next.begin_step(40).ok());
  cr_assert(next.take_ownership().ok());
  cr_expect(std::filesystem::exists(steps.scratch.path() + "/.tmp-40-job.0.2"));
}

Test(store, what_cannot_be_collected_stops_nobody, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::create_directories(steps.scratch.path() + "/.tmp-30-job.0.1");
  FailingOps ops;
  ops.fail_only = 6;
  StoreWriter next(ops, steps.scratch.path(), "job.0.2", Retention{5});
  cr_expect(next.take_ownership().ok());
  cr_expect(ops.find("rmtree", ".tmp-30-") == 6);
  cr_expect(save_step(next, ops, 30).ok());
}

Test(store, a_crash_at_any_call_leaves_a_good_step, .timeout = 120) {
  for (std::size_t n = 0;; ++n) {
    ScratchDir scratch;
    FailingOps ops;
    StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{1});
    cr_assert(writer.take_ownership().ok());
    cr_assert(save_step(writer, ops, 10).ok());
    ops.fail_from = ops.log.size() + n;
    const std::size_t begin = ops.log.size();
    const bool saved = save_step(writer, ops, 20).ok();
    const bool untouched = ops.log.size() - begin <= n;
    auto newest = newest_step(scratch.path());
    cr_assert(newest.ok() && newest->step.has_value(), "nothing is left after a crash at call %zu",
              n);
    cr_expect(newest->skipped.empty(), "a half-written step shows after a crash at call %zu", n);
    if (saved) cr_expect(*newest->step == 20);
    // The directory's fsync is the last call before the step is safe: it may show or not.
    const std::size_t renamed = ops.find("rename", "/step-00000000000000000020", begin);
    if (renamed == SIZE_MAX || renamed - begin >= n) cr_expect(*newest->step == 10);
    if (untouched) break;
  }
}

Test(store, one_failing_call_fails_the_save_and_the_next_save_works, .timeout = 120) {
  for (std::size_t n = 0;; ++n) {
    ScratchDir scratch;
    FailingOps ops;
    StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{2});
    cr_assert(writer.take_ownership().ok());
    cr_assert(save_step(writer, ops, 10).ok());
    const std::size_t begin = ops.log.size();
    ops.fail_only = begin + n;
    const auto status = save_step(writer, ops, 20);
    if (ops.log.size() <= begin + n) break;
    if (!status) cr_expect(has(why(status), "injected"), "%s", why(status).c_str());
    cr_assert(save_step(writer, ops, 30).ok(), "after a failure at call %zu", n);
    auto newest = newest_step(scratch.path());
    cr_expect(newest.ok() && newest->step == 30u);
  }
}

Test(store, commits_in_the_order_that_survives_power_loss, .timeout = 30) {
  ScratchDir scratch;
  FailingOps ops;
  StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{1});
  cr_assert(writer.take_ownership().ok());
  cr_assert(save_step(writer, ops, 10).ok());
  ops.log.clear();
  cr_assert(save_step(writer, ops, 20).ok());
  const std::vector<std::size_t> order = {
      ops.find("sync", "shard-00000-of-00002.h5"), ops.find("sync", "shard-00000-of-00002.index"),
      ops.find("sync", "shard-00001-of-00002.h5"), ops.find("sync", "shard-00001-of-00002.index"),
      ops.find("create", "manifest.json"),         ops.find("sync", "manifest.json"),
      ops.find("syncdir", ".tmp-20-job.0.1"),      ops.find("rename", "/step-00000000000000000020"),
      ops.find("syncdir", scratch.path()),         ops.find("rename", "/latest"),
      ops.find("rename", ".tmp-gone-10"),
  };
  // The directory's own fsync comes after the temporary directory's, whose name begins with it.
  const std::size_t renamed = order[7];
  std::size_t synced = SIZE_MAX;
  for (std::size_t i = 0; i < ops.log.size(); ++i) {
    if (ops.log[i] == "syncdir " + scratch.path()) {
      synced = i;
      break;
    }
  }
  cr_expect(synced != SIZE_MAX && synced > renamed && synced < order[9]);
  for (std::size_t i = 0; i < order.size(); ++i) {
    cr_expect(order[i] != SIZE_MAX, "step %zu of the commit does not happen", i);
    if (i > 0 && i != 8) {
      cr_expect(order[i] > order[i == 9 ? 7 : i - 1], "step %zu of the commit comes too early", i);
    }
  }
}

Test(store, rows_that_nobody_or_two_hold_are_refused, .timeout = 30) {
  TwoSteps steps;
  for (Rows second : {Rows{6, 4}, Rows{4, 6}, Rows{5, 4}}) {
    std::vector<ShardFile> shards;
    shards.push_back(*write_rank(steps.writer, steps.ops, 30, 0, 2, {0, 5}, 10));
    shards.push_back(*write_rank(steps.writer, steps.ops, 30, 1, 2, second, 10));
    auto done = steps.writer.commit(30, shards);
    cr_assert(!done.ok());
    cr_expect(done.error().kind == ErrorKind::invalid && has(done.error().text, "array x"), "%s",
              done.error().text.c_str());
  }
  auto newest = newest_step(steps.scratch.path());
  cr_expect(newest.ok() && newest->step == 20u && newest->skipped.empty());
}

Test(store, a_shard_changed_between_write_and_commit_is_refused, .timeout = 30) {
  TwoSteps steps;
  std::vector<ShardFile> shards;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    shards.push_back(*write_rank(steps.writer, steps.ops, 30, rank, 2, rows_of(rank, 2, 10), 10));
  }
  shards[1].file = "../../etc/passwd";
  auto named = steps.writer.commit(30, shards);
  cr_expect(!named.ok() && named.error().kind == ErrorKind::invalid);
  shards[1].file = shard_name(1, 2);
  std::filesystem::resize_file(steps.writer.shard_path(30, 1, 2), 10);
  auto cut = steps.writer.commit(30, shards);
  cr_expect(!cut.ok() && has(cut.error().text, "shard-00001"));
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

Test(store, bad_manifests_are_refused, .timeout = 30) {
  ShardFile shard;
  shard.file = shard_name(0, 1);
  shard.index = index_name(0, 1);
  shard.index_xxh3 = std::string(32, 'a');
  const Manifest good{7, 1, "a", 1.5, {shard}, 2};
  cr_assert(Manifest::parse(good.to_string()).ok());
  for (const char* text : {"", "{}", "[]", "null", "{\"format\":\"bellows-checkpoint/3\"}",
                           "{\"format\":\"bellows-checkpoint/1\",\"digest\":3}", "\xff\xfe"}) {
    auto parsed = Manifest::parse(text);
    cr_expect(!parsed.ok() && parsed.error().kind == ErrorKind::corrupt, "%s", text);
  }
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
