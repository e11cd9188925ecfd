// SPDX-License-Identifier: Apache-2.0
// What becomes of a rank's saves, with a host that only notes what it is told.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <new>
#include <string>
#include <utility>

#include "checkpoint/agent/rank_saves.h"
#include "tests/unit/checkpoint/checkpoint_arrays.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

class NotingHost : public SaveHost {
 public:
  void make_buffer(std::uint64_t step, std::uint64_t) override { note("make", step); }
  void make_spare(std::size_t index, std::uint64_t) override {
    if (no_memory) throw std::bad_alloc();
    note("spare", index);
  }
  void write_shard(Snapshot snapshot, std::shared_ptr<SharedMemory> buffer,
                   std::shared_ptr<const std::atomic<bool>> flag) override {
    cr_expect(snapshot.data == buffer->data());
    cancelled = std::move(flag);
    note("write", snapshot.step);
  }
  void remove_shard(std::uint64_t step, const Error&) override { note("remove", step); }
  void send_buffer(std::uint64_t step, std::size_t index, const SharedMemory&,
                   bool is_new) override {
    note(fmt::format("{}buffer {} for", is_new ? "new " : "", index), step);
  }
  void send_saved(std::uint64_t step) override { note("saved", step); }
  void send_failed(std::uint64_t step, const Error&) override { note("failed", step); }
  void say_shard(std::uint64_t step, const ShardFile&, std::uint64_t) override {
    note("shard", step);
  }
  void say_error(std::uint64_t step, const Error& error) override {
    why = error.text;
    note("error", step);
  }
  bool connected() const override { return is_connected; }
  bool keeps_earlier() const override { return keeps; }
  bool restore_holds_memory() const override { return restoring; }

  /// What was noted since the last call.
  std::string told() { return std::exchange(notes_, ""); }

  bool is_connected = true;
  bool keeps = true;  ///< so that no second buffer is made where a test is not about that
  bool restoring = false;
  bool no_memory = false;
  std::shared_ptr<const std::atomic<bool>> cancelled;
  std::string why;

 private:
  void note(const std::string& what, std::uint64_t number) {
    notes_ += fmt::format("{}{} {}", notes_.empty() ? "" : ", ", what, number);
  }
  std::string notes_;
};

const Error kAway{ErrorKind::io, "the disk is away"};

/// A rank of one array, and its agent's workers, which do what the test says.
struct Rank {
  Rank() {
    arrays.parts = {{"x", f32_array({100}, wire::kPerRank)}};
    arrays.expected = 1;
    saves.join(0, 2);
  }
  static std::shared_ptr<SharedMemory> memory() { return *SharedMemory::make(4096); }

  std::string begin(std::uint64_t step) {
    return saves.begin(step, arrays, host) ? host.told() : "broken";
  }
  std::string ready(std::uint64_t step, bool copied = true) {
    return saves.take_ready(step, copied, host) ? host.told() : "broken";
  }
  std::string made(std::uint64_t step) {
    saves.take_buffer(step, memory(), host);
    return host.told();
  }
  std::string not_made(std::uint64_t step) {
    saves.take_buffer(step, kAway, host);
    return host.told();
  }
  std::string written(std::uint64_t step) {
    auto copy = std::make_shared<ShardCopy>();
    copy->step = step;
    saves.take_shard(step, WrittenShard{{}, std::move(copy)}, host);
    return host.told();
  }
  std::string committed(std::uint64_t step) {
    saves.commit(step, host);
    return host.told();
  }
  std::string failed(std::uint64_t step) {
    saves.fail(step, kAway, host);
    return host.told();
  }
  std::string removed(std::uint64_t step) {
    saves.take_removed(step, kAway, host);
    return host.told();
  }
  /// As far as its shard is written.
  void save(std::uint64_t step) {
    if (has(begin(step), "make")) made(step);
    ready(step);
    written(step);
  }
  std::string copies() const {
    std::string out;
    saves.each_copy([&](const auto& copy) { out += fmt::format("{} ", copy->step); });
    return out;
  }

  NotingHost host;
  NamedArrays arrays;
  RankSaves saves;
};

// Criterion's macros keep pointers into what is gone by then.
void expect_told(const std::string& told, const char* wanted) {
  cr_expect(told == wanted, "'%s' instead of '%s'", told.c_str(), wanted);
}

}  // namespace

Test(rank_saves, go_from_a_buffer_to_the_commit, .timeout = 10) {
  Rank rank;
  expect_told(rank.begin(1), "make 1");
  expect_told(rank.made(1), "new buffer 0 for 1");
  cr_expect(rank.saves.unwritten() == 0);
  expect_told(rank.ready(1), "write 1");
  cr_expect(rank.saves.unwritten() == 1);
  expect_told(rank.written(1), "shard 1");
  cr_expect(rank.saves.unwritten() == 0 && !rank.saves.empty() && rank.copies() == "1 ");
  expect_told(rank.committed(1), "saved 1");
  cr_expect(rank.saves.empty() && rank.copies() == "1 ", "the copy serves the next restore");
  expect_told(rank.committed(1), "");
}

Test(rank_saves, wait_while_both_buffers_are_in_use, .timeout = 10) {
  Rank rank;
  rank.save(1);
  rank.save(2);
  expect_told(rank.begin(3), "");
  // Not over the newest that is stored.
  expect_told(rank.committed(1), "saved 1, buffer 0 for 3");
  cr_expect(rank.copies() == "2 ");
  expect_told(rank.committed(2), "saved 2");
  expect_told(rank.ready(3), "write 3");
}

Test(rank_saves, are_written_one_after_the_other, .timeout = 10) {
  Rank rank;
  rank.begin(1);
  rank.made(1);
  expect_told(rank.ready(1), "write 1");
  rank.begin(2);
  rank.made(2);
  expect_told(rank.ready(2), "");
  cr_expect(rank.saves.unwritten() == 2);
  expect_told(rank.written(1), "shard 1, write 2");
}

Test(rank_saves, that_break_the_order_are_the_rank_s_fault, .timeout = 10) {
  Rank rank;
  expect_told(rank.ready(1), "broken");
  rank.begin(5);
  expect_told(rank.begin(6), "broken");
  expect_told(rank.ready(5), "broken");
  rank.made(5);
  rank.ready(5);
  expect_told(rank.begin(5), "broken");
  rank.arrays.expected = 2;
  expect_told(rank.begin(6), "broken");
  cr_expect(!rank.saves.prepare(rank.arrays, rank.host));
}

Test(rank_saves, of_a_step_that_failed_elsewhere_leave_nothing, .timeout = 10) {
  Rank rank;
  rank.save(1);
  expect_told(rank.failed(1), "remove 1");
  expect_told(rank.removed(1), "failed 1");
  cr_expect(rank.saves.empty() && rank.copies().empty());
  // While it is written: told once the writer has let go of it.
  rank.begin(2);
  rank.ready(2);
  expect_told(rank.failed(2), "");
  cr_expect(rank.host.cancelled->load());
  expect_told(rank.written(2), "remove 2");
  expect_told(rank.removed(2), "failed 2");
  // While the rank copies: the buffer is the rank's until then.
  rank.begin(3);
  expect_told(rank.failed(3), "");
  expect_told(rank.ready(3), "failed 3");
  // Before it comes to the step, which then needs no buffer.
  expect_told(rank.failed(4), "");
  expect_told(rank.begin(4), "failed 4");
  // It passed this one without saving it.
  rank.failed(5);
  expect_told(rank.begin(6), "buffer 0 for 6");
}

Test(rank_saves, make_do_with_one_buffer, .timeout = 10) {
  Rank rank;
  expect_told(rank.begin(1), "make 1");
  expect_told(rank.not_made(1), "error 1");
  cr_expect(rank.host.why == kAway.text);
  expect_told(rank.failed(1), "remove 1");
  rank.removed(1);
  rank.save(2);
  expect_told(rank.begin(3), "make 3");
  expect_told(rank.not_made(3), "");
  expect_told(rank.committed(2), "saved 2, buffer 0 for 3");
}

Test(rank_saves, say_what_went_wrong_and_with_which_rank, .timeout = 10) {
  Rank rank;
  rank.begin(1);
  rank.made(1);
  expect_told(rank.ready(1, false), "error 1");
  cr_expect(has(rank.host.why, "rank 0 could not copy"));
  rank.failed(1);
  rank.removed(1);
  expect_told(rank.begin(2), "make 2");
  rank.made(2);
  rank.ready(2);
  rank.saves.take_shard(2, kAway, rank.host);
  expect_told(rank.host.told(), "error 2");
  cr_expect(rank.host.why == "rank 0: the disk is away", "%s", rank.host.why.c_str());
  rank.saves.refuse(3, kAway, rank.host);
  expect_told(rank.host.told(), "error 3");
}

Test(rank_saves, have_their_first_buffer_made_ahead, .timeout = 10) {
  Rank rank;
  const auto prepare = [&] {
    cr_assert(rank.saves.prepare(rank.arrays, rank.host));
    return rank.host.told();
  };
  rank.host.restoring = true;
  expect_told(prepare(), "");
  rank.host.restoring = false;
  rank.host.no_memory = true;
  expect_told(prepare(), "");
  rank.host.no_memory = false;
  expect_told(prepare(), "spare 0");
  expect_told(prepare(), "");
  // The rank is sooner: it gets what is being made.
  expect_told(rank.begin(1), "");
  rank.saves.take_spare(0, Rank::memory(), rank.host);
  expect_told(rank.host.told(), "new buffer 0 for 1");
  expect_told(prepare(), "");
}

Test(rank_saves, have_a_second_buffer_made_once_the_rank_goes_on, .timeout = 10) {
  Rank rank;
  rank.begin(1);
  rank.made(1);
  expect_told(rank.ready(1), "write 1");
  rank.written(1);
  rank.host.keeps = rank.host.is_connected = false;
  expect_told(rank.committed(1), "saved 1");
  rank.host.is_connected = true;
  expect_told(rank.begin(2), "buffer 0 for 2");
  expect_told(rank.ready(2), "write 2, spare 1");
  rank.saves.take_spare(1, Rank::memory(), rank.host);
  expect_told(rank.begin(3), "new buffer 1 for 3");
}

Test(rank_saves, are_cancelled_with_their_attempt, .timeout = 10) {
  Rank rank;
  rank.begin(1);
  rank.made(1);
  rank.ready(1);
  cr_expect(!rank.host.cancelled->load());
  rank.saves.cancel();
  cr_expect(rank.host.cancelled->load());
}
