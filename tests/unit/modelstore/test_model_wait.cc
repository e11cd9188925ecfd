// SPDX-License-Identifier: Apache-2.0
// What a program is told that waits for a model.
#include <vector>

#include "modelstore/loader/loader_wire.h"
#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

/// What a callback was told, and its answer to each.
struct Told {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  std::function<int(std::uint64_t done, std::uint64_t total)> answer;

  static int tell(void* argument, std::uint64_t done, std::uint64_t total) {
    auto* told = static_cast<Told*>(argument);
    told->all.emplace_back(done, total);
    return told->answer ? told->answer(done, total) : 0;
  }
};

/// Opens model "m" with a callback; the result's code.
int open_told(const ModelStore& store, Told* told, bellows_model_t** model) {
  bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  const std::string socket = store.socket("a");
  config.socket = socket.c_str();
  config.wait_ms = 20000;
  config.progress = Told::tell;
  config.argument = told;
  return bellows_model_open("m", &config, model);
}

/// Helpers whose loader is this shell script, in which LOADER is the real one.
std::string helpers_with_loader(const ModelStore& store, const std::string& script) {
  const std::string folder = store.path() + "/helpers";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(HELPERS "/bellows-model-keeper",
                                  folder + "/bellows-model-keeper");
  write_file(folder + "/bellows-model-loader", "#!/bin/sh\nLOADER=" HELPERS
                                               "/bellows-model-loader\ncd " +
                                                   store.path() + "\n" + script + "\n");
  std::filesystem::permissions(folder + "/bellows-model-loader", std::filesystem::perms::all);
  return folder;
}

std::string message_of(LoaderWord word, std::uint64_t bytes) {
  LoaderMessage message;
  message.word = word;
  message.bytes = bytes;
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

}  // namespace

Test(model_wait, says_how_far_a_load_is_until_the_program_waits_no_more, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  write_file(store.path() + "/sized", message_of(LoaderWord::sized, 4096));
  write_file(store.path() + "/progress", message_of(LoaderWord::progress, 1234));
  store.start("1G", helpers_with_loader(
                        store, "cat sized >&0\nwhile cat progress >&0; do sleep 0.1; done"));
  Told told;
  told.answer = [](std::uint64_t done, std::uint64_t total) {
    return done == 1234 && total == 4096 ? 1 : 0;
  };
  bellows_model_t* model = nullptr;
  cr_expect_eq(open_told(store, &told, &model), BELLOWS_MODEL_ERR_CANCELLED);
  cr_expect(has(bellows_model_error(model), "given up"));
  cr_expect(!told.all.empty() && told.all.back() == std::make_pair(1234ul, 4096ul));
  bellows_model_close(model);
}

Test(model_wait, ends_with_all, .timeout = 60) {
  ModelStore store;
  const std::string data = random_bytes(3 << 20);
  store.add("m", data);
  store.start("1G",
              helpers_with_loader(store, "while [ ! -e go ]; do sleep 0.02; done\nexec $LOADER"));
  Told told;
  told.answer = [&](std::uint64_t, std::uint64_t) {
    write_file(store.path() + "/go", "");
    return 0;
  };
  bellows_model_t* model = nullptr;
  cr_assert_eq(open_told(store, &told, &model), BELLOWS_MODEL_OK);
  cr_assert_geq(told.all.size(), 2);
  cr_expect(told.all.front() == std::make_pair(0ul, 0ul));
  cr_expect(told.all.back().first >= data.size() &&
            told.all.back().first == told.all.back().second);
  bellows_model_close(model);
  // Now it is there, and nobody waits.
  Told again;
  cr_assert_eq(open_told(store, &again, &model), BELLOWS_MODEL_OK);
  cr_expect(again.all.empty());
  bellows_model_close(model);
}

Test(model_wait, only_who_waits_is_answered, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start();
  RawClient client(store.socket("a"));
  cr_assert(client.send(RawClient::request(modelwire::Op::progress, 1, "")));
  cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "m")));
  cr_assert(client.receive()->answer == modelwire::Answer::opened);
  cr_assert(client.send(RawClient::request(modelwire::Op::progress, 1, "")));
  cr_assert(client.send(RawClient::request(modelwire::Op::prefetch, 2, "m")));
  cr_expect(client.receive()->answer == modelwire::Answer::accepted);
}

Test(model_wait, who_takes_no_answers_is_let_go, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start("1G", helpers_with_loader(store, "exec sleep 1000"));
  RawClient client(store.socket("a"));
  cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "m")));
  const auto question = RawClient::request(modelwire::Op::progress, 1, "");
  cr_expect(eventually([&] { return !client.send(question) && errno != EAGAIN; }));
  Told told;
  told.answer = [](std::uint64_t, std::uint64_t) { return 1; };
  bellows_model_t* model = nullptr;
  cr_expect_eq(open_told(store, &told, &model), BELLOWS_MODEL_ERR_CANCELLED, "others are served");
  bellows_model_close(model);
}

Test(model_wait, an_older_program_goes_on, .timeout = 60) {
  ModelStore store;
  store.add("m", "data");
  store.start();
  const std::string socket = store.socket("a");
  bellows_model_config config;
  std::memset(&config, 0xee, sizeof config);
  config.size = offsetof(bellows_model_config, progress);
  config.socket = socket.c_str();
  config.wait_ms = 20000;
  bellows_model_t* model = nullptr;
  cr_expect_eq(bellows_model_open("m", &config, &model), BELLOWS_MODEL_OK, "%s",
               bellows_model_error(model));
  bellows_model_close(model);
}
