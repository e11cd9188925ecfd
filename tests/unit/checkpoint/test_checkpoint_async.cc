// SPDX-License-Identifier: Apache-2.0
// Saves that go on while the program does: what is saved, who waits, who hears of errors.
#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/include/bellows.h"
#include "checkpoint/store/store.h"
#include "checkpoint/wire/wire.h"
#include "common/plain/packet.h"
#include "tests/unit/checkpoint/rank_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

int add_bytes(bellows_t* b, std::vector<unsigned char>* data, const char* name = "x") {
  bellows_array array = BELLOWS_ARRAY_INIT;
  const std::uint64_t shape[] = {data->size()};
  array.name = name;
  array.dtype = BELLOWS_U8;
  array.ndims = 1;
  array.shape = shape;
  array.data = data->data();
  return bellows_register_array(b, &array);
}

bool is_full_of(const std::vector<unsigned char>& data, unsigned char value) {
  return std::all_of(data.begin(), data.end(), [value](unsigned char c) { return c == value; });
}

std::vector<std::uint64_t> steps_in(const Place& place) {
  auto steps = list_steps(place.checkpoints());
  return steps ? *steps : std::vector<std::uint64_t>();
}

std::size_t descriptors_of(pid_t pid) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(("/proc/" + std::to_string(pid) + "/fd").c_str()),
                                          closedir);
  std::size_t n = 0;
  while (dir && readdir(dir.get())) ++n;
  return n;
}

/// Others than files, which an agent has open for moments only.
std::size_t sockets_of(pid_t pid) {
  std::size_t n = 0;
  std::error_code failed, ignored;
  for (std::filesystem::directory_iterator at("/proc/" + std::to_string(pid) + "/fd", failed), end;
       !failed && at != end; at.increment(failed))
    if (std::filesystem::read_symlink(at->path(), ignored).string().starts_with("socket:")) ++n;
  return n;
}

bool is_stopped(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("State:")) return line.find('T') != std::string::npos;
  }
  return false;
}

std::uint64_t resident_kb(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6));
  }
  return 0;
}

}  // namespace

Test(async, arrays_may_change_at_once, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    std::vector<unsigned char> data(3 << 20);
    if (add_bytes(b, &data) != 0) return 1;
    for (std::uint64_t step = 1; step <= 20; ++step) {
      memset(data.data(), static_cast<int>(step), data.size());
      if (bellows_save_async(b, step) != BELLOWS_OK) return 2;
      memset(data.data(), 0xee, data.size());
    }
    if (bellows_wait(b) != BELLOWS_OK) return 3;
    std::uint64_t step = 0;
    if (bellows_saved_step(b, &step) != BELLOWS_OK || step != 20) return 4;
    if (bellows_restore(b, &step) != BELLOWS_OK || step != 20) return 5;
    if (!is_full_of(data, 20)) return 6;
    return bellows_finalize(b, rank == 0) == BELLOWS_OK ? 0 : 7;
  });
  cr_expect(all(codes, 0));
  cr_expect(steps_in(place) == (std::vector<std::uint64_t>{18, 19, 20}));
}

Test(async, finalize_waits_for_what_is_in_flight, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(1 << 20, 7);
    add_bytes(b, &data);
    if (bellows_save_async(b, 1) != 0 || bellows_save_async(b, 2) != 0) return 1;
    if (bellows_finalize(b, 1) != BELLOWS_OK) return 2;
    const auto steps = list_steps(place.checkpoints());
    return steps.ok() && *steps == std::vector<std::uint64_t>{1, 2} ? 0 : 3;
  });
  cr_expect(all(codes, 0));
}

Test(async, a_rank_killed_right_after_it_returns_loses_nothing, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    std::vector<unsigned char> data(8 << 20);
    add_bytes(b, &data);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      memset(data.data(), static_cast<int>(step), data.size());
      if (bellows_save_async(b, step) != BELLOWS_OK) return 1;
    }
    if (rank == 1) raise(SIGKILL);
    _exit(bellows_wait(b) == BELLOWS_OK ? 0 : 2);
  });
  cr_expect(codes == (std::vector<int>{0, 200 + SIGKILL}));
  eventually([&] { return !place.agent_lives(); });
  const auto restored = run_ranks(1, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(8 << 20);
    add_bytes(b, &data);
    std::uint64_t step = 0;
    if (bellows_restore(b, &step) != BELLOWS_OK || step != 2) return 1;
    return is_full_of(data, 2) ? 0 : 2;
  });
  cr_expect(all(restored, 0));
}

Test(async, all_ranks_killed_right_after_lose_nothing, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(8 << 20, 5);
    add_bytes(b, &data);
    if (bellows_save_async(b, 5) != BELLOWS_OK || bellows_save_async(b, 6) != BELLOWS_OK) return 1;
    raise(SIGKILL);
    return 2;
  });
  cr_expect(all(codes, 200 + SIGKILL));
  cr_expect(eventually([&] { return !place.agent_lives(); }));
  auto newest = newest_step(place.checkpoints());
  cr_expect(newest.ok() && newest->step == 6u && newest->skipped.empty());
}

// It may have come before the end of the other, as when both have one parent that was killed: what
// that one gave last is not committed yet.
Test(async, a_program_that_follows_a_killed_one_waits_until_its_agent_has_gone, .timeout = 60) {
  Place place;
  const std::string joined = place.scratch.path() + "/joined";
  const pid_t first = start_rank(0, 1, [&](int, bellows_t*) {
    std::ofstream(joined) << "yes";
    return pause();
  });
  cr_assert(eventually([&] { return access(joined.c_str(), F_OK) == 0 && place.agent() > 0; }));
  const pid_t agent = place.agent();
  const std::size_t sockets = sockets_of(agent);
  plain::Handle second;
  cr_assert_eq(plain::connect_to(place.socket().c_str(), &second), 0);
  cr_assert(eventually([&] { return sockets_of(agent) > sockets; }));
  kill(agent, SIGSTOP);
  cr_assert(eventually([&] { return is_stopped(agent); }));
  const std::string directory = std::filesystem::canonical(place.checkpoints());
  wire::Head head;
  head.op = wire::Op::hello;
  wire::Hello hello = {0, 1};
  head.length = static_cast<std::uint32_t>(sizeof hello + directory.size());
  const iovec asked[] = {{&head, sizeof head},
                         {&hello, sizeof hello},
                         {const_cast<char*>(directory.data()), directory.size()}};
  cr_assert_eq(plain::send_packet(second.get(), asked, 3, -1, 0), 0);
  kill(first, SIGKILL);
  cr_assert_eq(await_rank(first), 200 + SIGKILL);
  kill(agent, SIGCONT);
  char text[wire::kMostMessage];
  const iovec answer[] = {{&head, sizeof head}, {text, sizeof text}};
  std::size_t got = 0;
  cr_assert_eq(plain::receive_packet(second.get(), answer, 2, &got, nullptr, 0), 0);
  cr_expect(head.op == wire::Op::failed && head.value == wire::Failure::try_again, "%u",
            static_cast<unsigned>(head.op));
}

// With both buffers in use the third save waits; it is not left out, and none is overwritten.
Test(async, the_third_save_waits_for_the_first, .timeout = 60) {
  Place place;
  ScratchDir out;
  const auto mark = [&](const char* name) { std::ofstream(out.path() + "/" + name) << "here"; };
  const auto marked = [&](const char* name) {
    return access((out.path() + "/" + name).c_str(), F_OK) == 0;
  };
  // Rank 1 comes later, so nothing of rank 0's can be committed.
  const pid_t fast = start_rank(0, 2, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(1 << 16);
    add_bytes(b, &data);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      memset(data.data(), static_cast<int>(step), data.size());
      if (bellows_save_async(b, step) != BELLOWS_OK) return 1;
      mark(std::to_string(step).c_str());
    }
    std::uint64_t saved = 0;
    if (bellows_wait(b) != BELLOWS_OK) return 2;
    if (bellows_saved_step(b, &saved) != BELLOWS_OK || saved != 3) return 3;
    return bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 4;
  });
  cr_assert(eventually([&] { return marked("2"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  cr_expect(!marked("3"), "the third save did not wait");
  const pid_t slow = start_rank(1, 2, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(1 << 16);
    add_bytes(b, &data);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      memset(data.data(), static_cast<int>(step), data.size());
      if (bellows_save_async(b, step) != BELLOWS_OK) return 1;
    }
    return bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 4;
  });
  cr_expect(await_rank(fast) == 0);
  cr_expect(await_rank(slow) == 0);
  cr_expect(steps_in(place) == (std::vector<std::uint64_t>{1, 2, 3}));
  for (std::uint64_t step = 1; step <= 3; ++step) {
    cr_expect(verify_step(place.checkpoints(), step).ok());
  }
}

Test(async, an_error_reaches_the_next_call_once, .timeout = 60) {
  Place place;
  // The mount is this process's alone and goes with it.
  if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) {
    cr_skip_test("needs the right to mount a small file system");
  }
  const std::string dir = place.checkpoints();
  mkdir(dir.c_str(), 0700);
  cr_assert(mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=2m") == 0);
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    std::vector<unsigned char> data(4 << 20, 1), small(1000, 1);
    int told = 0;
    // Counts a result of a call: good, or that the step has failed.
    const auto take = [&](int rc, std::uint64_t step) {
      std::uint64_t failed = 0;
      const bool full = rc == BELLOWS_ERR_IO && has(bellows_error(b), "No space left on device") &&
                        bellows_error_step(b, &failed) == 1 && failed == step;
      told += full;
      return rc == 0 || full;
    };
    if (add_bytes(b, &small) != 0 || bellows_save(b, 1) != 0) return 1;
    // A slow rank may hear of it as soon as it begins; it hears of it once.
    if (add_bytes(b, &data) != 0 || !take(bellows_save_async(b, 2), 2)) return 2;
    if (!take(bellows_wait(b), 2) || bellows_wait(b) != 0 || told != 1) return 3;
    // A save that begins before the failure is told is saved all the same.
    if (!take(bellows_save_async(b, 3), 3)) return 4;
    usleep(rank * 50000u);
    if (add_bytes(b, &small) != 0 || !take(bellows_save_async(b, 4), 3)) return 5;
    if (!take(bellows_wait(b), 3) || bellows_wait(b) != 0 || told != 2) return 6;
    std::uint64_t saved = 0;
    if (bellows_saved_step(b, &saved) != 0 || saved != 4) return 9;
    if (add_bytes(b, &data) != 0) return 10;
    const int rc = bellows_save_async(b, 5);
    if (!take(rc, 5)) return 11;
    return bellows_finalize(b, 1) == (rc == 0 ? BELLOWS_ERR_IO : BELLOWS_OK) ? 0 : 12;
  });
  cr_expect(all(codes, 0));
  eventually([&] { return !place.agent_lives(); });
  for (const std::uint64_t step : {1, 4}) {
    auto verified = verify_step(dir, step);
    cr_expect(verified.ok(), "%s", verified.ok() ? "" : verified.error().text.c_str());
  }
  cr_expect(steps_in(place).size() == 2);
  umount(dir.c_str());
}

Test(async, a_disk_that_was_full_at_the_start_is_tried_again, .timeout = 60) {
  Place place;
  if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) {
    cr_skip_test("needs the right to mount a small file system");
  }
  const std::string dir = place.checkpoints(), filler = dir + "/filler";
  mkdir(dir.c_str(), 0700);
  cr_assert(mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=1m") == 0);
  const int full = open(filler.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  cr_assert(posix_fallocate(full, 0, 1 << 20) == 0);
  close(full);
  const auto codes = run_ranks(1, [&](int, bellows_t* b) {
    std::vector<unsigned char> small(1000, 1);
    std::uint64_t step = 0;
    const auto no_space = [&](int rc) {
      return rc == BELLOWS_ERR_IO && has(bellows_error(b), "No space left on device");
    };
    if (add_bytes(b, &small) != 0 || !no_space(bellows_restore(b, &step))) return 1;
    if (!no_space(bellows_save(b, 1))) return 2;
    if (unlink(filler.c_str()) != 0 || bellows_save(b, 2) != 0) return 3;
    small[0] = 2;
    if (bellows_restore(b, &step) != 0 || step != 2 || small[0] != 1) return 4;
    return bellows_finalize(b, 1);
  });
  cr_expect(all(codes, 0));
  eventually([&] { return !place.agent_lives(); });
  cr_expect(steps_in(place) == (std::vector<std::uint64_t>{2}));
  umount(dir.c_str());
}

Test(async, steps_ascend, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(1, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(100, 1);
    add_bytes(b, &data);
    std::uint64_t step = 0;
    if (bellows_saved_step(b, &step) != BELLOWS_NO_CHECKPOINT) return 1;
    if (bellows_save_async(b, 5) != 0) return 2;
    if (bellows_save_async(b, 5) != BELLOWS_ERR_INVALID) return 3;
    if (!has(bellows_error(b), "step 5 cannot be saved after step 5")) return 4;
    if (bellows_error_step(b, &step) != 0 || bellows_error_step(b, nullptr) >= 0) return 4;
    if (bellows_save(b, 4) != BELLOWS_ERR_INVALID || bellows_save(b, 5) != BELLOWS_ERR_INVALID) {
      return 5;
    }
    if (bellows_wait(b) != 0 || bellows_save_async(b, 5) != BELLOWS_ERR_INVALID) return 6;
    if (bellows_save(b, 5) != 0 || bellows_save(b, 6) != 0) return 7;
    return bellows_finalize(b, 1) == 0 ? 0 : 8;
  });
  cr_expect(all(codes, 0));
}

Test(async, a_signal_stops_ranks_with_saves_in_flight, .timeout = 60) {
  Place place;
  ScratchDir out;
  const auto run = [&](int rank, bellows_t* b) {
    std::vector<unsigned char> data(1 << 20);
    add_bytes(b, &data);
    for (std::uint64_t step = 1;; ++step) {
      memset(data.data(), static_cast<int>(step), data.size());
      const int stop = bellows_should_stop(b, step);
      if (stop < 0) return 1;
      if (stop == 1) {
        // Rank 0 waits for its last save and the others leave it to finalize.
        const int rc = rank == 0 ? bellows_save(b, step) : bellows_save_async(b, step);
        if (rc != BELLOWS_OK) return 2;
        return bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 3;
      }
      if (bellows_save_async(b, step) != BELLOWS_OK) return 4;
      if (step == 20) std::ofstream(out.path() + "/" + std::to_string(rank)) << "here";
    }
  };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) pids.push_back(start_rank(rank, 3, run));
  cr_assert(eventually(
      [&] {
        return place.agent_lives() && access((out.path() + "/0").c_str(), F_OK) == 0 &&
               access((out.path() + "/1").c_str(), F_OK) == 0 &&
               access((out.path() + "/2").c_str(), F_OK) == 0;
      },
      30000));
  cr_assert(kill(place.agent(), SIGUSR1) == 0);
  for (pid_t pid : pids) cr_expect(await_rank(pid) == 0);
  auto newest = newest_step(place.checkpoints());
  cr_expect(newest.ok() && newest->step && *newest->step >= 20 && newest->skipped.empty());
}

Test(async, a_killed_agent_is_an_error_not_a_hang, .timeout = 60) {
  Place place;
  ScratchDir out;
  const pid_t rank0 = start_rank(0, 2, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(1 << 16);
    add_bytes(b, &data);
    if (bellows_save_async(b, 1) != 0) return 1;
    std::ofstream(out.path() + "/here") << "here";
    const int rc = bellows_wait(b);
    return rc == BELLOWS_ERR_AGENT && has(bellows_error(b), "lost the checkpoint agent") ? 0 : 2;
  });
  cr_assert(eventually(
      [&] { return place.agent_lives() && access((out.path() + "/here").c_str(), F_OK) == 0; }));
  cr_assert(kill(place.agent(), SIGKILL) == 0);
  cr_expect(await_rank(rank0) == 0);
}

// One rank finds no room for the agent's buffer: its step fails for all, and the next one doesn't.
Test(async, a_rank_without_memory_fails_the_step_and_continues, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    std::vector<unsigned char> data(64 << 20, 1);
    const std::uint64_t shape[] = {2 * data.size()};
    if (bellows_register(b, "x", BELLOWS_U8, 1, shape, BELLOWS_SHARDED,
                         static_cast<std::uint64_t>(rank) * data.size(), data.size(),
                         data.data()) != 0) {
      return 1;
    }
    rlimit before, little;
    getrlimit(RLIMIT_AS, &before);
    little = before;
    little.rlim_cur = 32 << 20;
    if (rank == 1) setrlimit(RLIMIT_AS, &little);
    const int rc = bellows_save(b, 1);
    const std::string why = bellows_error(b);
    setrlimit(RLIMIT_AS, &before);
    if (rank == 1 && (rc != BELLOWS_ERR_MEMORY || !has(why, "cannot map the snapshot buffer"))) {
      return 2;
    }
    if (rank == 0 && (rc != BELLOWS_ERR_IO || !has(why, "rank 1 could not copy"))) return 3;
    if (bellows_wait(b) != 0 || bellows_save(b, 2) != 0) return 4;
    return bellows_finalize(b, 1) == 0 ? 0 : 5;
  });
  cr_expect(all(codes, 0));
  cr_expect(steps_in(place) == (std::vector<std::uint64_t>{2}));
}

// The buffer made ahead can't be mapped: that fails neither the restore nor the agent.
Test(async, a_rank_without_memory_restores_and_continues, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(1, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(64 << 20, 1);
    if (add_bytes(b, &data) != 0) return 1;
    rlimit before, little;
    getrlimit(RLIMIT_AS, &before);
    little = before;
    little.rlim_cur = 32 << 20;
    setrlimit(RLIMIT_AS, &little);
    std::uint64_t step = 0;
    const int rc = bellows_restore(b, &step);
    setrlimit(RLIMIT_AS, &before);
    if (rc != BELLOWS_NO_CHECKPOINT || bellows_error(b)[0] != 0) return 2;
    const int first = bellows_save(b, 1);
    if (first != BELLOWS_OK && first != BELLOWS_ERR_MEMORY) return 3;
    return bellows_save(b, 2) == 0 && bellows_finalize(b, 1) == 0 ? 0 : 4;
  });
  cr_expect(all(codes, 0));
}

Test(async, a_second_program_in_the_directory_is_refused, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(1, [&](int, bellows_t* b) {
    std::vector<unsigned char> data(1000, 1);
    add_bytes(b, &data);
    if (bellows_save_async(b, 1) != 0) return 1;
    // Another program: it has two ranks, of which this is one.
    bellows_config config = BELLOWS_CONFIG_INIT;
    config.rank = 1;
    config.world = 2;
    bellows_t* other = nullptr;
    if (bellows_init(&config, &other) != BELLOWS_ERR_BUSY) return 2;
    if (!has(bellows_error(other), "but this program has 1")) return 3;
    bellows_finalize(other, 0);
    return bellows_wait(b) == 0 && bellows_finalize(b, 1) == 0 ? 0 : 4;
  });
  cr_expect(all(codes, 0));
  cr_expect(steps_in(place) == (std::vector<std::uint64_t>{1}));
}

Test(async, ranks_that_skip_a_step_are_told, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    std::vector<unsigned char> data(1000, 1);
    add_bytes(b, &data);
    if (rank == 0 && bellows_save_async(b, 5) != 0) return 1;
    int failures = 0;
    const auto count = [&](int rc) {
      if (rc == BELLOWS_ERR_INVALID && has(bellows_error(b), "different steps: 5 and 6"))
        ++failures;
      return rc == 0 || rc == BELLOWS_ERR_INVALID;
    };
    if (!count(bellows_save_async(b, 6)) || !count(bellows_wait(b)) || !count(bellows_wait(b))) {
      return 2;
    }
    if (rank == 0 && failures == 0) return 3;
    return bellows_save(b, 7) == 0 && bellows_finalize(b, 1) == 0 ? 0 : 4;
  });
  cr_expect(all(codes, 0));
}

// Nothing may grow: not the rank, not the agent, not their descriptors or shared memory.
Test(async, a_thousand_saves_and_restores_stay_flat, .timeout = 300) {
  Place place;
  const pid_t rank = start_rank(0, 1, [&](int, bellows_t* b) {
    alarm(280);
    std::vector<unsigned char> data(256 << 10);
    add_bytes(b, &data);
    std::uint64_t resident = 0, agent_resident = 0;
    std::size_t fds = 0, agent_fds = 0;
    for (std::uint64_t i = 1; i <= 1000; ++i) {
      std::uint64_t step = 0;
      memset(data.data(), static_cast<int>(i), data.size());
      if (bellows_save_async(b, i) != BELLOWS_OK) return 1;
      memset(data.data(), 0xee, data.size());
      if (i % 2 == 0 && bellows_wait(b) != BELLOWS_OK) return 2;
      if (bellows_restore(b, &step) < 0 || step > i || (i % 2 == 0 && step != i)) return 3;
      if (step > 0 && !is_full_of(data, static_cast<unsigned char>(step))) return 4;
      if (i != 200) continue;
      resident = resident_kb(getpid());
      agent_resident = resident_kb(place.agent());
      fds = descriptors_of(getpid());
      agent_fds = descriptors_of(place.agent());
    }
    if (resident_kb(getpid()) > resident + 2048) return 5;
    if (resident_kb(place.agent()) > agent_resident + 8192) return 6;
    if (descriptors_of(getpid()) > fds || descriptors_of(place.agent()) > agent_fds + 2) return 8;
    return bellows_finalize(b, 1) == 0 ? 0 : 9;
  });
  cr_expect(await_rank(rank, 280000) == 0);
}
