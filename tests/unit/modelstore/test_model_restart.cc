// SPDX-License-Identifier: Apache-2.0
// bellows-modeld is killed and started again, and its keeper has what it had.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <random>

#include "common/keeper/keeper_wire.h"
#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr std::size_t kMega = 1 << 20;

/// What the keeper has, as a daemon asks for it.
class KeeperClient {
 public:
  explicit KeeperClient(const ModelStore& store) {
    cr_assert_eq(plain::connect_to((store.run() + "/keeper").c_str(), &socket_), 0);
  }

  /// The record of the model, and its key and memory.
  std::string find(const std::string& name, std::uint64_t* key, plain::Handle* memory) {
    std::string record;
    KeeperMessage message;
    send(message, -1);
    for (;;) {
      plain::Handle fd;
      pollfd p = {socket_.get(), POLLIN, 0};
      cr_assert_eq(poll(&p, 1, 20000), 1, "the keeper says nothing");
      const iovec part = {&message, sizeof message};
      std::size_t got = 0;
      cr_assert_eq(plain::receive_packet(socket_.get(), &part, 1, &got, &fd, 0), 0);
      if (message.word == KeeperWord::end) return record;
      const std::string text(message.record, message.length);
      if (!has(text, "\"name\":\"" + name + "\"")) continue;
      record = text;
      *key = message.key;
      memory->reset(fd.release());
    }
  }

  void put(std::uint64_t key, const std::string& record, int memory) {
    KeeperMessage message;
    message.word = KeeperWord::put;
    message.key = key;
    message.length = static_cast<std::uint32_t>(record.size());
    std::memcpy(message.record, record.data(), record.size());
    send(message, memory);
  }

 private:
  void send(const KeeperMessage& message, int memory) {
    const iovec part = {const_cast<KeeperMessage*>(&message), sizeof message};
    cr_assert_eq(plain::send_packet(socket_.get(), &part, 1, memory, 0), 0);
  }

  plain::Handle socket_;
};

ino_t inode_of(const ModelStore& store, const std::string& name) {
  RawClient client(store.socket("a"));
  plain::Handle memory;
  cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, name)));
  cr_assert(client.receive(&memory).has_value());
  struct stat s;
  cr_assert_eq(fstat(memory.get(), &s), 0);
  return s.st_ino;
}

/// With one that has been loaded, and that the keeper has therefore.
void start_with_model(ModelStore& store) {
  store.add("m", "data");
  store.start();
  cr_assert(store.open("m").ok());
}

}  // namespace

Test(model_restart, takes_its_memory_back, .timeout = 60) {
  ModelStore store;
  const std::string data = random_bytes(5 * kMega);
  store.add("m", data);
  store.start();
  const OpenModel reader = store.open("m");
  cr_assert(reader.ok(), "%s", reader.error().c_str());
  const ino_t inode = inode_of(store, "m");
  store.stop();
  cr_expect(reader.data("w") == data, "a reader goes on");
  store.start();
  cr_expect_eq(inode_of(store, "m"), inode);
  cr_expect(store.says("in memory has its digest still"));
  const OpenModel again = store.open("sha256:" + reader.digest());
  cr_expect(again.ok() && again.data("w") == data, "%s", again.error().c_str());
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_restart, what_is_pinned_stays_so, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.add("n", "more");
  store.start();
  {
    ControlClient control(store);
    for (const char* name : {"m", "n"})
      cr_assert_str_eq(control.call(modelwire::ControlOp::pin, "a", name).c_str(), "");
    cr_assert_str_eq(control.call(modelwire::ControlOp::unpin, "a", "n").c_str(), "");
  }
  cr_assert(store.open("m").ok() && store.open("n").ok());
  store.restart();
  ControlClient control(store);
  cr_expect(has(control.call(modelwire::ControlOp::evict, "a", "m"), "pinned"));
  cr_expect(
      eventually([&] { return control.call(modelwire::ControlOp::evict, "a", "n").empty(); }));
  cr_expect(store.said("loaded " + store.file("m")) == 1);
}

Test(model_restart, who_connects_meanwhile_waits, .timeout = 60) {
  ModelStore store;
  start_with_model(store);
  store.stop();
  RawClient early(store.socket("a"));
  cr_assert(early.send(RawClient::request(modelwire::Op::open, 1, "m")));
  store.start();
  const auto reply = early.receive();
  cr_expect(reply && reply->answer == modelwire::Answer::opened);
}

Test(model_restart, what_was_added_comes_back_and_what_was_configured_is_as_configured,
     .timeout = 60) {
  ModelStore store;
  store.add("old", "data");
  store.start();
  write_file(store.file("added"), one_tensor("w", "added"));
  {
    ControlClient control(store);
    cr_expect(control.add("a", "added", store.file("added"), "b") == "");
    cr_expect(control.add("a", "removed", store.file("added")) == "");
    cr_expect(control.call(modelwire::ControlOp::remove, "a", "removed") == "");
  }
  cr_assert(store.open("old").ok());
  store.forget_options();
  store.restart();
  cr_expect(store.open("added", "b").data("w") == "added");
  cr_expect_eq(store.open("old").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  cr_expect_eq(store.open("removed").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
}

Test(model_restart, with_less_room_it_frees_what_no_longer_fits, .timeout = 60) {
  ModelStore store;
  for (unsigned i = 1; i <= 2; ++i) store.add("m" + std::to_string(i), random_bytes(6 * kMega, i));
  store.start("20M");
  cr_assert(store.open("m1").ok() && store.open("m2").ok());
  store.stop();
  store.start("10M");
  for (const char* name : {"m1", "m2"}) {
    const OpenModel model = store.open(name);
    cr_expect(model.ok(), "%s", model.error().c_str());
  }
}

Test(model_restart, serves_no_socket_that_is_no_option_any_more, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  const std::string old = store.path() + "/old.sock";
  store.option("--socket=" + old + ",tenant=a");
  store.start();
  cr_expect(OpenModel(old, "m").ok());
  store.forget_options();
  store.restart();
  cr_expect_eq(OpenModel(old, "m", 2000).code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
}

Test(model_restart, another_keeper_takes_over, .timeout = 60) {
  ModelStore store;
  start_with_model(store);
  const pid_t keeper = store.keeper();
  cr_assert(keeper > 0);
  kill(keeper, SIGKILL);
  cr_expect(store.says("a new one takes its place"));
  cr_assert(eventually([&] { return store.keeper() > 0 && store.keeper() != keeper; }));
  // What is answered now comes after it was given all.
  cr_expect(store.open("m").ok());
  store.restart();
  cr_expect(store.open("m").data("w") == "data");
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_restart, a_keeper_that_speaks_otherwise_is_replaced, .timeout = 60) {
  // It understands nothing; or what it has, and nothing else.
  for (const bool answers : {false, true}) {
    ModelStore store;
    start_with_model(store);
    const pid_t own = store.keeper();
    store.stop();
    kill(own, SIGKILL);
    unlink((store.run() + "/keeper").c_str());
    plain::Handle listener;
    listen_at(store.run() + "/keeper", &listener);
    const pid_t other = fork_child();
    if (other == 0) {
      plain::Handle daemon(accept(listener.get(), nullptr, nullptr));
      KeeperMessage message;
      const iovec part = {&message, sizeof message};
      std::size_t got = 0;
      plain::receive_packet(daemon.get(), &part, 1, &got, nullptr, 0);
      message.word = KeeperWord::end;
      if (answers) plain::send_packet(daemon.get(), &part, 1, -1, 0);
      if (!answers) daemon.reset(-1);
      for (;;) pause();
    }
    store.start();
    cr_expect(store.says("a new one takes its place"));
    cr_expect(eventually([&] { return store.keeper() > 0; }));
    cr_expect(store.open("m").ok());
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
  }
}

Test(model_restart, keepers_that_keep_ending_are_replaced_at_leisure, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  const std::string folder = store.path() + "/helpers", script = folder + "/bellows-model-keeper",
                    broken = store.path() + "/broken";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(HELPERS "/bellows-model-loader",
                                  folder + "/bellows-model-loader");
  std::ofstream(script) << "#!/bin/sh\n[ -e " << broken << " ] || exec " HELPERS
                        << "/bellows-model-keeper \"$@\"\n";
  cr_assert_eq(chmod(script.c_str(), 0755), 0);
  store.start("1G", folder);
  cr_assert(store.open("m").ok());
  const pid_t keeper = store.keeper();
  cr_assert(keeper > 0);
  write_file(broken, "");
  const auto begin = std::chrono::steady_clock::now();
  kill(keeper, SIGKILL);
  cr_assert(eventually([&] { return store.said("a new one takes its place") >= 4; }));
  cr_expect(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(1900));
  std::filesystem::remove(broken);
  cr_assert(eventually([&] { return store.keeper() > 0; }));
  // What is answered now comes after it was given all.
  cr_assert(store.open("m").ok());
  store.restart();
  cr_expect(store.open("m").data("w") == "data");
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_restart, a_keeper_alone_ends, .timeout = 60) {
  ModelStore store;
  start_with_model(store);
  const pid_t keeper = store.keeper();
  cr_assert(keeper > 0);
  store.stop();
  cr_expect_eq(kill(keeper, 0), 0, "it outlives the daemon");
  cr_expect(eventually([&] { return kill(keeper, 0) < 0; }), "and not for ever");
}

Test(model_restart, memory_that_is_not_sealed_is_not_taken, .timeout = 60) {
  ModelStore store;
  start_with_model(store);
  store.stop();
  {
    KeeperClient keeper(store);
    std::uint64_t key = 0;
    plain::Handle memory;
    const std::string record = keeper.find("m", &key, &memory);
    cr_assert(memory.get() >= 0);
    const plain::Handle open_memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    cr_assert_eq(ftruncate(open_memory.get(), 1 << 20), 0);
    keeper.put(key, record, open_memory.get());
  }
  store.start();
  cr_expect(store.open("m").data("w") == "data");
  cr_expect(store.says("is not sealed") && store.said("loaded ") == 2, "%s", store.log().c_str());
}

Test(model_restart, memory_with_another_digest_is_given_to_nobody, .timeout = 60) {
  ModelStore store;
  start_with_model(store);
  store.stop();
  {
    KeeperClient keeper(store);
    std::uint64_t key = 0;
    plain::Handle memory;
    std::string record = keeper.find("m", &key, &memory);
    const auto digest = record.find("\"digest\":\"") + 10;
    record[digest] = record[digest] == '0' ? '1' : '0';
    keeper.put(key, record, memory.get());
  }
  store.start();
  cr_expect(store.says("no longer has its digest"));
  cr_expect(store.open("m").data("w") == "data");
  cr_expect_eq(store.said("loaded "), 2);
}

Test(model_restart, a_model_whose_memory_was_wrong_stays_what_it_was, .timeout = 60) {
  ModelStore store;
  const std::string site = store.path() + "/site.yaml";
  const auto write_site = [&](const std::string& name) {
    write_file(site, "version: 1\ntenants: {a: }\nmodels:\n- {name: " + name +
                         ", tenant: a, source: " + store.file("m") + "}\n");
  };
  write_site("before");
  store.option("--site=" + site);
  start_with_model(store);
  cr_assert_str_eq(ControlClient(store).call(modelwire::ControlOp::pin, "a", "m").c_str(), "");
  store.stop();
  {
    KeeperClient keeper(store);
    std::uint64_t key = 0;
    plain::Handle memory;
    std::string record = keeper.find("m", &key, &memory);
    const auto digest = record.find("\"digest\":\"") + 10;
    record[digest] = record[digest] == '0' ? '1' : '0';
    keeper.put(key, record, memory.get());
  }
  store.start();
  cr_assert(store.says("no longer has its digest"));
  cr_expect(eventually([&] { return store.said("loaded ") == 2; }), "it was pinned");
  cr_expect(has(ControlClient(store).call(modelwire::ControlOp::evict, "a", "m"), "pinned"));
  // It is one of the options still.
  write_site("after");
  kill(store.pid(), SIGHUP);
  cr_assert(eventually([&] { return store.open("after").ok(); }));
  cr_expect(store.open("m").data("w") == "data");
}

Test(model_restart, of_two_versions_the_later_one_counts, .timeout = 60) {
  ModelStore store;
  write_file(store.file("v1"), one_tensor("w", "first"));
  write_file(store.file("v2"), one_tensor("w", "second"));
  store.start();
  {
    ControlClient control(store);
    cr_assert(control.add("a", "m", store.file("v1")) == "");
  }
  store.stop();
  {
    // As if it had been killed while it told of the new version.
    KeeperClient keeper(store);
    std::uint64_t key = 0;
    plain::Handle memory;
    std::string record = keeper.find("m", &key, &memory);
    const std::string path = store.file("v1");
    cr_assert(has(record, path));
    record.replace(record.find(path), path.size(), store.file("v2"));
    keeper.put(key + 1, record, -1);
  }
  for (int i = 0; i < 2; ++i) {
    store.start();
    cr_expect(store.open("m").data("w") == "second");
    store.stop();
  }
}

Test(model_restart, records_of_others_are_dropped, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start();
  store.stop();
  {
    KeeperClient keeper(store);
    keeper.put(77, "nonsense", -1);
    keeper.put(78, "{\"kind\":\"model\",\"tenant\":7}", -1);
  }
  store.start();
  cr_expect(store.open("m").ok());
  cr_expect_eq(store.said("is not of this bellows-modeld"), 2);
}

Test(model_restart, killed_at_any_time_it_loads_nothing_twice, .timeout = 200) {
  ModelStore store;
  const std::string data = random_bytes(3 * kMega);
  store.add("m", data);
  store.start();
  cr_assert(store.open("m").ok());
  std::vector<pid_t> programs;
  for (int i = 0; i < 3; ++i) {
    const pid_t program = fork_child();
    if (program == 0) {
      // While there is no daemon, an opener waits in the queue or is told.
      for (;;) {
        const OpenModel model = store.open("m");
        if (model.ok() && model.data("w") != data) _exit(3);
      }
    }
    programs.push_back(program);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 15; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30000));
    store.restart();
  }
  for (const pid_t program : programs) {
    cr_expect_eq(waitpid(program, nullptr, WNOHANG), 0, "it has seen wrong data");
    kill(program, SIGKILL);
    waitpid(program, nullptr, 0);
  }
  cr_expect(store.open("m").data("w") == data);
  cr_expect_eq(store.said("loaded "), 1);
}
