// SPDX-License-Identifier: Apache-2.0
// An agent that outlives its ranks gives the next ones the newest committed step from memory, and
// never anything else.
#include <criterion/criterion.h>
#include <sys/mman.h>

#include <filesystem>

#include "checkpoint/client/handle.h"
#include "checkpoint/protocol/coordinator.h"
#include "tests/unit/checkpoint/agent_support.h"
#include "tests/unit/checkpoint/rank_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

constexpr int kWorld = 2;
constexpr int kDies = 7;

/// A rank has left.
bool is_end(const Event::Body& event) {
  const auto* rank = std::get_if<event::Rank>(&event);
  return rank && rank->state != event::Rank::State::joined;
}

/// An agent in a process of its own, and the launcher of its job.
class Job : public AgentPipes {
 public:
  Job() {
    agent_ = start_agent("n1", scratch_.path() + "/n1");
    cr_assert(await<event::Hello>().has_value());
  }
  ~Job() {
    for (pid_t pid : ranks_) kill(pid, SIGKILL);
    to_.reset();
    cr_expect(await_rank(agent_) == 0, "the agent did not end well");
  }

  /// Begins an attempt; the step that its ranks are to go on from.
  std::optional<std::uint64_t> begin() {
    const command::Hello hello = hello_for(dir(), ++attempt_, {{"n1", {0, 1}}});
    coordinator_ = Coordinator(kWorld);
    tell(hello);
    tell(command::Find{});
    auto found = await<event::Found>();
    cr_assert(found.has_value());
    tell(command::Restore{found->step});
    cr_assert(await<event::Ready>().has_value());
    memory = store = 0;
    return found->step;
  }
  void start(const RankMain& run) {
    for (int r = 0; r < kWorld; ++r) ranks_.push_back(start_rank(r, kWorld, run));
  }
  /// Decides about saves until `over`, which sees each event. `passes`: which decisions the agent
  /// is told.
  void serve(
      const std::function<bool(const Event::Body&)>& over,
      const std::function<bool(const Command&)>& passes = [](const Command&) { return true; }) {
    while (auto event = next()) {
      if (const auto* restored = std::get_if<event::Restored>(&event->body)) {
        memory += restored->from_memory;
        store += restored->from_store;
      }
      for (const Command& c : coordinator_.handle(event->body))
        if (passes(c)) tell(c);
      if (over(event->body)) return;
    }
    cr_assert(false, "the agent says nothing any more");
  }
  /// Until all ranks have left.
  void serve_all() {
    int left = kWorld;
    serve([&](const Event::Body& e) { return is_end(e) && --left == 0; });
  }
  std::vector<int> codes() {
    std::vector<int> out;
    for (pid_t pid : ranks_) out.push_back(await_rank(pid));
    ranks_.clear();
    return out;
  }
  /// Whatever is read from the step's files now is found to be damaged.
  void damage(std::uint64_t step) const {
    for (int r = 0; r < kWorld; ++r) {
      const std::string shard = step_path(dir(), step) + "/" + shard_name(r, kWorld);
      flip_byte(shard, static_cast<std::int64_t>(std::filesystem::file_size(shard)) - 1);
    }
  }
  std::string dir() const { return scratch_.path() + "/ck"; }
  std::vector<pid_t>& ranks() { return ranks_; }

  std::uint64_t memory = 0, store = 0;  ///< what restores of this attempt read

 private:
  ScratchDir scratch_;
  pid_t agent_ = 0;
  int attempt_ = 0;
  Coordinator coordinator_{kWorld};
  std::vector<pid_t> ranks_;
};

/// A rank that saves the steps, then does something, and dies without a word.
RankMain saves(std::uint64_t first, std::uint64_t last,
               const std::function<void(int rank, bellows_t*, Model&)>& then = {}) {
  return [=](int rank, bellows_t* b) {
    Model model(rank, kWorld);
    int rc = model.add_to(b);
    std::uint64_t step = 0;
    if (rc == 0) rc = bellows_restore(b, &step);
    for (step = first; rc >= 0 && step <= last; ++step) {
      model.fill(step);
      rc = bellows_save(b, step);
    }
    if (rc >= 0 && then) then(rank, b, model);
    return rc >= 0 ? kDies : 1;
  };
}

/// Each rank gets this step, bit for bit.
void expect_restored(Job& job, std::uint64_t wanted) {
  job.start([=](int rank, bellows_t* b) {
    Model model(rank, kWorld), expected(rank, kWorld);
    expected.fill(wanted);
    std::uint64_t step = 0;
    int rc = model.add_to(b);
    if (rc == 0) rc = bellows_restore(b, &step);
    if (rc == 0 && (step != wanted || !(model == expected))) rc = 50;
    return rc == 0 ? kDies : rc;
  });
  job.serve_all();
  cr_expect(all(job.codes(), kDies), "a rank did not get step %lu", wanted);
}

/// What has many blocks to itself: a sharded array, and a replicated one that both ranks store.
struct LargeModel {
  static constexpr std::uint64_t kMiB = 1 << 20;
  explicit LargeModel(int rank) : rank_(rank), own(9 * kMiB + 77), all(26 * kMiB) {}

  void fill(std::uint64_t step) {
    for (std::size_t i = 0; i < own.size(); ++i)
      own[i] = static_cast<char>(i * (step + rank_) >> 9);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * step >> 11);
  }
  int add_to(bellows_t* b) {
    const std::uint64_t whole[] = {2 * own.size()}, same[] = {all.size()};
    const int rc = bellows_register(b, "own", BELLOWS_U8, 1, whole, BELLOWS_SHARDED,
                                    rank_ * own.size(), own.size(), own.data());
    return rc ? rc
              : bellows_register(b, "all", BELLOWS_U8, 1, same, BELLOWS_REPLICATED, 0, 0,
                                 all.data());
  }

 private:
  const std::uint64_t rank_;

 public:
  std::vector<char> own, all;
};

RankMain saves_large(std::uint64_t step, const std::function<void(bellows_t*)>& then = {}) {
  return [=](int rank, bellows_t* b) {
    LargeModel model(rank);
    int rc = model.add_to(b);
    model.fill(step);
    if (rc == 0) rc = bellows_save(b, step);
    if (rc == 0 && then) then(b);
    return rc == 0 ? kDies : 1;
  };
}

void expect_large(Job& job, std::uint64_t wanted) {
  job.start([=](int rank, bellows_t* b) {
    LargeModel model(rank), expected(rank);
    expected.fill(wanted);
    std::uint64_t step = 0;
    int rc = model.add_to(b);
    if (rc == 0) rc = bellows_restore(b, &step);
    if (rc == 0 && step != wanted) rc = 50;
    if (rc == 0 && model.own != expected.own) rc = 51;
    if (rc == 0 && model.all != expected.all) rc = 52;
    return rc == 0 ? kDies : rc;
  });
  job.serve_all();
  cr_expect(all(job.codes(), kDies), "a rank did not get step %lu", wanted);
}

// An old rank that still lives, and goes on writing where its snapshots were.
void spoil(bellows_t* b, std::size_t stride) {
  for (const auto& buffer : b->buffers) {
    for (std::size_t i = 0; i < buffer.memory.size(); i += stride) buffer.memory.data()[i] ^= 0x55;
  }
}

void expect_all_from_files(const Job& job) {
  cr_expect(job.store > 0 && job.memory == 0, "%lu from memory, %lu from files", job.memory,
            job.store);
}

void expect_all_from_memory(const Job& job) {
  cr_expect(job.memory > 0 && job.store == 0, "%lu from memory, %lu from files", job.memory,
            job.store);
}

void run_and_die(Job& job, const RankMain& run) {
  job.start(run);
  job.serve_all();
  cr_expect(all(job.codes(), kDies));
}

}  // namespace

Test(memory_restore, ranks_that_died_get_it_from_the_agents_memory, .timeout = 60) {
  Job job;
  cr_assert(!job.begin());
  run_and_die(job, saves(1, 4));
  cr_assert(job.begin() == 4u);
  job.damage(4);
  expect_restored(job, 4);
  expect_all_from_memory(job);
  // What an attempt did not use up is there for the one after it.
  cr_assert(job.begin() == 4u);
  expect_restored(job, 4);
  expect_all_from_memory(job);
}

// As the Python package does.
Test(memory_restore, several_calls_get_it_all, .timeout = 60) {
  Job job;
  job.begin();
  run_and_die(job, saves_large(3));
  cr_assert(job.begin() == 3u);
  job.damage(3);
  job.start([](int rank, bellows_t* b) {
    LargeModel model(rank), expected(rank);
    expected.fill(3);
    int rc = model.add_to(b);
    for (int call = 0; rc == 0 && call < 3; ++call) {
      model.fill(1);
      std::uint64_t step = 0;
      rc = bellows_restore(b, &step);
      if (rc == 0 && (model.own != expected.own || model.all != expected.all)) rc = 50 + call;
    }
    return rc == 0 ? kDies : rc;
  });
  job.serve_all();
  cr_expect(all(job.codes(), kDies), "a call did not get the step");
  expect_all_from_memory(job);
}

// What the first has read in each of its calls is kept for the other.
Test(memory_restore, a_rank_that_comes_late_gets_what_the_first_has_read, .timeout = 60) {
  Job job;
  job.begin();
  const auto add = [](bellows_t* b, std::vector<char>* data) {
    const std::uint64_t shape[] = {data->size()};
    return bellows_register(b, "all", BELLOWS_U8, 1, shape, BELLOWS_REPLICATED, 0, 0, data->data());
  };
  job.start([=](int, bellows_t* b) {
    std::vector<char> data(10 << 20, 'x');
    const int rc = add(b, &data) | bellows_save(b, 1);
    return rc == 0 ? bellows_finalize(b, 1) : rc;
  });
  job.serve_all();
  cr_assert(all(job.codes(), 0));
  cr_assert(job.begin() == 1u);
  const std::string first_is_done = job.dir() + "/first-is-done";
  job.start([&](int rank, bellows_t* b) {
    std::vector<char> data(10 << 20);
    int rc = add(b, &data);
    if (rank == 1 && !eventually([&] { return access(first_is_done.c_str(), F_OK) == 0; })) rc = 60;
    for (int call = 0; rc == 0 && call < 2; ++call) {
      std::uint64_t step = 0;
      rc = bellows_restore(b, &step);
      if (rc == 0 && std::count(data.begin(), data.end(), 'x') != 10 << 20) rc = 50 + call;
      data.assign(data.size(), 0);
    }
    if (rank == 0) {
      for (int r = 0; r < kWorld; ++r)
        flip_byte(step_path(job.dir(), 1) + "/" + shard_name(r, kWorld), 3 << 20);
      close(open(first_is_done.c_str(), O_CREAT | O_CLOEXEC, 0600));
    }
    return rc == 0 ? kDies : rc;
  });
  job.serve_all();
  cr_expect(all(job.codes(), kDies), "a call did not get the step");
}

Test(memory_restore, goes_on_from_attempt_to_attempt, .timeout = 60) {
  Job job;
  for (std::uint64_t round = 0; round < 4; ++round) {
    cr_assert(job.begin().value_or(0) == 3 * round);
    run_and_die(job, saves(3 * round + 1, 3 * round + 3));
    if (round > 0) expect_all_from_memory(job);
  }
}

// As when a preemption takes the ranks while their last step is being stored.
Test(memory_restore, ranks_that_died_before_the_commit_get_it_too, .timeout = 60) {
  Job job;
  job.begin();
  job.start(saves(1, 1, [](int, bellows_t* b, Model& model) {
    model.fill(2);
    if (bellows_save_async(b, 2) != BELLOWS_OK) _exit(60);
    model.fill(3);
    if (bellows_save_async(b, 3) != BELLOWS_OK) _exit(61);
  }));
  // Nothing of 2 and 3 is committed before the agent has forgotten all ranks.
  std::vector<Command> late;
  int left = kWorld;
  job.serve([&](const Event::Body& e) { return is_end(e) && --left == 0; },
            [&](const Command& c) {
              const bool hold = step_of(c) > 1;
              if (hold) late.push_back(c);
              return !hold;
            });
  cr_expect(all(job.codes(), kDies));
  for (const Command& c : late) job.tell(c);
  job.serve([](const Event::Body& e) {
    const auto* committed = std::get_if<event::Committed>(&e);
    return committed && committed->step == 3;
  });
  cr_assert(job.begin() == 3u);
  job.damage(3);
  expect_restored(job, 3);
  expect_all_from_memory(job);
}

Test(memory_restore, a_changed_copy_is_not_used, .timeout = 60) {
  Job job;
  job.begin();
  run_and_die(job, saves(1, 2, [](int, bellows_t* b, Model&) { spoil(b, 1); }));
  cr_assert(job.begin() == 2u);
  expect_restored(job, 2);
  expect_all_from_files(job);
}

Test(memory_restore, ranks_copy_and_verify_large_arrays_themselves, .timeout = 60) {
  Job job;
  job.begin();
  run_and_die(job, saves_large(3));
  cr_assert(job.begin() == 3u);
  job.damage(3);
  expect_large(job, 3);
  expect_all_from_memory(job);
}

// One byte in each block; what a rank finds wrong comes from the files.
Test(memory_restore, a_changed_block_is_not_taken, .timeout = 60) {
  Job job;
  job.begin();
  run_and_die(job, saves_large(3, [](bellows_t* b) { spoil(b, 1 << 20); }));
  cr_assert(job.begin() == 3u);
  expect_large(job, 3);
  expect_all_from_files(job);
}

Test(memory_restore, what_others_read_cannot_be_mapped_for_writing, .timeout = 60) {
  auto memory = SharedMemory::make(8192);
  cr_assert(memory);
  (*memory)->refuse_writers();
  (*memory)->data()[0] = 1;
  auto reader = (*memory)->reader();
  cr_assert(reader);
  for (const int fd : {(*memory)->fd(), reader->get()}) {
    cr_expect(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    cr_expect(pwrite(fd, "x", 1, 0) < 0);
    auto* mapped = static_cast<char*>(mmap(nullptr, 8192, PROT_READ, MAP_SHARED, fd, 0));
    cr_assert(mapped != MAP_FAILED);
    cr_expect(mapped[0] == 1 && mprotect(mapped, 8192, PROT_READ | PROT_WRITE) < 0);
  }
}

Test(memory_restore, a_newer_step_that_was_not_committed_is_not_given, .timeout = 60) {
  Job job;
  job.begin();
  // Rank 0 gives step 3 whole; rank 1 dies before.
  const auto one_more = [](int rank, bellows_t* b, Model& model) {
    model.fill(3);
    if (rank == 0 && bellows_save_async(b, 3) != BELLOWS_OK) _exit(60);
  };
  run_and_die(job, saves(1, 2, one_more));
  cr_assert(job.begin() == 2u);
  job.damage(2);
  expect_restored(job, 2);
  expect_all_from_memory(job);
}

// A rank has two buffers, and two steps that are on their way need both.
Test(memory_restore, two_saves_in_flight_cost_the_committed_step_s_copy, .timeout = 60) {
  Job job;
  job.begin();
  run_and_die(job, saves(1, 1, [](int rank, bellows_t* b, Model& model) {
                for (const std::uint64_t step : {2, 3}) {
                  model.fill(step);
                  if (rank == 0 && bellows_save_async(b, step) != BELLOWS_OK) _exit(60);
                }
              }));
  cr_assert(job.begin() == 1u);
  expect_restored(job, 1);
  cr_expect(job.memory > 0 && job.store > 0, "%lu from memory, %lu from files", job.memory,
            job.store);
}

Test(memory_restore, a_rank_that_dies_while_it_copies_spoils_nothing, .timeout = 60) {
  Job job;
  job.begin();
  // Half of what it copies next is not there.
  const auto die_copying = [](int, bellows_t* b, Model& model) {
    const std::size_t pages = 1 << 20;
    const std::uint64_t shape[] = {2 * pages};
    auto* bytes = static_cast<char*>(
        mmap(nullptr, 2 * pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (bellows_register(b, "z", BELLOWS_U8, 1, shape, BELLOWS_PER_RANK, 0, 0, bytes)) _exit(60);
    model.fill(3);
    if (bellows_save(b, 3) || bellows_save(b, 4)) _exit(61);
    mprotect(bytes + pages, pages, PROT_NONE);
    signal(SIGSEGV, [](int) { _exit(kDies); });
    model.fill(5);
    (void)bellows_save(b, 5);
    _exit(62);
  };
  run_and_die(job, saves(1, 2, die_copying));
  cr_assert(job.begin() == 4u);
  job.damage(4);
  job.start([](int rank, bellows_t* b) {
    Model model(rank, kWorld), expected(rank, kWorld);
    expected.fill(3);
    std::uint64_t step = 0;
    int rc = model.add_to(b);
    if (rc == 0) rc = bellows_restore(b, &step);
    return rc == 0 && step == 4 && model == expected ? kDies : 50;
  });
  job.serve_all();
  cr_expect(all(job.codes(), kDies));
  expect_all_from_memory(job);
}
