// SPDX-License-Identifier: Apache-2.0
// Programs on the sockets of bellows-modeld, and what they can do to it.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <list>
#include <memory>

#include "tests/unit/modelstore/from_c.h"
#include "tests/unit/modelstore/model_store.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr std::size_t kMega = 1 << 20;

/// Whether a process works or waits for a processor, rather than for something to happen.
bool is_at_work(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  return stat.compare(stat.rfind(')'), 3, ") R") == 0;
}

}  // namespace

Test(model_programs, a_killed_programs_references_return, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(6 * kMega));
  store.add("n", random_bytes(6 * kMega, 2));
  store.start("10M");
  int tell[2];
  cr_assert_eq(pipe(tell), 0);
  const pid_t child = fork_child();
  if (child == 0) {
    const OpenModel model = store.open("m");
    (void)!write(tell[1], model.ok() ? "1" : "0", 1);
    pause();
  }
  char opened = 0;
  cr_assert_eq(read(tell[0], &opened, 1), 1);
  cr_assert_eq(opened, '1');
  const OpenModel refused = store.open("n");
  cr_expect_eq(refused.code(), BELLOWS_MODEL_ERR_NO_ROOM, "%s", refused.error().c_str());
  cr_expect(has(refused.error(), "in use"));
  kill(child, SIGKILL);
  cr_assert_eq(waitpid(child, nullptr, 0), child);
  cr_expect(eventually([&] { return store.open("n").ok(); }));
}

Test(model_programs, memory_counts_until_the_last_has_unmapped_it, .timeout = 60) {
  ModelStore store({"--room=0.3"});
  store.add("m", random_bytes(6 * kMega));
  store.add("n", random_bytes(6 * kMega, 2));
  store.start("10M");
  plain::Handle memory;
  {
    RawClient client(store.socket("a"));
    cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "m")));
    const auto reply = client.receive(&memory);
    cr_assert(reply && reply->answer == modelwire::Answer::opened);
  }
  // As much as a huge page, in case that it has some.
  void* map = mmap(nullptr, 2 * kMega, PROT_READ, MAP_SHARED, memory.get(), 0);
  memory.reset(-1);
  const OpenModel refused = store.open("n");
  cr_expect_eq(refused.code(), BELLOWS_MODEL_ERR_NO_ROOM, "%s", refused.error().c_str());
  cr_expect(has(refused.error(), "still in use by the program that had it"));
  const OpenModel again = store.open("m");
  cr_expect_eq(again.code(), BELLOWS_MODEL_ERR_NO_ROOM, "%s", again.error().c_str());
  munmap(map, 2 * kMega);
  cr_expect(eventually([&] { return store.open("n").ok(); }), "%s", store.log().c_str());
}

Test(model_programs, refuses_other_users, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can be another user");
  ModelStore store;
  store.add("m", "data");
  store.start();
  cr_assert_eq(chmod(store.path().c_str(), 0755), 0);
  cr_expect(holds_as(kAlice, [&] { return has(store.open("m").error(), "another user's"); }));
  cr_expect(store.open("m").ok());
}

Test(model_programs, no_program_makes_it_wait, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(kMega));
  store.start();
  cr_assert(store.open("m").ok());
  // One asks and asks, and takes no answer.
  RawClient deaf(store.socket("a"));
  for (std::uint64_t i = 0; i < 100000; ++i)
    if (!deaf.send(RawClient::request(modelwire::Op::prefetch, i, "absent")) && errno == EPIPE)
      break;
  RawClient silent(store.socket("a"));
  RawClient noise(store.socket("a"));
  cr_assert(noise.send("noise", 5));
  const auto said = noise.receive();
  cr_expect(said && said->failure == modelwire::Failure::invalid);
  cr_expect(!noise.receive(), "it is let go");
  cr_expect(store.open("m").ok());
}

Test(model_programs, takes_no_descriptors, .timeout = 60) {
  constexpr int kPassRights = 83;
  const plain::Handle own(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  const int no = 0;
  if (setsockopt(own.get(), SOL_SOCKET, kPassRights, &no, sizeof no) < 0)
    cr_skip_test("this kernel can't refuse descriptors");
  ModelStore store;
  store.add("m", "data");
  store.start();
  RawClient client(store.socket("a"));
  const auto request = RawClient::request(modelwire::Op::open, 1, "m");
  cr_expect(!client.send_with(request, STDIN_FILENO) && errno == EPERM);
  cr_assert(client.send(request));
  const auto reply = client.receive();
  cr_expect(reply && reply->answer == modelwire::Answer::opened);
}

Test(model_programs, who_takes_no_descriptors_stops_no_other, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start();
  cr_assert(store.open("m").ok());
  // What is under way counts for the daemon's user, against its limit. Root has none.
  std::vector<std::unique_ptr<RawClient>> deaf;
  int lent = 0;
  for (int i = 0; i < 40; ++i) {
    deaf.push_back(std::make_unique<RawClient>(store.socket("a")));
    for (std::uint64_t handle = 0; handle < 60; ++handle)
      if (!deaf.back()->send(RawClient::request(modelwire::Op::open, handle, "m"))) break;
  }
  cr_expect(store.open("m", "a").ok());
  cr_expect(eventually([&] { return deaf.front()->has_answer(); }));
  for (const auto& client : deaf)
    // That it was let go is told first, and what was sent before comes after that.
    for (int ends = 0; ends < 2 && client->has_answer();) ++(client->receive() ? lent : ends);
  cr_expect(lent >= 1 && lent <= 40 * 16, "%d descriptors were under way", lent);
}

Test(model_programs, waits_for_descriptors_without_work, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  rlimit before{};
  cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
  before.rlim_cur = 200;
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
  store.start();
  cr_assert(store.open("m").ok());
  cr_assert_eq(prlimit(store.pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  cr_expect(before.rlim_cur == before.rlim_max, "it has raised its limit");
  const rlimit few{4, before.rlim_max};
  cr_assert_eq(prlimit(store.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  RawClient client(store.socket("a"));
  cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "m")));
  ControlClient control(store);
  int at_work = 0;
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    at_work += is_at_work(store.pid());
  }
  cr_expect_lt(at_work, 25);
  cr_assert_eq(prlimit(store.pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  const auto reply = client.receive();
  cr_expect(reply && reply->answer == modelwire::Answer::opened);
  cr_expect(control.call(modelwire::ControlOp::pin, "a", "m") == "");
}

Test(model_programs, answers_each_handle, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start();
  RawClient client(store.socket("a"));
  using modelwire::Op;
  cr_assert(client.send(RawClient::request(Op::open, 5, "m")));
  const auto opened = client.receive();
  cr_expect(opened && opened->handle == 5 && opened->answer == modelwire::Answer::opened);
  cr_assert(client.send(RawClient::request(Op::open, 5, "m")));
  const auto twice = client.receive();
  cr_expect(twice && twice->failure == modelwire::Failure::invalid && twice->handle == 5);
  cr_assert(client.send(RawClient::request(Op::open, 6, "../m")));
  const auto bad = client.receive();
  cr_expect(bad && bad->failure == modelwire::Failure::invalid && bad->handle == 6);
  cr_assert(client.send(RawClient::request(Op::close, 5, "")));
  cr_assert(client.send(RawClient::request(Op::close, 99, "")));
  cr_assert(client.send(RawClient::request(Op::open, 5, "m")));
  const auto again = client.receive();
  cr_expect(again && again->answer == modelwire::Answer::opened, "the handle was free again");
}

Test(model_programs, serves_programs_in_c, .timeout = 60) {
  ModelStore store;
  store.add("m", "some data");
  store.start();
  cr_expect(read_from_c(store.socket("a").c_str(), "m", "some data"));
  cr_expect(!read_from_c(store.socket("a").c_str(), "m", "other data"));
  cr_expect(!read_from_c(store.socket("a").c_str(), "absent", "some data"));
  cr_expect(refuses_nonsense(store.socket("a").c_str()));
}

Test(model_programs, an_absent_daemon_is_an_error_with_a_sentence, .timeout = 60) {
  const OpenModel model("/nowhere/models.sock", "m");
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(has(model.error(), "/nowhere/models.sock: there is no bellows-modeld"));
  cr_expect_eq(OpenModel("/nowhere", "../m").code(), BELLOWS_MODEL_ERR_INVALID);
  cr_expect_eq(OpenModel("/nowhere", "sha256:12").code(), BELLOWS_MODEL_ERR_INVALID);
}

Test(model_programs, takes_only_users_that_can_be, .timeout = 60) {
  const ScratchDir folder;
  for (const char* uid : {"4294967296", "4294967295", "-1", "x"}) {
    ChildOptions wrong;
    wrong.command = {MODELD, "--run=" + folder.path() + "/run", "--budget=1M",
                     std::string("--model=m=/m,tenant=a,uid=") + uid};
    wrong.pipe_err = true;
    wrong.death_signal = SIGKILL;
    auto child = Child::start(wrong);
    cr_assert(child.ok());
    cr_assert(eventually([&] {
      return child->poll_exit().has_value() ||
             std::filesystem::exists(folder.path() + "/run/keeper");
    }));
    cr_expect(child->poll_exit() && child->poll_exit()->code() == 2, "%s", uid);
  }
}

Test(model_programs, the_sockets_are_for_whom_they_should_be, .timeout = 60) {
  ModelStore store;
  store.start();
  struct stat s;
  cr_assert_eq(stat(store.socket("a").c_str(), &s), 0);
  cr_expect_eq(s.st_mode & 07777, 0666);
  cr_assert_eq(stat((store.run() + "/control").c_str(), &s), 0);
  cr_expect_eq(s.st_mode & 07777, 0600);
}

Test(model_programs, goes_on_when_its_log_is_full, .timeout = 60) {
  const ScratchDir folder;
  const std::string socket = folder.path() + "/socket", file = folder.path() + "/m.st";
  write_file(file, one_tensor("w", "data"));
  ChildOptions full;
  full.command = {"/bin/sh",
                  "-c",
                  "exec \"$@\" 2>/dev/full",
                  "sh",
                  MODELD,
                  "--run=" + folder.path() + "/run",
                  "--budget=1M",
                  "--alone=1",
                  "--helpers=" HELPERS,
                  "--socket=" + socket + ",tenant=a",
                  "--model=m=" + file + ",tenant=a"};
  full.death_signal = SIGKILL;
  auto child = Child::start(full);
  cr_assert(child.ok());
  cr_assert(eventually(
      [&] { return std::filesystem::exists(socket) || child->poll_exit().has_value(); }));
  // Between its appearance and listen(2) nobody is let in.
  cr_expect(eventually([&] { return OpenModel(socket, "m").ok(); }));
  cr_expect(!child->poll_exit().has_value());
}

Test(model_programs, a_daemon_that_takes_nobody_is_waited_for_no_longer_than_asked, .timeout = 30) {
  const ScratchDir folder;
  const std::string path = folder.path() + "/socket";
  plain::Handle listener;
  listen_at(path, &listener);
  std::list<plain::Handle> queue;
  while (plain::connect_to(path.c_str(), &queue.emplace_back(), 1) == 0) {
  }
  const OpenModel model(path, "m", 100);
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(has(model.error(), "timed out"), "%s", model.error().c_str());
}

Test(model_programs, only_one_daemon_has_a_folder, .timeout = 60) {
  ModelStore store;
  store.start();
  ChildOptions second;
  second.command = {MODELD, "--run=" + store.run(), "--budget=1M"};
  second.pipe_err = true;
  auto child = Child::start(second);
  cr_assert(child.ok());
  cr_assert(eventually([&] { return child->poll_exit().has_value(); }));
  cr_expect_eq(child->poll_exit()->code(), 1);
}
