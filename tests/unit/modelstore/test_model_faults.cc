// SPDX-License-Identifier: Apache-2.0
// Loaders that die, hang and lie, and programs that are killed at any time.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "modelstore/loader/loader_wire.h"
#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr std::size_t kMega = 1 << 20;

/// A folder with the keeper alone.
std::string helpers_without_loader(const ModelStore& store) {
  const std::string folder = store.path() + "/helpers";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(HELPERS "/bellows-model-keeper",
                                  folder + "/bellows-model-keeper");
  return folder;
}

/// How many loaders were started.
std::size_t started(const ModelStore& store) {
  std::ifstream count(store.path() + "/helpers/count");
  std::size_t lines = 0;
  for (std::string line; std::getline(count, line);) ++lines;
  return lines;
}

/// A folder with a script in the loader's place. In it, $LOADER is the real one, and $N says how
/// often it was started before.
std::string helpers_with(const ModelStore& store, const std::string& script) {
  const std::string folder = helpers_without_loader(store);
  const std::string path = folder + "/bellows-model-loader";
  std::ofstream(path) << "#!/bin/sh\nLOADER=" HELPERS "/bellows-model-loader\nCOUNT=" << folder
                      << "/count\nN=$(cat $COUNT 2>/dev/null | wc -l)\necho >>$COUNT\n"
                      << script << "\n";
  cr_assert_eq(chmod(path.c_str(), 0755), 0);
  return folder;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator(folder))
    names.insert(each.path().filename());
  return names;
}

/// What each descriptor of a process leads to.
std::vector<std::string> descriptors(pid_t process) {
  std::vector<std::string> all;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  for (const std::string& name : names_in(folder)) {
    std::error_code closed;
    all.push_back(std::filesystem::read_symlink(folder + "/" + name, closed));
  }
  return all;
}

/// How many of them are memory of a model.
std::size_t memories(pid_t process) {
  const auto all = descriptors(process);
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& to) { return has(to, "memfd:"); }));
}

long resident_pages(pid_t process) {
  std::ifstream statm("/proc/" + std::to_string(process) + "/statm");
  long all = 0, resident = 0;
  statm >> all >> resident;
  return resident;
}

std::string bytes_of(const LoaderMessage& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

}  // namespace

Test(model_faults, another_loader_takes_over, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start("1G", helpers_with(store, "[ $N -ge 1 ] || kill -9 $$\nexec $LOADER"));
  const OpenModel model = store.open("m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == "data");
}

Test(model_faults, who_waits_is_told_when_loaders_keep_dying, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start("1G", helpers_with(store, "kill -9 $$"));
  const OpenModel model = store.open("m");
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(has(model.error(), "could not be read: its loader") &&
                has(model.error(), "so did the one before"),
            "%s", model.error().c_str());
}

Test(model_faults, a_broken_model_is_read_once_a_second, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  write_file(store.file("m"), "this is no model");
  store.start("1G", helpers_with(store, "exec $LOADER"));
  const auto begin = std::chrono::steady_clock::now();
  int opens = 0;
  for (; opens < 200; ++opens) cr_assert_eq(store.open("m").code(), BELLOWS_MODEL_ERR_CORRUPT);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin);
  cr_expect(started(store) <= static_cast<std::size_t>(seconds.count()) + 2, "%zu loaders",
            started(store));
  write_file(store.file("m"), one_tensor("w", "data"));
  cr_expect(eventually([&] { return store.open("m").ok(); }), "it is whole now");
}

Test(model_faults, a_loader_that_hangs_is_replaced, .timeout = 60) {
  ModelStore store({"--stall=0.3"});
  store.add("m", "data");
  store.start("1G", helpers_with(store, "[ $N -ge 1 ] || exec sleep 1000\nexec $LOADER"));
  cr_expect(store.open("m").ok());
  ModelStore dead({"--stall=0.2"});
  dead.add("m", "data");
  dead.start("1G", helpers_with(dead, "exec sleep 1000"));
  const OpenModel model = dead.open("m");
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(has(model.error(), "made no progress for 0.2 s"), "%s", model.error().c_str());
}

Test(model_faults, a_loader_that_only_talks_makes_no_progress, .timeout = 60) {
  ModelStore store({"--stall=0.5"});
  store.add("m", "data");
  // It has read one byte, and says so again and again.
  LoaderMessage message;
  message.word = LoaderWord::sized;
  message.bytes = 4096;
  write_file(store.path() + "/sized", bytes_of(message));
  message.word = LoaderWord::progress;
  message.bytes = 1;
  write_file(store.path() + "/progress", bytes_of(message));
  store.start("1G", helpers_with(store, "cd " + store.path() +
                                            "\ncat sized >&0\n"
                                            "while cat progress >&0; do sleep 0.1; done"));
  const OpenModel model = store.open("m");
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(has(model.error(), "made no progress for 0.5 s"), "%s", model.error().c_str());
}

Test(model_faults, a_loader_that_hangs_holds_up_no_other_tenant, .timeout = 60) {
  ModelStore store;
  for (const char* name : {"x1", "x2", "x3"}) store.add(name, "data");
  store.add("m", "data", "tenant=b");
  // The first two hang, which are tenant a's.
  store.start("1G", helpers_with(store, "[ $N -ge 2 ] || exec sleep 1000\nexec $LOADER"));
  bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  const std::string socket = store.socket("a");
  config.socket = socket.c_str();
  for (const char* name : {"x1", "x2", "x3"})
    cr_assert_eq(bellows_model_prefetch(name, &config, nullptr), BELLOWS_MODEL_OK);
  cr_assert(eventually([&] { return started(store) == 2; }));
  cr_expect(store.open("m", "b").ok());
  cr_expect_eq(store.open("x3", "a", 100).code(), BELLOWS_MODEL_ERR_UNAVAILABLE,
               "its own tenant has both loaders at work");
}

Test(model_faults, nobody_reads_what_it_says, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  int full[2];
  cr_assert_eq(pipe2(full, O_NONBLOCK | O_CLOEXEC), 0);
  char bytes[4096] = {};
  while (write(full[1], bytes, sizeof bytes) > 0) {
  }
  cr_assert_eq(fcntl(full[1], F_SETFL, 0), 0, "its writers wait");
  const Fd saved(dup(2));
  cr_assert_eq(dup2(full[1], 2), 2);
  ChildOptions options;
  options.command = store.command();
  options.death_signal = SIGKILL;
  auto daemon = Child::start(options);
  cr_assert_eq(dup2(saved.get(), 2), 2);
  cr_assert(daemon.ok());
  cr_assert(eventually([&] { return access((store.run() + "/control").c_str(), F_OK) == 0; }));
  cr_expect(store.open("m").ok());
}

Test(model_faults, a_check_that_hangs_holds_up_no_load_and_no_memory, .timeout = 60) {
  ModelStore store({"--room=3"});
  store.add("m1", random_bytes(6 * kMega, 1));
  store.add("m2", random_bytes(6 * kMega, 2));
  store.add("small", "data");
  store.add("large", random_bytes(12 * kMega, 3));
  const std::string hang = store.path() + "/hang", hung = store.path() + "/hung";
  const std::string helpers = helpers_with(
      store, "[ -e " + hang + " ] || exec $LOADER\necho >>" + hung + "\nexec sleep 1000");
  store.start("16M", helpers);
  cr_assert(store.open("m1").ok() && store.open("m2").ok());
  store.stop();
  write_file(hang, "");
  store.start("16M", helpers);
  cr_assert(eventually([&] { return std::filesystem::exists(hung); }));
  std::filesystem::remove(hang);
  const OpenModel small = store.open("small", "a", 10000);
  cr_expect(small.ok(), "%s", small.error().c_str());
  const OpenModel large = store.open("large");
  cr_expect(large.ok(), "%s", large.error().c_str());
}

Test(model_faults, a_loader_that_dies_while_it_waits_for_room_is_replaced, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(6 * kMega));
  store.add("n", random_bytes(6 * kMega, 2));
  store.start("10M", helpers_with(store,
                                  "[ $N -eq 1 ] || exec $LOADER\n"
                                  "exec 3<&0\n$LOADER <&3 & sleep 0.5\nkill -9 $! $$"));
  plain::Handle memory;
  {
    RawClient client(store.socket("a"));
    cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "m")));
    const auto reply = client.receive(&memory);
    cr_assert(reply && reply->answer == modelwire::Answer::opened);
  }
  RawClient client(store.socket("a"));
  cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "n")));
  cr_assert(eventually([&] { return started(store) == 3 || client.has_answer(); }));
  memory.reset(-1);
  const auto reply = client.receive();
  cr_expect(reply && reply->answer == modelwire::Answer::opened, "%s", reply ? reply->text : "");
}

Test(model_faults, a_missing_loader_is_an_error, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start("1G", helpers_without_loader(store));
  const OpenModel model = store.open("m");
  cr_expect(!model.ok() && has(model.error(), "bellows-model-loader"), "%s", model.error().c_str());
}

Test(model_faults, a_loader_that_talks_nonsense_is_ended, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start("1G", helpers_with(store, "echo nonsense >&0\nexec sleep 1000"));
  const OpenModel model = store.open("m");
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_INVALID, "%s", model.error().c_str());
}

Test(model_faults, a_killed_loader_is_replaced_at_any_time, .timeout = 200) {
  ModelStore store;
  const std::string data = random_bytes(24 * kMega);
  store.add("m", data);
  store.start("1G",
              helpers_with(store,
                           "[ $((N % 2)) -eq 1 ] && exec $LOADER\n"
                           "exec 3<&0\n$LOADER <&3 & sleep 0.0$((N * 7 % 60))\nkill -9 $! $$"));
  ControlClient control(store);
  for (int i = 0; i < 12; ++i) {
    {
      const OpenModel model = store.open("m");
      cr_expect(model.ok() ? model.data("w") == data : has(model.error(), "loader"), "%s",
                model.error().c_str());
    }
    // Else the next would have what is in memory.
    cr_assert(
        eventually([&] { return control.call(modelwire::ControlOp::evict, "a", "m").empty(); }));
  }
  cr_expect_gt(started(store), 12, "no loader was killed before it was done");
}

Test(model_faults, killed_programs_leave_nothing, .timeout = 200) {
  ModelStore store;
  store.add("m", random_bytes(6 * kMega));
  store.add("n", random_bytes(6 * kMega, 2));
  store.start("10M");
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const pid_t child = fork_child();
    if (child == 0) {
      for (;;) {
        OpenModel model = store.open(i % 2 ? "m" : "n");
        (void)model.data("w");
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, nullptr, 0), child);
  }
  // Either fits, when nobody has the other.
  for (const char* name : {"m", "n", "m"})
    cr_expect(eventually([&] { return store.open(name).ok(); }), "%s", name);
}

// Ten thousand take minutes, and longer on a busy machine.
Test(model_faults, descriptors_and_memory_stay_as_they_are, .timeout = 3600) {
  ModelStore store;
  store.add("m", random_bytes(kMega));
  store.start();
  ControlClient control(store);
  const auto cycle = [&] {
    cr_assert(store.open("m").ok());
    cr_assert(
        eventually([&] { return control.call(modelwire::ControlOp::evict, "a", "m").empty(); }));
  };
  const char* is_long = std::getenv("BELLOWS_LONG");
  const int cycles = is_long && *is_long == '1' ? 10000 : 300;
  for (int i = 0; i < 20; ++i) cycle();
  const pid_t both[] = {store.pid(), store.keeper()};
  cr_assert(eventually([&] { return descriptors(both[0]).size() < 30; }));
  std::size_t open[2];
  long pages[2];
  for (int i = 0; i < 2; ++i) open[i] = descriptors(both[i]).size();
  for (int i = 0; i < 2; ++i) pages[i] = resident_pages(both[i]);
  const auto names = names_in("/dev/shm");
  for (int i = 0; i < cycles; ++i) cycle();
  for (int i = 0; i < 2; ++i) {
    const char* who = i == 0 ? "the daemon" : "the keeper";
    cr_expect(eventually([&] { return descriptors(both[i]).size() <= open[i]; }),
              "%s has %zu descriptors, and had %zu", who, descriptors(both[i]).size(), open[i]);
    cr_expect(eventually([&] { return memories(both[i]) == 0; }), "%s has a model's memory", who);
    // A model has 256 pages, and nobody maps one here.
    cr_expect_lt(resident_pages(both[i]), pages[i] + 200, "%s has %ld pages, and had %ld", who,
                 resident_pages(both[i]), pages[i]);
  }
  // Others may use it meanwhile.
  for (const std::string& name : names_in("/dev/shm"))
    cr_expect(names.count(name) != 0 || !has(name, "bellows-model"), "/dev/shm/%s", name.c_str());
}

Test(model_faults, memory_that_is_found_wrong_is_given_to_nobody, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  LoaderMessage wrong;
  wrong.word = LoaderWord::done;
  write_file(store.path() + "/done", bytes_of(wrong));
  store.start("1G", helpers_with(store, "[ $N -eq 1 ] || exec $LOADER\ncat " + store.path() +
                                            "/done >&0\nsleep 60"));
  const OpenModel before = store.open("m");
  ControlClient control(store);
  cr_expect(has(control.call(modelwire::ControlOp::verify, "a", "m"), "no longer has its digest"));
  const OpenModel after = store.open("m");
  cr_expect(before.data("w") == "data" && after.data("w") == "data");
  cr_expect_eq(store.said("loaded "), 2);
  cr_expect(control.call(modelwire::ControlOp::verify, "a", "m") == "");
}

Test(model_faults, a_model_that_is_being_verified_can_be_evicted, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start("1G", helpers_with(store, "[ $N -eq 0 ] && exec $LOADER\nexec sleep 60"));
  cr_assert(store.open("m").ok());
  std::string said;
  std::thread verifies([&] {
    ControlClient control(store);
    said = control.call(modelwire::ControlOp::verify, "a", "m");
  });
  const bool begun = eventually([&] { return started(store) == 2; });
  ControlClient control(store);
  cr_expect(control.call(modelwire::ControlOp::evict, "a", "m") == "");
  verifies.join();
  cr_expect(begun && has(said, "was evicted before"), "%s", said.c_str());
  cr_expect(has(control.call(modelwire::ControlOp::verify, "a", "m"), "is not in memory"));
}

Test(model_faults, a_verify_without_a_loader_says_so, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start("1G", helpers_with(store, "exec $LOADER"));
  cr_assert(store.open("m").ok());
  std::filesystem::remove(store.path() + "/helpers/bellows-model-loader");
  ControlClient control(store);
  for (int i = 0; i < 2; ++i)
    cr_expect(has(control.call(modelwire::ControlOp::verify, "a", "m"), "could not be checked"));
  cr_expect(store.open("m").ok(), "it is in memory still");
}
