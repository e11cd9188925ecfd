// SPDX-License-Identifier: Apache-2.0
// Which models bellows-modeld lends, and to whom.
#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr std::size_t kMega = 1 << 20;

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
