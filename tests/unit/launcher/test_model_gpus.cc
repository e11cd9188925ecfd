// SPDX-License-Identifier: Apache-2.0
// What `bellows model` tells of copies on GPUs, which a driver plays that is not real.
#include "tests/unit/launcher/model_command.h"
#include "tests/unit/modelstore/fake_gpu.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

const std::string kBothGpus = std::string(kFirstGpu) + "," + kSecondGpu;

/// Of a copy that is there.
json copy(const char* name, const char* state, std::uint64_t bytes, int references) {
  return {{"name", name},      {"state", state},           {"bytes", bytes},
          {"copied_bytes", 0}, {"references", references}, {"waiting", 0},
          {"trouble", nullptr}};
}

json with_tenant(json copy, const char* tenant) {
  copy["tenant"] = tenant;
  return copy;
}

}  // namespace

Test(model_gpus, tells_an_administrator_of_all_gpus, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.gpus_of_a = "";
  store.add("m", random_bytes(3 * kMega), "tenant=a,visible=b");
  store.add("own", "data", "tenant=b");
  store.start();
  gpu.load();
  cr_expect(shown(store, {"list"})["gpus"].empty() && !has(model(store, {"list"}).out, "GPU"));
  ServedJob of_a(store, "12", "a", kBothGpus), of_b(store, "9", "b", kFirstGpu);
  const OpenModel first = of_a.open_on(0, "m"), again = of_a.open_on(0, "m");
  cr_assert(first.ok() && again.ok() && of_b.open_on(0, "m").ok() && of_b.open_on(0, "own").ok());
  const json idle = with_tenant(copy("m", "idle", 2 * kSlab, 0), "a");
  cr_assert(eventually([&] { return shown(store, {"list"})["gpus"][2]["models"][0] == idle; }));
  const json gpus = shown(store, {"list"})["gpus"];
  cr_assert_eq(gpus.size(), 3, "%s", gpus.dump().c_str());
  const json lent = {{"job", "12"},
                     {"tenant", "a"},
                     {"gpu", kFirstGpu},
                     {"budget", 64 * kMega},
                     {"used", 2 * kSlab},
                     {"evicting", 0},
                     {"left", 64 * kMega - 2 * kSlab},
                     {"models", {with_tenant(copy("m", "lent", 2 * kSlab, 2), "a")}}};
  cr_expect(gpus[0] == lent, "%s", gpus[0].dump().c_str());
  cr_expect(gpus[1]["gpu"] == kSecondGpu && gpus[1]["used"] == 0 && gpus[1]["models"].empty());
  cr_expect(gpus[2]["job"] == "9" && gpus[2]["tenant"] == "b" && gpus[2]["used"] == 3 * kSlab);
  cr_assert_eq(gpus[2]["models"].size(), 2);
  cr_expect(gpus[2]["models"][1] == with_tenant(copy("own", "idle", kSlab, 0), "b"));
  cr_expect_eq(shown(store, {"list", "--tenant=b"})["gpus"].size(), 1);
  const json shown_copies = shown(store, {"show", "m"})["gpus"];
  cr_assert_eq(shown_copies.size(), 2);
  cr_expect(shown_copies[0]["job"] == "12" && shown_copies[0]["gpu"] == kFirstGpu &&
            shown_copies[0]["state"] == "lent" && shown_copies[1]["job"] == "9");
  for (const char* command : {"list", "top"}) {
    const Ran ran =
        std::strcmp(command, "top") == 0 ? model(store, {"top", "--once"}) : model(store, {"list"});
    expect_done(ran,
                "GPU 0000:3b:00.0 of job 12 of tenant a: 4.0 MiB of 64.0 MiB are used; "
                "60.0 MiB are left\n");
    expect_done(ran, "0000:3b:00.0 m    lent  4.0 MiB     2 a      12");
  }
  expect_done(model(store, {"show", "m"}),
              "on GPU     0000:3b:00.0 of job 12: lent, 4.0 MiB, 2 users\n");
}

Test(model_gpus, tells_a_job_of_its_own_gpus_only, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.gpus_of_a = "";
  store.add("m", random_bytes(3 * kMega), "tenant=a,visible=b");
  store.add("secret", "data");
  store.start();
  gpu.load();
  ServedJob of_a(store, "of-a", "a", kBothGpus), other(store, "11", "a", kFirstGpu);
  ServedJob of_b(store, "9", "b", kSecondGpu), without(store, "7", "a", kFirstGpu);
  const json nothing = seen_at(of_b.socket(), {"list"});
  cr_assert(nothing["gpus"].size() == 1 && nothing["gpus"][0]["models"].empty());
  const OpenModel held = of_a.open_on(1, "m"), secret = of_a.open_on(1, "secret");
  cr_assert(held.ok() && secret.ok() && other.open_on(0, "m").ok());
  // Of what others have on the same GPU, a job sees nothing, nor of who uses what it has.
  cr_expect(seen_at(of_b.socket(), {"list"})["gpus"] == nothing["gpus"], "%s",
            seen_at(of_b.socket(), {"list"}).dump().c_str());
  cr_expect(seen_at(without.socket(), {"list"})["gpus"][0]["models"].empty());
  cr_expect(seen_at(of_b.socket(), {"show", "m"})["gpus"].empty());
  const OpenModel of_both = of_b.open_on(1, "m");
  cr_assert(of_both.ok());
  const json expected = {{"gpu", kSecondGpu},
                         {"budget", 64 * kMega},
                         {"used", 2 * kSlab},
                         {"evicting", 0},
                         {"left", 64 * kMega - 2 * kSlab},
                         {"models", {copy("m", "lent", 2 * kSlab, 1)}}};
  const Ran ran = at_socket(of_b.socket(), {"list", "--json"});
  cr_expect(json::parse(ran.out)["gpus"] == json::array({expected}), "%s", ran.out.c_str());
  cr_expect(!has(ran.out, "secret") && !has(ran.out, "of-a") && !has(ran.out, "tenant"), "%s",
            ran.out.c_str());
  const json mine = seen_at(of_a.socket(), {"list"})["gpus"];
  cr_assert(mine.size() == 2 && mine[0]["models"].empty() && mine[1]["models"].size() == 2);
  cr_expect(mine[1]["models"][0] == copy("m", "lent", 2 * kSlab, 1) &&
            mine[1]["models"][1]["name"] == "secret");
  expect_done(at_socket(of_b.socket(), {"list"}),
              "\n\nGPU          NAME STATE    SIZE USERS\n0000:86:00.0 m    lent  4.0 MiB     1\n");
  expect_done(at_socket(of_b.socket(), {"list"}),
              "\nGPU 0000:86:00.0: 4.0 MiB of 64.0 MiB are used; 60.0 MiB are left\n");
  expect_done(at_socket(of_b.socket(), {"show", "m"}),
              "on GPU     0000:86:00.0: lent, 4.0 MiB, 1 user\n");
}

Test(model_gpus, what_has_no_name_for_a_job_counts_and_is_not_told, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.gpus_of_a = "";
  // Each of two shows b a model of this name: it is hers by its digest alone.
  for (const char* tenant : {"a", "c"}) {
    const std::string file = store.path() + "/" + tenant + ".st";
    write_file(file, one_tensor("w", std::string("of ") + tenant));
    store.option("--model=m=" + file + ",tenant=" + tenant + ",visible=b");
  }
  store.start();
  gpu.load();
  const std::string digest = store.open("m").digest();
  ServedJob job(store, "9", "b", kFirstGpu);
  cr_assert(job.open_on(0, "sha256:" + digest).ok());
  const json seen = seen_at(job.socket(), {"list"})["gpus"];
  cr_expect(seen[0]["used"] == kSlab && seen[0]["models"].empty(), "%s", seen.dump().c_str());
  const json all = shown(store, {"list"})["gpus"];
  cr_expect(all[0]["models"].size() == 1 && all[0]["models"][0]["tenant"] == "a");
  // Nobody has it any more by its name: it counts until it is free.
  const OpenModel held = job.open_on(0, "sha256:" + digest);
  expect_done(model(store, {"remove", "m", "--tenant=a"}), "removed m");
  const json removed = shown(store, {"list"})["gpus"];
  cr_expect(removed[0]["used"] == kSlab && removed[0]["models"].empty());
}

Test(model_gpus, tells_why_a_copy_failed_and_how_far_one_is, .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu, "4M");
  store.add("broken", random_bytes(kMega));
  store.add("large", random_bytes(6 * kMega));
  store.start();
  gpu.load();
  gpu.set_faults("fail 1 999\n");
  cr_assert(!store.open_on(0, "broken").ok() && !store.open_on(0, "large").ok());
  const json failed = seen_at(store.socket("a"), {"list"})["gpus"][0];
  cr_assert(failed["models"].size() == 2 && failed["used"] == 0, "%s", failed.dump().c_str());
  for (const json& each : failed["models"])
    cr_expect(each["state"] == "absent" && each["bytes"] == 0 && each["trouble"].is_string());
  expect_done(model(store, {"list"}), "absent; its last copy failed");
  expect_done(model(store, {"show", "broken"}), "absent; its last copy failed: GPU 0000:3b:00.0");
  gpu.set_faults("hang 5\n");
  const OpenModel waits(store.socket("a"), "broken", 100, 0);
  cr_expect_eq(waits.code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  const json loading = seen_at(store.socket("a"), {"list"})["gpus"][0];
  cr_expect(loading["used"] == kSlab && loading["models"][0]["state"] == "loading" &&
                loading["models"][0]["bytes"] == kSlab && loading["models"][0]["trouble"].is_null(),
            "%s", loading.dump().c_str());
  expect_done(model(store, {"list"}), "loading, 0 %");
}

Test(model_gpus, tells_of_memory_that_an_ended_job_has_not_freed, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.gpus_of_a = "";
  store.add("m", random_bytes(kMega), "tenant=a,visible=b");
  // No close comes to an end.
  const std::string helpers = store.path() + "/helpers", program = helpers + "/bellows-model-gpu";
  std::filesystem::create_directory(helpers);
  for (const char* name : {"bellows-model-loader", "bellows-model-keeper"})
    std::filesystem::create_symlink(std::string(HELPERS "/") + name, helpers + "/" + name);
  write_file(program, "#!/bin/sh\n[ \"$1\" = --close ] && exec /bin/sleep 60\nexec " HELPERS
                      "/bellows-model-gpu \"$@\"\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  store.start("1G", helpers);
  gpu.load();
  ServedJob stuck(store, "12", "a", kFirstGpu);
  cr_assert(stuck.open_on(0, "m").ok());
  cr_expect(has(stuck.end(store), "not free yet"));
  const json left = shown(store, {"list"})["gpus"];
  cr_assert_eq(left.size(), 1, "%s", left.dump().c_str());
  cr_expect(left[0]["job"] == "12" && left[0]["tenant"].is_null() && left[0]["budget"] == 0 &&
            left[0]["used"] == kSlab && left[0]["evicting"] == kSlab && left[0]["left"] == 0);
  expect_done(model(store, {"list"}),
              "GPU 0000:3b:00.0 of job 12: the job has ended, and 2.0 MiB are not yet freed\n");
  // Whoever has the job's name next is told nothing of it.
  plain::Handle listener;
  listen_at(store.path() + "/next.sock", &listener);
  cr_assert_str_eq(ControlClient(store).serve("12", "b", listener.get(), kFirstGpu).c_str(), "");
  const json next = seen_at(store.path() + "/next.sock", {"list"})["gpus"];
  cr_expect(next[0]["used"] == 0 && next[0]["evicting"] == 0, "%s", next.dump().c_str());
}
