// SPDX-License-Identifier: Apache-2.0
// Models that are opened by a file that they are read from.

#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

namespace fs = std::filesystem;

/// A folder of two parts and their index, and another file of tensors.
std::string add_parts(ModelStore& store) {
  const std::string folder = store.path() + "/parts";
  fs::create_directory(folder);
  write_file(folder + "/model-00001-of-00002.safetensors", one_tensor("a", "first"));
  write_file(folder + "/model-00002-of-00002.safetensors", one_tensor("b", "second"));
  write_file(folder + "/adapter.safetensors", one_tensor("c", "third"));
  write_file(folder + "/model.safetensors.index.json",
             R"({"weight_map":{"a":"model-00001-of-00002.safetensors",)"
             R"("b":"model-00002-of-00002.safetensors"}})");
  store.option("--model=parts=" + folder + ",tenant=a");
  return folder;
}

}  // namespace

Test(model_by_file, finds_it_by_its_path_and_then_by_any, .timeout = 60) {
  ModelStore store;
  const std::string file = store.add("m", "data");
  store.start();
  cr_expect_eq(store.open("m").data("w"), "data");
  ModelStore fresh;
  const std::string other = fresh.add("n", "more");
  fresh.start();
  const OpenModel first = fresh.open("file:" + other);
  cr_assert(first.ok(), "%s", first.error().c_str());
  cr_expect_eq(first.data("w"), "more");
  const std::string link = store.path() + "/link";
  fs::create_symlink(file, link);
  for (const std::string& path : {file, link})
    cr_expect_eq(store.open("file:" + path).data("w"), "data");
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_by_file, finds_a_model_by_each_of_its_parts, .timeout = 60) {
  ModelStore store;
  const std::string folder = add_parts(store);
  store.start();
  cr_expect_eq(store.open("file:" + folder + "/adapter.safetensors").code(),
               BELLOWS_MODEL_ERR_NOT_FOUND);
  cr_expect_eq(store.said("loaded "), 0, "nobody wanted it");
  const OpenModel model = store.open("file:" + folder + "/model-00002-of-00002.safetensors");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("a") == "first" && model.data("b") == "second");
  cr_expect(store.open("file:" + folder + "/model-00001-of-00002.safetensors").ok());
  cr_expect_eq(store.open("file:" + folder + "/adapter.safetensors").code(),
               BELLOWS_MODEL_ERR_NOT_FOUND);
}

Test(model_by_file, a_file_that_was_changed_finds_nothing, .timeout = 60) {
  ModelStore store;
  const std::string file = store.add("m", "first");
  store.start();
  cr_assert(store.open("m").ok());
  write_file(file, one_tensor("w", "other"));
  const OpenModel changed = store.open("file:" + file);
  cr_expect_eq(changed.code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  cr_expect_eq(store.open("m").data("w"), "first");
}

Test(model_by_file, another_file_at_its_path_finds_nothing, .timeout = 60) {
  ModelStore store;
  const std::string file = store.add("m", "data");
  store.start();
  // As in a container that has another file there: its identity is not that of the file read.
  auto request = RawClient::request(modelwire::Op::open, 1, file);
  request.by = modelwire::By::file;
  RawClient client(store.socket("a"));
  for (int i = 0; i < 2; ++i) {
    cr_assert(client.send(request));
    const auto reply = client.receive();
    cr_assert(reply && reply->answer == modelwire::Answer::failed);
    cr_expect(reply->failure == modelwire::Failure::not_found);
    cr_expect_str_eq(reply->text, "there is no such model");
  }
  cr_expect(store.open("file:" + file).ok());
}

Test(model_by_file, hidden_and_absent_are_one, .timeout = 60) {
  ModelStore store;
  const std::string file = store.add("secret", "s");
  write_file(store.path() + "/absent.st", one_tensor("w", "s"));
  store.start();
  for (int i = 0; i < 2; ++i) {
    const OpenModel hidden = store.open("file:" + file, "b");
    const OpenModel absent = store.open("file:" + store.path() + "/absent.st", "b");
    cr_expect(hidden.code() == BELLOWS_MODEL_ERR_NOT_FOUND && absent.code() == hidden.code());
    cr_expect(has(hidden.error(), ": there is no such model"), "%s", hidden.error().c_str());
    cr_expect(has(absent.error(), ": there is no such model"), "%s", absent.error().c_str());
    cr_assert(store.open("secret").ok());
  }
}

Test(model_by_file, a_restarted_daemon_finds_it, .timeout = 60) {
  ModelStore store;
  const std::string file = store.add("m", "data");
  store.start();
  cr_assert(store.open("m").ok());
  store.restart();
  const OpenModel model = store.open("file:" + file);
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_by_file, what_the_program_cannot_read_is_not_asked_for, .timeout = 60) {
  ModelStore store;
  store.start();
  for (const char* path : {"file:relative", "file:"})
    cr_expect_eq(store.open(path).code(), BELLOWS_MODEL_ERR_INVALID, "%s", path);
  cr_expect_eq(store.open("file:/" + std::string(255, 'a')).code(), BELLOWS_MODEL_ERR_INVALID);
  cr_expect_eq(store.open("file:" + store.path()).code(), BELLOWS_MODEL_ERR_INVALID);
  const OpenModel absent = store.open("file:" + store.path() + "/nowhere");
  cr_expect_eq(absent.code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  cr_expect(has(absent.error(), "No such file"), "%s", absent.error().c_str());
}
