// SPDX-License-Identifier: Apache-2.0
// How a step comes into its directory: who may write, what a crash leaves, and which steps stay.
#include <criterion/criterion.h>

#include <fstream>

#include "checkpoint/format/manifest.h"
#include "checkpoint/protocol/attempt_name.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/checkpoint/failing_ops.h"
#include "tests/unit/checkpoint/two_steps.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

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

Test(store, what_is_stored_is_for_those_whom_the_site_allows, .timeout = 60) {
  for (const auto& [access, directories, files] : {std::tuple{Access::owner, 0700u, 0600u},
                                                   {Access::group, 0750u, 0640u},
                                                   {Access::all, 0755u, 0644u}}) {
    ScratchDir scratch;
    const std::string dir = scratch.path() + "/above/17";
    umask(022);
    FileOps ops(access);
    StoreWriter writer(ops, dir, "job.0.1", Retention{2});
    cr_assert(writer.take_ownership().ok());
    cr_assert(save_step(writer, ops, 10).ok());
    cr_assert(add_step_name(ops, dir, "best", 10).ok());
    std::size_t seen = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.path())) {
      const auto mode = static_cast<unsigned>(entry.symlink_status().permissions());
      const std::string name = entry.path().filename();
      const bool lock = name == ".lock" || name == ".in-use";
      if (entry.is_symlink()) continue;
      const unsigned wanted = entry.is_directory() ? directories : lock ? 0600u : files;
      cr_expect(mode == wanted, "%s: %o", entry.path().c_str(), mode);
      ++seen;
    }
    cr_expect(seen >= 12, "%zu", seen);
  }
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

// Whoever chose to begin looked at the owner some time before.
Test(store, only_the_owner_that_was_looked_at_is_fenced_off, .timeout = 60) {
  TwoSteps steps;
  StoreWriter first(steps.ops, steps.scratch.path(), "job.1.1", Retention{5});
  first.replace_only("job.0.1");
  cr_assert(first.take_ownership().ok());
  for (const char* looked_at : {"job.0.1", ""}) {
    StoreWriter late(steps.ops, steps.scratch.path(), "job.0.2", Retention{5});
    late.replace_only(looked_at);
    const auto refused = late.take_ownership();
    cr_assert(!refused && refused.error().kind == ErrorKind::busy, "%s", why(refused).c_str());
    cr_expect(has(why(refused), "job.1.1"), "%s", why(refused).c_str());
    cr_expect(!save_step(late, steps.ops, 30), "it would fence the owner off at its first commit");
  }
  cr_expect(save_step(first, steps.ops, 30).ok());
  std::ofstream(steps.scratch.path() + "/owner.json") << "damaged";
  StoreWriter next(steps.ops, steps.scratch.path(), "job.1.2", Retention{5});
  next.replace_only("job.1.1");
  cr_expect(next.take_ownership().ok() && save_step(next, steps.ops, 40).ok(), "nobody else's");
}

Test(store, no_two_runs_have_a_name, .timeout = 30) {
  const RunName run = RunName::make(17, 2, 1795261859);
  cr_expect(run.to_string() != RunName::make(17, 2, 1795261859).to_string());
  cr_expect(run.to_string().starts_with("17.2.1795261859."));
  cr_expect(run.attempt(3) == run.to_string() + ".3");
  cr_expect(RunName::of_attempt(run.attempt(3)) == run);
  for (const char* bad : {"", "17", "17.2.3", "x.0.1", "0.0.1", "4294967296.0.1", "17.0.1.ab",
                          "17.0.x.ab.1", "17.0.1.ab.x", "17.0.1.ab.1.1"})
    cr_expect(!RunName::of_attempt(bad), "%s", bad);
  const std::string program = program_attempt("17");
  cr_expect(!RunName::of_attempt(program) && program != program_attempt("17"), "%s",
            program.c_str());
  cr_expect(program_attempt("a/b.c").starts_with("a_b_c."));
}

// As on a disk that is full for a while.
Test(store, what_kept_an_attempt_from_owning_the_directory_may_pass, .timeout = 60) {
  for (std::size_t n = 0;; ++n) {
    TwoSteps steps;
    FailingOps ops;
    ops.fail_from = n;
    StoreWriter next(ops, steps.scratch.path(), "job.0.2", Retention{5});
    const bool owned = next.take_ownership().ok();
    const auto again = next.take_ownership();
    cr_expect(owned || has(why(again), "injected"), "%s", why(again).c_str());
    ops.fail_from = SIZE_MAX;
    const auto saved = save_step(next, ops, 30);
    cr_expect(saved.ok(), "after %zu calls: %s", n, why(saved).c_str());
    cr_expect(verify_step(steps.scratch.path(), 30).ok());
    cr_expect(!save_step(steps.writer, steps.ops, 40).ok(), "the one before is not fenced off");
    if (owned) break;
  }
}

// As bellows ckpt prune may hold it while the job begins.
Test(store, a_job_keeps_programs_away_from_its_next_commit_on, .timeout = 30) {
  ScratchDir scratch;
  FileOps ops;
  auto pruning = hold_store(scratch.path());
  cr_assert(pruning.ok());
  StoreWriter job(ops, scratch.path(), "job.0.1", Retention{5});
  cr_assert(job.take_ownership().ok());
  pruning->reset();
  cr_expect(hold_store(scratch.path()).ok());
  cr_assert(save_step(job, ops, 30).ok());
  cr_expect(!hold_store(scratch.path()).ok());
}

// Who has come meanwhile is newer.
Test(store, an_attempt_that_could_not_own_the_directory_fences_no_other_off, .timeout = 60) {
  for (std::size_t n = 0;; ++n) {
    TwoSteps steps;
    FailingOps ops;
    ops.fail_from = n;
    StoreWriter slow(ops, steps.scratch.path(), "job.0.2", Retention{5});
    if (slow.take_ownership().ok()) break;
    StoreWriter newer(steps.ops, steps.scratch.path(), "job.0.3", Retention{5});
    cr_assert(newer.take_ownership().ok());
    ops.fail_from = SIZE_MAX;
    const auto saved = save_step(slow, ops, 30);
    cr_expect(!saved && saved.error().kind == ErrorKind::busy && has(why(saved), "job.0.3"), "%s",
              why(saved).c_str());
    cr_expect(save_step(newer, steps.ops, 40).ok());
  }
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

// The step that was there before was acknowledged.
Test(store, a_crash_where_names_cannot_be_exchanged_loses_no_step, .timeout = 120) {
  for (std::size_t n = 0;; ++n) {
    ScratchDir scratch;
    FailingOps ops;
    ops.can_exchange = false;
    StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{2});
    cr_assert(writer.take_ownership().ok());
    cr_assert(save_step(writer, ops, 10).ok() && save_step(writer, ops, 20).ok());
    const std::size_t begin = ops.log.size();
    ops.fail_from = begin + n;
    (void)save_step(writer, ops, 20).ok();
    if (ops.log.size() - begin <= n) break;
    FileOps good;
    StoreWriter next(good, scratch.path(), "job.0.2", Retention{2});
    cr_assert(next.take_ownership().ok());
    auto newest = newest_step(scratch.path());
    cr_assert(newest.ok() && newest->step == 20u, "step 20 is lost by a crash at call %zu: %s", n,
              ops.log[begin + n].c_str());
    cr_expect(newest->skipped.empty());
    auto names = list_names(scratch.path());
    for (const std::string& name : *names)
      cr_expect(!name.starts_with(".tmp-"), "%s", name.c_str());
  }
}

// Both renamings of an exchange fail, and the program goes on.
Test(store, tidying_up_brings_a_step_back, .timeout = 30) {
  TwoSteps steps;
  std::filesystem::rename(step_path(steps.scratch.path(), 20),
                          steps.scratch.path() + "/.tmp-spare-20-job.0.1");
  cr_assert(save_step(steps.writer, steps.ops, 30).ok());
  cr_expect(verify_step(steps.scratch.path(), 20).ok());
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
