// SPDX-License-Identifier: Apache-2.0
// libbellows against the agent it starts by itself: ranks are processes, as in a real program.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>

#include "checkpoint/format/manifest.h"
#include "checkpoint/include/bellows.h"
#include "checkpoint/store/store.h"
#include "checkpoint/wire/wire.h"
#include "tests/unit/checkpoint/rank_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

// Every size restores what every size saved, bit for bit, with uneven shares and ranks without
// rows.
Test(library, restores_at_any_number_of_ranks, .timeout = 240) {
  for (int writers = 1; writers <= 4; ++writers) {
    Place place;
    const auto saved = run_ranks(writers, [&](int rank, bellows_t* b) {
      Model model(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(writers));
      std::uint64_t step = 77;
      if (model.add_to(b) != BELLOWS_OK) return 1;
      if (bellows_restore(b, &step) != BELLOWS_NO_CHECKPOINT || step != 77) return 2;
      for (step = 1; step <= 4; ++step) {
        model.fill(step);
        if (bellows_save(b, step) != BELLOWS_OK) return 3;
      }
      return bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 4;
    });
    cr_assert(all(saved, 0), "saving with %d ranks", writers);
    auto steps = list_steps(place.checkpoints());
    cr_expect(steps.ok() && *steps == (std::vector<std::uint64_t>{2, 3, 4}));
    for (int readers = 1; readers <= 4; ++readers) {
      const auto restored = run_ranks(readers, [&](int rank, bellows_t* b) {
        Model model(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(readers));
        Model wanted = model;
        wanted.fill(4);
        std::uint64_t step = 0;
        if (model.add_to(b) != BELLOWS_OK) return 1;
        if (bellows_restore(b, &step) != BELLOWS_OK || step != 4) return 2;
        return model == wanted && bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 3;
      });
      cr_expect(all(restored, 0), "saved by %d, restored by %d", writers, readers);
    }
  }
}

Test(library, restore_passes_over_a_damaged_step, .timeout = 60) {
  Place place;
  const auto saved = run_ranks(2, [&](int rank, bellows_t* b) {
    Model model(static_cast<std::uint32_t>(rank), 2);
    model.add_to(b);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      model.fill(step);
      if (bellows_save(b, step) != BELLOWS_OK) return 1;
    }
    return bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 2;
  });
  cr_assert(all(saved, 0));
  flip_byte(step_path(place.checkpoints(), 2) + "/shard-00001-of-00002.h5", 4000);
  const auto restored = run_ranks(3, [&](int rank, bellows_t* b) {
    Model model(static_cast<std::uint32_t>(rank), 3);
    Model wanted = model;
    wanted.fill(1);
    model.add_to(b);
    std::uint64_t step = 0;
    if (bellows_restore(b, &step) != BELLOWS_OK || step != 1) return 1;
    return model == wanted && bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 2;
  });
  cr_expect(all(restored, 0));
}

Test(library, a_changed_array_is_a_mismatch, .timeout = 60) {
  Place place;
  float x[4] = {1, 2, 3, 4};
  const auto with_shape = [&](std::uint64_t rows, const std::function<int(bellows_t*)>& run) {
    return run_ranks(1, [&](int, bellows_t* b) {
      if (bellows_register(b, "x", BELLOWS_F32, 1, &rows, BELLOWS_REPLICATED, 0, 0, x) != 0)
        return 1;
      const int rc = run(b);
      bellows_finalize(b, 0);
      return rc;
    })[0];
  };
  cr_assert(with_shape(4, [](bellows_t* b) { return bellows_save(b, 1); }) == 0);
  cr_expect(with_shape(3, [](bellows_t* b) {
              std::uint64_t step = 0;
              const bool told = bellows_restore(b, &step) == BELLOWS_ERR_MISMATCH &&
                                has(bellows_error(b), "array x is f32[4] in step 1");
              return told ? 0 : 9;
            }) == 0);
}

// Which rank stores a small one is in its name: some of these are nobody's.
Test(library, arrays_that_only_some_ranks_have_are_refused, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    Model model(static_cast<std::uint32_t>(rank), 2);
    model.add_to(b);
    std::uint64_t number = 0;
    const auto save = [&](const std::string& name, int layout, int only, std::uint64_t step) {
      if (rank == only)
        bellows_register(b, name.c_str(), BELLOWS_U64, 0, nullptr, layout, 0, 0, &number);
      const int rc = bellows_save(b, step);
      const bool told = has(bellows_error(b), "rank 1 has not registered the same ");
      if (rank == only) bellows_unregister(b, name.c_str());
      return rc == BELLOWS_ERR_INVALID && told ? 1 : rc;
    };
    std::uint64_t step = 0;
    for (const char* name : {"a", "b", "c", "d"}) {
      for (const int only : {0, 1})
        if (save(name, BELLOWS_REPLICATED, only, ++step) != 1) return 8;
    }
    if (save("v", BELLOWS_VALUE, 1, 20) != 1) return 9;
    // Rank 0 stores those in any case.
    if (save("v", BELLOWS_VALUE, 0, 21) != BELLOWS_OK) return 10;
    return bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 11;
  });
  cr_expect(all(codes, 0));
}

Test(library, ranks_that_save_different_steps_are_told, .timeout = 60) {
  Place place;
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    Model model(static_cast<std::uint32_t>(rank), 2);
    model.add_to(b);
    const bool told = bellows_save(b, rank == 0 ? 5 : 6) == BELLOWS_ERR_INVALID &&
                      has(bellows_error(b), "different steps: 5 and 6");
    // And both go on.
    return told && bellows_save(b, 7) == BELLOWS_OK && bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 9;
  });
  cr_expect(all(codes, 0));
}

Test(library, a_full_disk_reaches_every_rank_and_training_continues, .timeout = 60) {
  Place place;
  // The mount is this process's alone and goes with it.
  if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) {
    cr_skip_test("needs the right to mount a small file system");
  }
  const std::string dir = place.checkpoints();
  mkdir(dir.c_str(), 0700);
  cr_assert(mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=1m") == 0);
  const auto codes = run_ranks(2, [&](int rank, bellows_t* b) {
    std::vector<unsigned char> data(600000, 1);
    const auto hold = [&](std::uint64_t bytes) {
      const std::uint64_t shape[] = {bytes * 2};
      return bellows_register(b, "x", BELLOWS_U8, 1, shape, BELLOWS_SHARDED,
                              static_cast<std::uint64_t>(rank) * bytes, bytes, data.data());
    };
    if (hold(1000) != 0 || bellows_save(b, 1) != 0) return 1;
    for (std::uint64_t step = 2; step < 6; ++step) {
      if (hold(600000) != 0 || bellows_save(b, step) != BELLOWS_ERR_IO) return 2;
      if (!has(bellows_error(b), "No space left on device")) return 3;
    }
    // What the failed saves left must not be in the way.
    if (hold(300000) != 0 || bellows_save(b, 6) != 0) return 4;
    return bellows_finalize(b, 1) == 0 ? 0 : 5;
  });
  cr_expect(all(codes, 0));
  auto steps = list_steps(dir);
  cr_expect(steps.ok() && *steps == (std::vector<std::uint64_t>{1, 6}));
  cr_expect(verify_step(dir, 1).ok() && verify_step(dir, 6).ok());
  eventually([&] { return !place.agent_lives(); });
  umount(dir.c_str());
}

Test(library, a_killed_agent_is_an_error_not_a_hang, .timeout = 60) {
  Place place;
  // Rank 1 never saves, so rank 0 waits in save when the agent dies.
  const auto main0 = [&](int, bellows_t* b) {
    Model model(0, 2);
    model.add_to(b);
    const bool told = bellows_save(b, 1) == BELLOWS_ERR_AGENT &&
                      has(bellows_error(b), "lost the checkpoint agent");
    return told ? 0 : 9;
  };
  const pid_t rank0 = start_rank(0, 2, main0);
  cr_assert(eventually(
      [&] { return place.agent_lives() && place.saving(1, "/shard-00000-of-00002.h5"); }));
  cr_assert(kill(place.agent(), SIGKILL) == 0);
  cr_expect(await_rank(rank0) == 0);
  // A rank that comes now gets an agent of its own.
  cr_expect(all(run_ranks(1, [&](int, bellows_t* b) { return bellows_finalize(b, 0); }), 0));
}

Test(library, a_rank_killed_before_it_saved_fails_the_others_save, .timeout = 60) {
  Place place;
  const pid_t victim = start_rank(1, 2, [&](int, bellows_t* b) {
    while (bellows_should_stop(b, 0) == 0) usleep(1000);
    return 1;
  });
  cr_assert(eventually([&] { return place.agent_lives() && !place.socket().empty(); }));
  const pid_t saver = start_rank(0, 2, [&](int, bellows_t* b) {
    Model model(0, 2);
    model.add_to(b);
    const int rc = bellows_save(b, 1);
    return rc == BELLOWS_ERR_IO && has(bellows_error(b), "rank 1 was lost") ? 0 : 9;
  });
  cr_assert(eventually([&] { return place.saving(1, ""); }));
  kill(victim, SIGKILL);
  cr_expect(await_rank(victim) == 200 + SIGKILL);
  cr_expect(await_rank(saver) == 0);
  auto steps = list_steps(place.checkpoints());
  cr_expect(steps.ok() && steps->empty());
}

Test(library, a_rank_that_dies_after_the_copy_loses_nothing, .timeout = 60) {
  Place place;
  const pid_t saver = start_rank(1, 2, [&](int, bellows_t* b) {
    float x[2] = {1, 2};
    const std::uint64_t shape[] = {2};
    if (bellows_register(b, "x", BELLOWS_F32, 1, shape, BELLOWS_SHARDED, 0, 2, x) != 0) return 1;
    return bellows_save(b, 1) == BELLOWS_OK && bellows_finalize(b, 1) == BELLOWS_OK ? 0 : 2;
  });
  // An agent that no other rank has joined would take the program for gone with rank 0.
  cr_assert(eventually([&] { return place.saving(1, "/shard-00001-of-00002.h5"); }));
  // Rank 0 by hand: everything up to the copy, and it is gone without a word.
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = place.socket();
  memcpy(address.sun_path, path.c_str(), path.size());
  cr_assert(eventually(
      [&] { return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0; }));
  const auto say = [&](wire::Op op, std::uint64_t step, const void* body, std::uint32_t length) {
    char bytes[512];
    wire::Head head;
    head.op = op;
    head.step = step;
    head.length = length;
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, body, length);
    cr_assert(send(fd, bytes, sizeof head + length, 0) > 0);
  };
  const auto hear = [&](wire::Op op) {
    char bytes[8192];
    wire::Head head;
    cr_assert(recv(fd, bytes, sizeof bytes, 0) >= static_cast<ssize_t>(sizeof head));
    memcpy(&head, bytes, sizeof head);
    cr_assert(head.op == op, "answer %u", static_cast<unsigned>(head.op));
  };
  const wire::Hello hello{0, 2};
  std::string body(reinterpret_cast<const char*>(&hello), sizeof hello);
  body += place.checkpoints();
  say(wire::Op::hello, 0, body.data(), static_cast<std::uint32_t>(body.size()));
  hear(wire::Op::welcome);
  say(wire::Op::layout, 0, "", 0);
  say(wire::Op::save_begin, 1, "", 0);
  hear(wire::Op::buffer);
  say(wire::Op::save_ready, 1, "", 0);
  close(fd);
  cr_expect(await_rank(saver) == 0);
  auto newest = newest_step(place.checkpoints());
  cr_expect(newest.ok() && newest->step == 1u);
}

Test(library, a_signal_to_the_agent_stops_all_ranks_at_one_step, .timeout = 60) {
  Place place;
  ScratchDir out;
  const auto run = [&](int rank, bellows_t* b) {
    Model model(static_cast<std::uint32_t>(rank), 3);
    model.add_to(b);
    for (std::uint64_t step = 0;; ++step) {
      const int stop = bellows_should_stop(b, step);
      if (stop < 0) return 1;
      if (stop == 1) {
        if (bellows_save(b, step) != BELLOWS_OK) return 2;
        return bellows_finalize(b, 0) == BELLOWS_OK ? 0 : 3;
      }
      if (step == 20) std::ofstream(out.path() + "/" + std::to_string(rank)) << "here";
      usleep(static_cast<useconds_t>(100 * (rank + 1)));
    }
  };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) pids.push_back(start_rank(rank, 3, run));
  cr_assert(eventually([&] {
    return place.agent_lives() && access((out.path() + "/0").c_str(), F_OK) == 0 &&
           access((out.path() + "/1").c_str(), F_OK) == 0 &&
           access((out.path() + "/2").c_str(), F_OK) == 0;
  }));
  cr_assert(kill(place.agent(), SIGUSR1) == 0);
  for (pid_t pid : pids) cr_expect(await_rank(pid) == 0);
  auto newest = newest_step(place.checkpoints());
  cr_expect(newest.ok() && newest->step && *newest->step >= 20);
}

Test(library, the_agent_leaves_with_the_last_rank, .timeout = 60) {
  Place place;
  cr_assert(all(run_ranks(2, [&](int, bellows_t* b) { return bellows_finalize(b, 1); }), 0));
  cr_expect(eventually([&] { return !place.agent_lives() && place.socket().empty(); }));
}

Test(library, a_second_program_in_the_same_directory_is_refused, .timeout = 60) {
  Place place;
  ScratchDir out;
  const auto there = [&](const std::string& name) {
    return access((out.path() + "/" + name).c_str(), F_OK) == 0;
  };
  const auto run = [&](int rank, bellows_t* b) {
    std::ofstream(out.path() + "/" + std::to_string(rank)) << "here";
    if (!eventually([&] { return there("go"); })) return 1;
    Model model(static_cast<std::uint32_t>(rank), 2);
    model.fill(1);
    return model.add_to(b) || bellows_save(b, 1) || bellows_finalize(b, 1) ? 2 : 0;
  };
  const pid_t ranks[] = {start_rank(0, 2, run), start_rank(1, 2, run)};
  cr_assert(eventually([&] { return there("0") && there("1"); }));
  for (int rank = 0; rank < 2; ++rank) {
    bellows_config config = BELLOWS_CONFIG_INIT;
    config.rank = rank;
    config.world = 2;
    bellows_t* second = nullptr;
    cr_expect(bellows_init(&config, &second) == BELLOWS_ERR_BUSY);
    cr_expect(has(bellows_error(second), "another program uses " + place.checkpoints()), "%s",
              bellows_error(second));
    bellows_finalize(second, 0);
  }
  std::ofstream(out.path() + "/go") << "go";
  for (pid_t rank : ranks) cr_expect(await_rank(rank) == 0);
}

Test(library, steps_divisible_by_a_number_are_kept, .timeout = 60) {
  Place place;
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.keep = 1;
  config.keep_every = 10;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(&config, &b) == BELLOWS_OK);
  Model model(0, 1);
  cr_assert(model.add_to(b) == 0);
  for (std::uint64_t step : {5, 10, 15, 20, 25}) cr_expect(bellows_save(b, step) == BELLOWS_OK);
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
  auto steps = list_steps(place.checkpoints());
  cr_expect(steps.ok() && *steps == std::vector<std::uint64_t>({10, 20, 25}));
}
