// SPDX-License-Identifier: Apache-2.0
// Models that lie elsewhere, and their images on the disk, through bellows-modeld.
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <set>

#include "tests/unit/modelstore/tiered_store.h"

using namespace bellows;
using namespace bellows::model_test;
using modelwire::ControlOp;

namespace {

namespace fs = std::filesystem;

std::string shard(const std::string& tensor, const std::string& data) {
  return one_tensor(tensor, data);
}

void flip_byte(const std::string& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

}  // namespace

Test(model_remote, is_read_from_a_url, .timeout = 60) {
  FileServer server;
  const std::string data = random_bytes(9 * kMega + 77);
  server.put("/m.safetensors", one_tensor("w", data));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors?signature=s3cret"));
  store.start();
  const OpenModel model = store.open("m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == data);
  cr_expect(!has(store.log(), "s3cret"), "%s", store.log().c_str());
  // The same bytes are the same model, wherever they were.
  ModelStore local;
  local.add("m", data);
  local.start();
  cr_expect(local.open("m").digest() == model.digest());
}

Test(model_remote, an_index_names_files_beside_it, .timeout = 60) {
  FileServer server;
  server.put("/d/model.safetensors.index.json",
             R"({"weight_map": {"a": "first part.safetensors", "b": "second.safetensors"}})");
  server.put("/d/first%20part.safetensors", shard("a", "aaaa"));
  server.put("/d/second.safetensors", shard("b", "bbbbbbbb"));
  TieredStore store;
  store.remote("m", server.url("/d/model.safetensors.index.json"));
  store.remote("q", server.url("/d/model.safetensors.index.json?sig=1"));
  store.start();
  const OpenModel model = store.open("m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("a") == "aaaa" && model.data("b") == "bbbbbbbb");
  cr_expect(has(store.open("q").error(), "has no query"));
}

Test(model_remote, is_added_to_a_running_daemon, .timeout = 60) {
  FileServer server;
  server.put("/m.safetensors", one_tensor("w", "data"));
  TieredStore store;
  store.start();
  ControlClient control(store);
  cr_assert_str_eq(control.add("a", "m", server.url("/m.safetensors")).c_str(), "");
  const OpenModel model = store.open("m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == "data");
  cr_expect(has(control.add("a", "x", "ftp://127.0.0.1/x"), "no URL that begins with"));
}

Test(model_remote, whoever_opens_it_is_told_what_is_wrong, .timeout = 60) {
  FileServer server;
  server.put("/m.safetensors", one_tensor("w", "data"));
  server.put("/junk.safetensors", "this is no safetensors file");
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.remote("none", server.url("/none.safetensors"));
  store.remote("junk", server.url("/junk.safetensors"));
  store.remote("signed", "https://user:hunter2@127.0.0.1/m.safetensors?x=s3cret");
  store.start();
  cr_expect(has(store.open("none").error(), "404"), "%s", store.open("none").error().c_str());
  cr_expect_eq(store.open("junk").code(), BELLOWS_MODEL_ERR_CORRUPT);
  const std::string said = store.open("signed").error();
  cr_expect(has(said, "leave them out") && !has(said, "s3cret") && !has(said, "hunter2"), "%s",
            said.c_str());
  store.settings("host = models.example.org\naddress = 127.0.0.1\n");
  cr_expect(has(store.open("m").error(), "none that this site lets be asked"));
  store.settings("secret_key = abc\n");
  cr_expect(has(store.open("m").error(), "line 1") && !has(store.open("m").error(), "abc"));
  store.settings("address = 127.0.0.1\n", 0644);
  cr_expect(has(store.open("m").error(), "nobody else may read"));
  store.settings("address = 127.0.0.1\n");
  cr_expect(store.open("m").ok(), "a load reads what the settings are then");
}

Test(model_remote, is_not_read_unless_the_daemon_was_told_how, .timeout = 60) {
  FileServer server;
  server.put("/m.safetensors", one_tensor("w", "data"));
  ModelStore store;
  store.option("--model=m=" + server.url("/m.safetensors") + ",tenant=a");
  store.start();
  cr_expect(has(store.open("m").error(), "reads no models from afar"));
  cr_expect_eq(server.requests(), 0);
}

Test(model_remote, is_read_once_for_a_hundred_who_open_it, .timeout = 60) {
  FileServer server;
  const std::string file = one_tensor("w", random_bytes(6 * kMega));
  server.put("/m.safetensors", file);
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.start();
  server.hold(true);
  std::vector<std::unique_ptr<RawClient>> openers;
  for (int i = 0; i < 100; ++i) {
    openers.push_back(std::make_unique<RawClient>(store.socket("a")));
    RawClient& opener = *openers.back();
    cr_assert(opener.send(RawClient::request(modelwire::Op::open, 1, "m")));
    // Its answer comes at once, and after the open was taken.
    cr_assert(opener.send(RawClient::request(modelwire::Op::prefetch, 2, "m")));
    const auto accepted = opener.receive();
    cr_assert(accepted && accepted->answer == modelwire::Answer::accepted);
  }
  server.hold(false);
  for (const auto& opener : openers) {
    const auto opened = opener->receive();
    cr_assert(opened && opened->answer == modelwire::Answer::opened);
  }
  // The version, the header's length, the header, and two pieces.
  cr_expect_eq(server.requests(), 5);
  cr_expect(server.sent() < file.size() + 1000, "%llu bytes of %zu were sent",
            static_cast<unsigned long long>(server.sent()), file.size());
}

Test(model_remote, a_loader_that_is_killed_in_it_is_replaced, .timeout = 60) {
  FileServer server;
  const std::string data = random_bytes(6 * kMega);
  server.put("/m.safetensors", one_tensor("w", data));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.start();
  server.stall(true);
  std::optional<OpenModel> model;
  std::thread opener([&] { model.emplace(store.socket("a"), "m"); });
  cr_expect(eventually([&] { return server.has_stalled(); }));
  server.stall(false);
  for (const pid_t loader : store.helpers("bellows-model-loader")) kill(loader, SIGKILL);
  opener.join();
  cr_assert(model->ok(), "%s", model->error().c_str());
  cr_expect(model->data("w") == data);
}

Test(model_remote, one_that_stalls_is_given_up_while_others_are_served, .timeout = 60) {
  FileServer server;
  server.put("/m.safetensors", one_tensor("w", random_bytes(6 * kMega)));
  TieredStore store;
  store.option("--stall=1");
  store.remote("m", server.url("/m.safetensors"));
  store.add("local", "data");
  store.start();
  server.stall(true);
  std::optional<OpenModel> model;
  std::thread opener([&] { model.emplace(store.socket("a"), "m"); });
  cr_expect(eventually([&] { return server.has_stalled(); }));
  cr_expect(store.open("local", "a", 1000).ok(), "in the middle of it");
  opener.join();
  cr_expect_eq(model->code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(has(model->error(), "made no progress for 1 s"), "%s", model->error().c_str());
}

Test(model_tiers, a_cold_open_finds_the_image_by_its_digest, .timeout = 60) {
  FileServer server;
  const std::string data = random_bytes(3 * kMega + 5);
  server.put("/m.safetensors", one_tensor("w", data));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.with_disk("64M");
  store.start();
  const std::string digest = store.store_image("m");
  const unsigned before = server.requests();
  const OpenModel model = store.open("m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == data && model.digest() == digest);
  cr_expect_eq(server.requests(), before, "the server is not asked for what is known");
  cr_expect(store.said("from its image on the disk") == 1, "%s", store.log().c_str());
}

Test(model_tiers, after_a_boot_the_server_is_asked_for_the_version_only, .timeout = 60) {
  FileServer server;
  const std::string data = random_bytes(3 * kMega), other = random_bytes(2 * kMega, 2);
  server.put("/m.safetensors", one_tensor("w", data));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.with_disk("64M");
  store.start();
  store.store_image("m");
  store.reboot();
  const unsigned before = server.requests();
  cr_expect(store.open("m").data("w") == data);
  cr_expect_eq(server.requests(), before + 1);
  cr_expect(store.says("from its image on the disk"));
  // Another version is another model.
  store.reboot();
  server.put("/m.safetensors", one_tensor("w", other), "\"v2\"");
  const OpenModel model = store.open("m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == other);
  cr_expect(store.says(std::string("stored ") + model.digest()) && store.images() == 2);
}

Test(model_tiers, places_that_look_alike_have_images_of_their_own, .timeout = 60) {
  FileServer server;
  TieredStore store;
  const std::array<std::string, 4> paths = {"/get?model=A", "/get?model=B", "/llama@v1/x",
                                            "/other@v1/x"};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    // Of one size and one entity tag.
    server.put(paths[i], one_tensor("w", random_bytes(kMega, static_cast<unsigned>(i + 1))));
    store.remote("m" + std::to_string(i), server.url(paths[i]), i % 2 ? "tenant=b" : "tenant=a");
  }
  store.with_disk("64M");
  store.start();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string tenant = i % 2 ? "b" : "a", name = "m" + std::to_string(i);
    const OpenModel model = store.open(name, tenant);
    cr_assert(model.ok(), "%s", model.error().c_str());
    cr_expect(model.data("w") == random_bytes(kMega, static_cast<unsigned>(i + 1)), "%s",
              paths[i].c_str());
    cr_assert(store.says(std::string("stored ") + model.digest()), "%s", store.log().c_str());
  }
  cr_expect_eq(store.images(), paths.size());
  // After a boot each is found again.
  store.reboot();
  for (std::size_t i = 0; i < paths.size(); ++i)
    cr_expect(store.open("m" + std::to_string(i), i % 2 ? "b" : "a").ok());
  cr_expect_eq(store.said("from its image on the disk"), paths.size());
}

Test(model_tiers, a_digest_that_an_option_gives_is_enough, .timeout = 60) {
  std::string digest, url;
  const std::string data = random_bytes(kMega);
  TieredStore store;
  store.with_disk("64M");
  {
    FileServer server;
    server.put("/m.safetensors", one_tensor("w", data));
    url = server.url("/m.safetensors");
    store.remote("m", url);
    store.remote("wrong", url, "tenant=a,digest=" + std::string(64, '0'));
    store.start();
    digest = store.store_image("m");
    const OpenModel wrong = store.open("wrong");
    cr_expect_eq(wrong.code(), BELLOWS_MODEL_ERR_CORRUPT);
    cr_expect(has(wrong.error(), "and must have 0000"), "%s", wrong.error().c_str());
  }
  // The server is gone.
  store.remote("known", url, "tenant=a,digest=" + digest);
  store.reboot();
  const OpenModel model = store.open("known");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == data);
}

Test(model_tiers, one_tenants_image_is_no_others, .timeout = 60) {
  FileServer server;
  const std::string data = random_bytes(3 * kMega);
  server.put("/m.safetensors", one_tensor("w", data));
  TieredStore store;
  const std::string url = server.url("/m.safetensors");
  store.remote("of-a", url);
  store.with_disk("64M");
  store.start();
  const unsigned none = server.requests();
  const std::string digest = store.store_image("of-a");
  const unsigned first = server.requests() - none;
  // The same place, and the same bytes by their digest: what the other has makes neither faster.
  store.remote("of-b", url, "tenant=b");
  store.remote("known", url, "tenant=b,digest=" + digest);
  store.reboot();
  for (const std::string name : {"of-b", "known"}) {
    const unsigned before = server.requests();
    cr_expect(store.open(name, "b").data("w") == data);
    if (name == "of-b") {
      cr_expect_eq(server.requests(), before + first, "as if nobody had it");
      cr_assert(eventually([&] { return store.said("the disk tier: stored") == 2; }));
    } else {
      cr_expect_eq(server.requests(), before, "its own image it finds");
    }
  }
  cr_expect_eq(store.images(), 1, "there is one file of them");
  cr_expect(store.said("from its image on the disk") == 1, "%s", store.log().c_str());
}

Test(model_tiers, a_damaged_image_is_removed_and_the_source_read_again, .timeout = 60) {
  FileServer server;
  const std::string data = random_bytes(3 * kMega);
  server.put("/m.safetensors", one_tensor("w", data));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.with_disk("64M");
  store.start();
  const std::string digest = store.store_image("m");
  const std::string path = store.disk() + "/" + digest;
  // A byte of the model; one of the block behind it; and what is missing at the end.
  for (int kind = 0; kind < 3; ++kind) {
    const auto size = static_cast<std::int64_t>(fs::file_size(path));
    if (kind < 2) flip_byte(path, kind == 0 ? size / 2 : size - 4090);
    if (kind == 2) fs::resize_file(path, static_cast<std::uintmax_t>(size - 4096));
    const std::size_t stored = store.said("the disk tier: stored");
    OpenModel model = store.open("m");
    cr_assert(model.ok(), "%s", model.error().c_str());
    cr_expect(model.data("w") == data, "damage %d", kind);
    cr_assert(eventually([&] { return store.said("the disk tier: stored") > stored; }),
              "damage %d: %s", kind, store.log().c_str());
    model.close();
    store.evict("m");
  }
  cr_expect(store.open("m").data("w") == data);
  cr_expect(store.says("from its image on the disk"), "the new one is right");
}

Test(model_tiers, the_disk_holds_its_budget_and_what_was_used_last, .timeout = 60) {
  FileServer server;
  TieredStore store;
  std::array<std::string, 4> digests;
  for (const char* name : {"m0", "m1", "m2", "m3"}) {
    server.put(std::string("/") + name, one_tensor("w", random_bytes(kMega, name[1])));
    store.remote(name, server.url(std::string("/") + name));
  }
  // For three of them, whatever the catalogues take.
  store.with_disk("3200K");
  store.start();
  for (std::size_t i = 0; i < 3; ++i) digests[i] = store.store_image("m" + std::to_string(i));
  cr_expect(store.open("m0").ok(), "which is used again");
  store.evict("m0");
  store.reboot();
  std::atomic<bool> ends{false}, exceeded{false};
  std::thread watcher([&] {
    while (!ends) exceeded = exceeded || store.image_bytes() > 3200 * 1024;
  });
  digests[3] = store.store_image("m3");
  ends = true;
  watcher.join();
  cr_expect(!exceeded);
  cr_expect(store.has_image(digests[0]) && store.has_image(digests[2]) &&
                store.has_image(digests[3]) && !store.has_image(digests[1]),
            "m1 was used longest ago, and that outlives a restart");
}

Test(model_tiers, a_tenant_has_its_part_of_the_disk, .timeout = 60) {
  FileServer server;
  TieredStore store;
  for (const char* name : {"a1", "a2", "b1"}) {
    server.put(std::string("/") + name,
               one_tensor("w", random_bytes(kMega, name[0] * 3u + name[1])));
    store.remote(name, server.url(std::string("/") + name), std::string("tenant=") + name[0]);
  }
  server.put("/a3", one_tensor("w", random_bytes(3 * kMega, 9)));
  store.remote("a3", server.url("/a3"));
  store.with_disk("64M");
  store.option("--disk-tenant=a=1500K");
  store.start();
  const std::string b1 = store.store_image("b1", "b"), a1 = store.store_image("a1");
  const std::string a2 = store.store_image("a2");
  cr_expect(!store.has_image(a1) && store.has_image(b1), "what a tenant lacks comes from its own");
  cr_expect(store.open("a3").ok());
  cr_expect(store.says("is not stored: the model has"), "%s", store.log().c_str());
  cr_expect(store.has_image(a2) && store.images() == 2, "what can't fit moves nothing");
  store.reboot();
  cr_expect(store.open("b1", "b").ok() && store.has_image(a2));
}

Test(model_tiers, keeps_models_of_files_if_asked_to, .timeout = 60) {
  TieredStore store;
  const std::string data = random_bytes(kMega);
  store.add("m", data);
  store.with_disk("64M", ",files=yes");
  store.start();
  const std::string digest = store.store_image("m");
  store.reboot();
  cr_expect(store.open("m").data("w") == data);
  cr_expect(store.says("from its image on the disk"));
  store.reboot();
  write_file(store.file("m"), one_tensor("w", "other"));
  cr_expect(store.open("m").data("w") == "other", "a changed file has no image");

  TieredStore without;
  without.add("m", data);
  without.with_disk("64M");
  without.start();
  cr_expect(without.open("m").ok());
  without.evict("m");
  cr_expect(without.open("m").ok());
  cr_expect_eq(without.said("from its image"), 0);
}

Test(model_tiers, a_model_from_its_image_is_found_by_its_file_still, .timeout = 60) {
  TieredStore store;
  const std::string data = random_bytes(kMega);
  const std::string file = store.add("m", data);
  store.with_disk("64M", ",files=yes");
  store.start();
  store.store_image("m");
  cr_expect(store.open("m").ok());
  cr_assert(store.says("from its image on the disk"), "%s", store.log().c_str());
  const OpenModel model = store.open("file:" + file);
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == data);
}

Test(model_tiers, goes_on_without_the_process_that_has_the_disk, .timeout = 60) {
  FileServer server;
  const std::string data = random_bytes(kMega);
  server.put("/m.safetensors", one_tensor("w", data));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.with_disk("64M");
  store.start();
  store.store_image("m");
  // The list of children may lack one while another ends.
  const auto disk = [&] {
    std::vector<pid_t> found;
    cr_assert(eventually([&] {
      found = store.helpers("bellows-model-disk");
      return found.size() == 1;
    }));
    return found.front();
  };
  // It hangs: whoever opens a model waits for it for a while only, and the next not at all.
  const pid_t first = disk();
  kill(first, SIGSTOP);
  cr_expect(store.open("m").data("w") == data);
  store.evict("m");
  const auto begin = std::chrono::steady_clock::now();
  cr_expect(store.open("m").data("w") == data);
  cr_expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(4));
  store.evict("m");
  // It is killed: another takes its place.
  kill(first, SIGKILL);
  cr_assert(eventually([&] { return disk() != first; }));
  cr_expect(eventually([&] {
    cr_expect(store.open("m").data("w") == data);
    store.evict("m");
    return store.said("from its image") > 0;
  }));
}

Test(model_tiers, what_is_pinned_comes_from_its_image_after_a_restart, .timeout = 60) {
  FileServer server;
  server.put("/m.safetensors", one_tensor("w", random_bytes(kMega)));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.with_disk("64M");
  store.start();
  store.store_image("m");
  // The daemon is killed while what it has just pinned is not there yet.
  std::vector<pid_t> disk;
  cr_assert(eventually([&] {
    disk = store.helpers("bellows-model-disk");
    return disk.size() == 1;
  }));
  kill(disk.front(), SIGSTOP);
  cr_assert_str_eq(ControlClient(store).call(ControlOp::pin, "a", "m").c_str(), "");
  store.stop();
  kill(disk.front(), SIGKILL);
  const unsigned before = server.requests();
  store.start();
  cr_assert(store.says("loaded "), "%s", store.log().c_str());
  cr_assert(store.says("from its image on the disk"), "%s", store.log().c_str());
  cr_expect_eq(server.requests(), before);
}

Test(model_tiers, what_nobody_knows_anything_of_goes_at_the_start, .timeout = 60) {
  FileServer server;
  server.put("/m.safetensors", one_tensor("w", random_bytes(kMega)));
  TieredStore store;
  store.remote("m", server.url("/m.safetensors"));
  store.with_disk("64M");
  store.start();
  const std::string digest = store.store_image("m");
  store.stop();
  flip_byte(store.disk() + "/records", 80);
  store.start();
  cr_expect(store.says("nobody knows whose they are"));
  cr_expect(eventually([&] { return !store.has_image(digest); }));
  cr_expect(store.open("m").ok());
}
