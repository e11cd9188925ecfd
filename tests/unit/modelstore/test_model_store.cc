// SPDX-License-Identifier: Apache-2.0
// bellows-modeld with programs on its sockets.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
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

Test(model_store, lends_a_model_by_name_and_by_digest, .timeout = 60) {
  ModelStore store;
  const std::string data = random_bytes(3 * kMega + 5);
  store.add("some/model", data);
  store.start();
  const OpenModel model = store.open("some/model");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect_eq(bellows_model_count(model.get()), 1);
  bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  cr_assert_eq(bellows_model_tensor(model.get(), 0, &tensor), BELLOWS_MODEL_OK);
  cr_expect_str_eq(tensor.name, "w");
  cr_expect(tensor.dtype == BELLOWS_MODEL_U8 && tensor.ndims == 1 &&
            tensor.shape[0] == data.size());
  cr_expect(model.data("w") == data);
  cr_expect_eq(bellows_model_tensor(model.get(), 1, &tensor), BELLOWS_MODEL_ERR_INVALID);
  cr_expect_eq(bellows_model_find(model.get(), "x", &tensor), BELLOWS_MODEL_ERR_NOT_FOUND);
  const OpenModel again = store.open("sha256:" + model.digest());
  cr_assert(again.ok(), "%s", again.error().c_str());
  cr_expect(again.data("w") == data && again.digest() == model.digest());
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_store, a_digest_never_gets_other_bytes, .timeout = 60) {
  ModelStore store;
  const std::string file = store.add("m", "first");
  store.start();
  std::string digest;
  {
    const OpenModel model = store.open("m");
    cr_assert(model.ok(), "%s", model.error().c_str());
    digest = "sha256:" + model.digest();
  }
  write_file(file, one_tensor("w", "other"));
  ControlClient control(store);
  cr_assert(
      eventually([&] { return control.call(modelwire::ControlOp::evict, "a", "m").empty(); }));
  for (const std::string& name : {digest, std::string("m")}) {
    const OpenModel changed = store.open(name);
    cr_expect_eq(changed.code(), BELLOWS_MODEL_ERR_CORRUPT);
    cr_expect(has(changed.error(), "was changed since"), "%s", changed.error().c_str());
  }
  cr_expect(control.add("a", "m", file) == "");
  cr_expect(store.open("m").data("w") == "other");
  cr_expect_eq(store.open(digest).code(), BELLOWS_MODEL_ERR_NOT_FOUND);
}

Test(model_store, the_library_refuses_another_digest, .timeout = 60) {
  const ScratchDir folder;
  const std::string path = folder.path() + "/socket";
  plain::Handle listener;
  listen_at(path, &listener);
  const pid_t child = fork_child();
  if (child == 0) {
    const OpenModel model(path, "sha256:" + std::string(64, 'a'));
    _exit(model.code() == BELLOWS_MODEL_ERR_CORRUPT && has(model.error(), "gave another") ? 0 : 1);
  }
  const plain::Handle peer(accept(listener.get(), nullptr, nullptr));
  modelwire::ModelReply reply;
  reply.answer = modelwire::Answer::opened;
  reply.handle = 1;
  cr_assert_eq(write(peer.get(), &reply, sizeof reply), static_cast<ssize_t>(sizeof reply));
  int status = 1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect_eq(status, 0);
}

Test(model_store, a_hundred_openers_cause_one_load, .timeout = 100) {
  ModelStore store;
  const std::string data = random_bytes(20 * kMega);
  store.add("m", data);
  store.start();
  std::vector<pid_t> children;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork_child();
    if (child == 0) _exit(store.open("m").data("w") == data ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
  }
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_store, hidden_and_absent_are_one, .timeout = 60) {
  ModelStore store;
  store.add("secret", "s");
  store.add("shown", "t", "tenant=a,visible=b");
  store.add("public", "u", "tenant=a,visible=*");
  store.start();
  const OpenModel mine = store.open("secret");
  cr_assert(mine.ok(), "%s", mine.error().c_str());
  cr_expect(store.open("shown", "b").ok() && store.open("public", "b").ok());
  const OpenModel hidden = store.open("secret", "b"), absent = store.open("absent", "b");
  cr_expect(hidden.code() == BELLOWS_MODEL_ERR_NOT_FOUND && absent.code() == hidden.code());
  cr_expect(hidden.error() == "model secret: there is no such model");
  cr_expect(absent.error() == "model absent: there is no such model");
  // Its digest is no key to it either.
  const OpenModel by_digest = store.open("sha256:" + mine.digest(), "b");
  cr_expect(by_digest.code() == BELLOWS_MODEL_ERR_NOT_FOUND);
  bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  const std::string socket = store.socket("b");
  config.socket = socket.c_str();
  cr_expect_eq(bellows_model_prefetch("secret", &config, nullptr), BELLOWS_MODEL_ERR_NOT_FOUND);
}

Test(model_store, one_cannot_put_a_model_in_the_place_of_anothers, .timeout = 60) {
  ModelStore store;
  store.add("m", "the real one");
  write_file(store.file("fake"), one_tensor("w", "another"));
  store.option("--model=m=" + store.file("fake") + ",tenant=b,visible=*");
  store.start();
  cr_expect(store.open("m", "a").data("w") == "the real one");
  cr_expect(store.open("m", "b").data("w") == "another");
}

Test(model_store, one_cannot_show_a_model_under_the_name_that_another_shows, .timeout = 60) {
  ModelStore store;
  store.add("m", "the real one", "tenant=c,visible=*");
  store.start();
  const OpenModel real = store.open("m", "b");
  cr_expect(real.data("w") == "the real one");
  write_file(store.file("fake"), one_tensor("w", "another"));
  ControlClient control(store);
  cr_expect(control.add("a", "m", store.file("fake"), "*") == "");
  cr_expect_eq(store.open("m", "b").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  cr_expect(store.open("sha256:" + real.digest(), "b").ok());
  cr_expect(store.open("m", "a").data("w") == "another");
}

Test(model_store, takes_what_is_in_a_folder, .timeout = 60) {
  ModelStore store;
  const std::string folder = store.path() + "/models";
  cr_assert_eq(mkdir(folder.c_str(), 0700), 0);
  cr_assert_eq(mkdir((folder + "/deep").c_str(), 0700), 0);
  write_file(folder + "/one.safetensors", one_tensor("w", "1"));
  write_file(folder + "/deep/model.safetensors", one_tensor("w", "2"));
  write_file(folder + "/README", "no model");
  store.option("--models=team=" + folder + ",tenant=a");
  store.start();
  cr_expect(store.open("team/one").data("w") == "1");
  cr_expect(store.open("team/deep").data("w") == "2");
  cr_expect_eq(store.open("team/README").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
}

Test(model_store, reads_a_folder_with_the_rights_of_its_user, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can take another user's rights");
  constexpr uid_t kNobody = 65534;
  ModelStore store;
  cr_assert_eq(chmod(store.path().c_str(), 0755), 0);
  const std::string folder = store.path() + "/models", roots = store.path() + "/roots";
  for (const std::string& each : {folder, roots, roots + "/deep"})
    cr_assert_eq(mkdir(each.c_str(), 0700), 0);
  write_file(folder + "/one.safetensors", one_tensor("w", "1"));
  write_file(roots + "/deep/model.safetensors", one_tensor("w", "2"));
  cr_assert_eq(symlink((roots + "/deep").c_str(), (folder + "/deep").c_str()), 0);
  store.option("--models=" + folder + ",tenant=a,uid=" + std::to_string(kNobody));
  // It is left out, and the daemon starts.
  store.add("other", "3");
  store.start();
  cr_expect(store.says("cannot read " + folder + ": Permission"), "%s", store.log().c_str());
  cr_expect_eq(store.open("one").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  cr_expect(store.open("other").data("w") == "3");
  store.stop();
  for (const std::string& each : {folder, folder + "/one.safetensors"})
    cr_assert_eq(chown(each.c_str(), kNobody, 0), 0);
  store.start();
  cr_expect(store.open("one").data("w") == "1");
  cr_expect_eq(store.open("deep").code(), BELLOWS_MODEL_ERR_NOT_FOUND,
               "a link to what it can't see");
  store.stop();
  store.option("--models=" + folder + ",tenant=a,uid=54321");
  store.start();
  cr_expect(store.says("no user 54321"), "%s", store.log().c_str());
  cr_expect(store.open("one").ok());
}

Test(model_store, takes_no_more_of_a_folder_than_it_may, .timeout = 60) {
  ModelStore store;
  const std::string folder = store.path() + "/models";
  cr_assert_eq(mkdir(folder.c_str(), 0700), 0);
  for (int i = 0; i < 4097; ++i)
    cr_assert_eq(mkdir((folder + "/m" + std::to_string(10000 + i)).c_str(), 0700), 0);
  for (const char* name : {"m10000", "m14095", "m14096"})
    write_file(folder + "/" + name + "/model.safetensors", one_tensor("w", "1"));
  store.option("--models=" + folder + ",tenant=a");
  store.start();
  cr_expect(store.says("more than 4096 models"), "%s", store.log().c_str());
  cr_expect(store.open("m10000").ok() && store.open("m14095").ok());
  cr_expect_eq(store.open("m14096").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
}

Test(model_store, a_killed_programs_references_return, .timeout = 60) {
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

Test(model_store, memory_counts_until_the_last_has_unmapped_it, .timeout = 60) {
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

Test(model_store, equal_bytes_of_a_tenant_have_one_memory_and_no_other_sees_it, .timeout = 60) {
  ModelStore store;
  const std::string data = random_bytes(kMega);
  store.add("m", data);
  store.add("same", data);
  store.add("others", data, "tenant=b");
  store.start();
  const auto inode_of = [&](const std::string& name, const std::string& tenant) {
    RawClient client(store.socket(tenant));
    plain::Handle memory;
    cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, name)));
    cr_assert(client.receive(&memory).has_value());
    struct stat s;
    cr_assert_eq(fstat(memory.get(), &s), 0);
    return s.st_ino;
  };
  const auto inode = inode_of("m", "a");
  cr_expect_eq(inode_of("same", "a"), inode);
  // By the inode of what it is lent, and its times, a tenant could tell that another has these
  // bytes.
  cr_expect_neq(inode_of("others", "b"), inode);
  store.restart();
  cr_expect_eq(inode_of("same", "a"), inode_of("m", "a"));
  cr_expect_neq(inode_of("others", "b"), inode_of("m", "a"));
}

Test(model_store, nothing_lies_where_nothing_belongs, .timeout = 60) {
  ModelStore store;
  // So many pieces that each thread of the loader reads several through the same buffer.
  store.add("m", random_bytes(64 * kMega));
  store.start();
  RawClient client(store.socket("a"));
  plain::Handle memory;
  cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "m")));
  cr_assert(client.receive(&memory).has_value());
  struct stat s;
  cr_assert_eq(fstat(memory.get(), &s), 0);
  // Behind the catalogue.
  char tail[64];
  cr_assert_eq(pread(memory.get(), tail, sizeof tail, s.st_size - sizeof tail), sizeof tail);
  cr_expect(std::all_of(std::begin(tail), std::end(tail), [](char byte) { return byte == 0; }));
}

Test(model_store, refuses_other_users, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can be another user");
  ModelStore store;
  store.add("m", "data");
  store.start();
  cr_assert_eq(chmod(store.path().c_str(), 0755), 0);
  cr_expect(holds_as(kAlice, [&] { return has(store.open("m").error(), "another user's"); }));
  cr_expect(store.open("m").ok());
}

Test(model_store, no_program_makes_it_wait, .timeout = 60) {
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

Test(model_store, takes_no_descriptors, .timeout = 60) {
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

Test(model_store, who_takes_no_descriptors_stops_no_other, .timeout = 60) {
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

Test(model_store, waits_for_descriptors_without_work, .timeout = 60) {
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

Test(model_store, answers_each_handle, .timeout = 60) {
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

Test(model_store, says_what_is_wrong_with_a_file, .timeout = 60) {
  ModelStore store;
  const std::string path = store.add("m", "data");
  write_file(path, "rubbish in a file");
  store.start();
  const OpenModel bad = store.open("m");
  cr_expect_eq(bad.code(), BELLOWS_MODEL_ERR_CORRUPT);
  cr_expect(has(bad.error(), path) && has(bad.error(), "the header is not valid"), "%s",
            bad.error().c_str());
  write_file(path, one_tensor("w", "whole"));
  cr_expect(eventually([&] { return store.open("m").data("w") == "whole"; }));
}

Test(model_store, serves_programs_in_c, .timeout = 60) {
  ModelStore store;
  store.add("m", "some data");
  store.start();
  cr_expect(read_from_c(store.socket("a").c_str(), "m", "some data"));
  cr_expect(!read_from_c(store.socket("a").c_str(), "m", "other data"));
  cr_expect(!read_from_c(store.socket("a").c_str(), "absent", "some data"));
  cr_expect(refuses_nonsense(store.socket("a").c_str()));
}

Test(model_store, an_absent_daemon_is_an_error_with_a_sentence, .timeout = 60) {
  const OpenModel model("/nowhere/models.sock", "m");
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(has(model.error(), "/nowhere/models.sock: there is no bellows-modeld"));
  cr_expect_eq(OpenModel("/nowhere", "../m").code(), BELLOWS_MODEL_ERR_INVALID);
  cr_expect_eq(OpenModel("/nowhere", "sha256:12").code(), BELLOWS_MODEL_ERR_INVALID);
}

Test(model_store, takes_only_users_that_can_be, .timeout = 60) {
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

Test(model_store, the_sockets_are_for_whom_they_should_be, .timeout = 60) {
  ModelStore store;
  store.start();
  struct stat s;
  cr_assert_eq(stat(store.socket("a").c_str(), &s), 0);
  cr_expect_eq(s.st_mode & 07777, 0666);
  cr_assert_eq(stat((store.run() + "/control").c_str(), &s), 0);
  cr_expect_eq(s.st_mode & 07777, 0600);
}

Test(model_store, goes_on_when_its_log_is_full, .timeout = 60) {
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

Test(model_store, a_daemon_that_takes_nobody_is_waited_for_no_longer_than_asked, .timeout = 30) {
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

Test(model_store, only_one_daemon_has_a_folder, .timeout = 60) {
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
