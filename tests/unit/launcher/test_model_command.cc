// SPDX-License-Identifier: Apache-2.0
// `bellows model`, as it is run on a node with a bellows-modeld.
#include "tests/unit/launcher/model_command.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

Ran in_job(const ModelStore& store, const std::string& tenant,
           const std::vector<std::string>& words) {
  return at_socket(store.socket(tenant), words);
}

json seen(const ModelStore& store, const std::string& tenant,
          const std::vector<std::string>& words) {
  return seen_at(store.socket(tenant), words);
}

}  // namespace

Test(model_command, tells_what_the_disk_holds, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(3 << 20));
  store.start();
  cr_expect(shown(store, {"list"})["disk"].is_null() &&
            shown(store, {"show", "m"})["disk"].is_null());
  store.stop();
  store.option("--disk=" + store.path() + "/disk=20M,files=yes");
  store.start();
  cr_assert(eventually([&] { return shown(store, {"list"})["disk"]["answers"] == true; }));
  cr_expect(shown(store, {"list"})["disk"]["images"] == 0);
  cr_assert(store.open("m").ok() && store.says("the disk tier: stored"));
  const json disk = shown(store, {"list"})["disk"];
  cr_expect(disk["images"] == 1 && disk["budget"] == 20 << 20 && disk["used"] > 3 << 20 &&
                disk["used"] < 4 << 20,
            "%s", disk.dump().c_str());
  cr_expect(shown(store, {"show", "m"})["disk"] == disk);
  expect_done(model(store, {"top", "--once"}), "disk for models: 1 image in 3.0 MiB of 20.0 MiB\n");
  expect_done(model(store, {"show", "m"}), "disk       1 image in 3.0 MiB of 20.0 MiB");
  // Without its process, and with a new one.
  const auto helpers = store.helpers("bellows-model-disk");
  cr_assert_eq(helpers.size(), 1);
  kill(helpers[0], SIGKILL);
  cr_assert(eventually([&] { return shown(store, {"list"})["disk"]["answers"] == false; }));
  expect_done(model(store, {"list"}), "1 image in 3.0 MiB of 20.0 MiB, as it was before the disk");
  cr_expect(eventually([&] { return shown(store, {"list"})["disk"] == disk; }));
}

Test(model_command, a_job_sees_what_its_tenant_sees, .timeout = 60) {
  ModelStore store;
  store.add("b/own", random_bytes(3 << 20), "tenant=b");
  store.add("secret", "s");
  store.add("shown", "t", "tenant=a,visible=b");
  store.add("broken", "u", "tenant=b");
  write_file(store.file("broken"), "no model");
  store.start();
  const OpenModel held = store.open("b/own", "b"), others = store.open("secret");
  cr_assert(held.ok() && others.ok());
  cr_expect_eq(store.open("broken", "b").code(), BELLOWS_MODEL_ERR_CORRUPT);
  const json all = seen(store, "b", {"list"})["models"];
  cr_assert_eq(all.size(), 3, "%s", all.dump().c_str());
  cr_expect(all[0]["name"] == "b/own" && all[0]["state"] == "memory" && all[0]["own"] == true &&
            all[0]["bytes"] >= 3 << 20 && all[0]["digest"] == held.digest());
  cr_expect(all[1]["name"] == "broken" && all[1]["state"] == "absent" &&
            all[1]["trouble"].is_string());
  cr_expect(all[2]["name"] == "shown" && all[2]["own"] == false && all[2]["digest"].is_null());
  // Whose it is and who else has it, a job is not told.
  for (const json& model : all)
    for (const char* key : {"tenant", "source", "references", "uses", "idle_s", "holders"})
      cr_expect(!model.contains(key), "%s", key);
  json alone = all[2];
  alone["gpus"] = json::array();
  cr_expect(seen(store, "b", {"show", "shown"}) == alone);
  expect_done(in_job(store, "b", {"list"}), "b/own  own tenant in memory");
  expect_done(in_job(store, "b", {"show", "b/own"}), "in memory");
}

Test(model_command, hidden_from_a_job_and_absent_are_one, .timeout = 60) {
  ModelStore store;
  store.add("secret", "s");
  store.start();
  cr_assert(store.open("secret").ok());
  const Ran hidden = in_job(store, "b", {"show", "secret"});
  const Ran absent = in_job(store, "b", {"show", "absent"});
  expect_failed(hidden, kFailed, "bellows model show: model secret: there is no such model");
  expect_failed(absent, kFailed, "bellows model show: model absent: there is no such model");
  cr_expect(seen(store, "b", {"list"})["models"].empty());
  cr_expect_eq(seen(store, "a", {"list"})["models"].size(), 1);
}

Test(model_command, a_job_is_told_why_it_gets_no_answer, .timeout = 60) {
  ModelStore store;
  store.start();
  expect_failed(in_job(store, "b", {"list", "--tenant=a"}), kUsage, "its own tenant only");
  expect_failed(in_job(store, "c", {"list"}), kUnreachable, "c.sock: No such file");
  expect_done(in_job(store, "c", {"list", "--run=" + store.run()}), "memory for models");
}

Test(model_command, shows_what_there_is_and_who_has_it, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(6 << 20), "tenant=a,visible=b:c");
  store.add("org/n", "data", "tenant=b");
  store.option("--tenant=b=5M");
  store.start("10M");
  const json fresh = shown(store, {"show", "m"});
  cr_expect(fresh["state"] == "absent" && fresh["idle_s"].is_null() && fresh["digest"].is_null());
  const OpenModel mine = store.open("m"), again = store.open("m"), others = store.open("m", "b");
  cr_assert(mine.ok() && again.ok() && others.ok());
  const json all = shown(store, {"list"});
  cr_expect(all["budget"] == 10 << 20 && all["used"] >= 6 << 20 && all["programs"] == 3);
  cr_assert(all["models"].size() == 2 && all["tenants"].size() == 2, "%s", all.dump().c_str());
  const json& m = all["models"][0];
  cr_expect(m["name"] == "m" && m["tenant"] == "a" && m["visible"] == "b,c" &&
            m["state"] == "memory" && m["references"] == 3 && m["uses"] == 3 &&
            m["source"] == store.file("m") && m["digest"] == mine.digest() &&
            m["configured"] == true);
  cr_expect(all["models"][1]["name"] == "org/n" && all["models"][1]["state"] == "absent");
  cr_expect(all["tenants"][1]["tenant"] == "b" && all["tenants"][1]["budget"] == 5 << 20 &&
            all["tenants"][1]["used"] == 0);
  cr_expect_eq(shown(store, {"list", "--tenant=b"})["models"].size(), 1);
  const json holders = shown(store, {"show", "m"})["holders"];
  cr_assert_eq(holders.size(), 2, "%s", holders.dump().c_str());
  cr_expect(holders[0]["job"] == store.socket("a") && holders[0]["count"] == 2 &&
            holders[0]["uid"] == geteuid() && holders[0]["tenant"] == "a");
  expect_done(model(store, {"show", "m"}), "a.sock of tenant a has it twice");
  expect_done(model(store, {"list"}), "memory for models: 8.0 MiB of 10.0 MiB are used");
  expect_done(model(store, {"list"}),
              "loaded: 1 from their sources, 0 from the disk, 0 from other");
}

Test(model_command, more_models_than_an_answer_has_come_in_order, .timeout = 60) {
  ModelStore store;
  for (int i = 0; i < 40; ++i)
    store.add("m" + std::to_string(i), "data", i % 2 == 0 ? "tenant=a" : "tenant=z");
  store.start();
  std::vector<std::pair<std::string, std::string>> names;
  const json all = shown(store, {"list"});
  for (const json& each : all["models"]) names.emplace_back(each["tenant"], each["name"]);
  cr_expect_eq(names.size(), 40);
  cr_expect(std::is_sorted(names.begin(), names.end()));
}

Test(model_command, top_repeats_itself, .timeout = 60) {
  ModelStore store;
  store.add("l", "data");
  store.add("m", "data");
  store.start();
  const OpenModel open = store.open("m");
  const Ran once = model(store, {"top", "--once"});
  expect_done(once, "memory for models");
  cr_expect(once.out.find("\nm ") < once.out.find("\nl "), "%s", once.out.c_str());
  ChildOptions options;
  options.command = {BELLOWS, "model", "top", "--interval=1", "--run=" + store.run()};
  options.pipe_out = true;
  options.death_signal = SIGKILL;
  auto top = Child::start(options);
  cr_assert(top.ok());
  std::string said;
  const auto tables = [&] {
    char chunk[4096];
    ssize_t got;
    while ((got = read(top->out(), chunk, sizeof chunk)) > 0)
      said.append(chunk, static_cast<std::size_t>(got));
    return said.find("NAME", said.find("NAME") + 1) != std::string::npos;
  };
  cr_expect(eventually(tables), "%s", said.c_str());
  kill(top->pid(), SIGKILL);
}

Test(model_command, adds_loads_pins_evicts_and_removes, .timeout = 60) {
  ModelStore store;
  store.start();
  write_file(store.file("m"), one_tensor("w", "data"));
  expect_done(model(store, {"add", "m", store.file("m"), "--tenant=a", "--visible=b"}), "added m");
  cr_expect(shown(store, {"show", "m"})["configured"] == false);
  expect_done(model(store, {"prefetch", "m"}), "m of tenant a is in memory");
  cr_expect(store.open("m", "b").ok());
  expect_done(model(store, {"verify", "m"}), "m of tenant a has its digest in memory");
  expect_done(model(store, {"pin", "m"}), "stays in memory");
  cr_expect(shown(store, {"show", "m"})["pinned"] == true);
  expect_failed(model(store, {"evict", "m"}), kRefused, "'bellows model unpin m' first");
  expect_done(model(store, {"unpin", "m"}), "may be evicted");
  {
    const OpenModel open = store.open("m");
    expect_failed(model(store, {"evict", "m"}), kRefused, "a.sock of tenant a has it once");
  }
  cr_assert(eventually([&] { return model(store, {"evict", "m"}).status == kOk; }));
  cr_expect(shown(store, {"show", "m"})["state"] == "absent");
  expect_failed(model(store, {"verify", "m"}), kRefused, "is not in memory");
  expect_done(model(store, {"remove", "m"}), "removed m");
  expect_failed(model(store, {"show", "m"}), kFailed, "there is no model m on this node");
  expect_failed(model(store, {"pin", "m", "--tenant=a"}), kFailed, "tenant a has no model m");
}

Test(model_command, says_who_has_the_room, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(6 << 20));
  store.add("n", random_bytes(6 << 20, 2));
  store.start("10M");
  expect_done(model(store, {"pin", "m"}), "stays in memory");
  const OpenModel open = store.open("m");
  const Ran ran = model(store, {"prefetch", "n"});
  expect_failed(ran, kRefused, "there is no room");
  cr_expect(has(ran.err, "m of tenant a, 8.0 MiB: programs at ") &&
                has(ran.err, "has it once, and it is pinned"),
            "%s", ran.err.c_str());
  cr_expect(has(shown(store, {"show", "n"})["trouble"], "there is no room"));
}

Test(model_command, says_why_a_model_cannot_be_read, .timeout = 60) {
  ModelStore store;
  store.start();
  write_file(store.file("m"), "no model");
  expect_done(model(store, {"add", "m", store.file("m"), "--tenant=a"}), "added");
  expect_failed(model(store, {"prefetch", "m"}), kFailed, store.file("m"));
  write_file(store.file("n"), one_tensor("w", "data"));
  for (const char* tenant : {"a", "b"})
    expect_done(model(store, {"add", "n", store.file("n"), std::string("--tenant=") + tenant}),
                "added");
  expect_failed(model(store, {"show", "n"}), kUsage, "a, b each have a model n");
  expect_done(model(store, {"show", "n", "--tenant=b"}), "tenant     b");
  expect_failed(model(store, {"add", "../n", "/n", "--tenant=b"}), kUsage, "no model can have");
  expect_failed(model(store, {"add", "n", "http://h/n", "--tenant=b", "--uid=3"}), kUsage, "URL");
  expect_failed(model(store, {"add", "n", "/n", "--tenant=b", "--uid=4294967295"}), kUsage,
                "is no uid");
}

Test(model_command, says_that_no_daemon_answers, .timeout = 60) {
  ModelStore store;
  expect_failed(model(store, {"list"}), kUnreachable, "systemctl start bellows-modeld");
  store.start();
  expect_done(model(store, {"list"}), "memory for models");
  store.stop();
  expect_failed(model(store, {"list"}), kUnreachable, "systemctl start bellows-modeld");
}

Test(model_command, is_for_root_and_the_daemon_only, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can be another user");
  ModelStore store;
  store.start();
  cr_expect(holds_as(kAlice, [&] {
    const Ran ran = model(store, {"list"});
    return ran.status == kRefused && has(ran.err, "is for root and the user of bellows-modeld");
  }));
}
