// SPDX-License-Identifier: Apache-2.0
// Drivers and GPUs that fail in every way: a program gets an error with a sentence, the model can
// be had in memory still, and nothing of it stays on the GPU.
#include <sys/ptrace.h>

#include "tests/unit/modelstore/fake_gpu.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

/// Has each call of bellows-model-gpu to the driver go wrong, one in each copy. Gives the number of
/// calls.
int fail_each_call(FakeGpu& gpu, GpuStore& store, const std::string& fault, const std::string& code,
                   const std::function<void(const OpenModel&)>& check) {
  for (int call = 1;; ++call) {
    cr_assert_lt(call, 100);
    gpu.set_faults(fault + " " + std::to_string(call) + code + "\n");
    const OpenModel model = store.open_on(0, "m");
    if (model.ok()) return call - 1;
    check(model);
    cr_assert(store.open("m").ok(), "the model is in memory after fault %d", call);
    cr_assert(eventually([&] { return gpu.used() == 0; }), "after fault %d", call);
    cr_assert(eventually([&] { return store.helpers("bellows-model-gpu").empty(); }));
  }
}

/// The answer to a program that opens a model on the first GPU.
modelwire::ModelReply answer_to_open(RawClient& program) {
  const auto reply = program.receive();
  cr_assert(reply.has_value());
  return *reply;
}

bool begin_to_open(RawClient& program, const char* gpu) {
  auto request = RawClient::request(modelwire::Op::open, 1, "m");
  return modelwire::read_gpu(gpu, std::strlen(gpu), &request.gpu) && program.send(request);
}

struct Faulty {
  Faulty() : store(gpu) {
    store.option("--stall=0.4");
    store.lend(random_bytes(kMega));
  }
  FakeGpu gpu;
  GpuStore store;
};

}  // namespace

Test(model_gpu_faults, every_call_that_fails_is_an_error, .timeout = 120) {
  Faulty faulty;
  const int calls = fail_each_call(faulty.gpu, faulty.store, "fail", " 999", [](const auto& model) {
    cr_assert_eq(model.code(), BELLOWS_MODEL_ERR_UNAVAILABLE, "%s", model.error().c_str());
    cr_assert(has(model.error(), "GPU 0000:3b:00.0") && has(model.error(), "CUDA_ERROR"), "%s",
              model.error().c_str());
  });
  cr_expect_gt(calls, 14, "%d", calls);
}

Test(model_gpu_faults, no_call_that_lacks_memory_does_harm, .timeout = 120) {
  Faulty faulty;
  int without_room = 0;
  (void)fail_each_call(faulty.gpu, faulty.store, "fail", " 2", [&](const auto& model) {
    without_room += model.code() == BELLOWS_MODEL_ERR_NO_ROOM;
    cr_assert(has(model.error(), "GPU 0000:3b:00.0"), "%s", model.error().c_str());
  });
  cr_expect_geq(without_room, 3, "of making memory, and of mapping it");
}

Test(model_gpu_faults, a_process_may_die_in_any_call, .timeout = 120) {
  Faulty faulty;
  const int calls = fail_each_call(faulty.gpu, faulty.store, "die", "", [](const auto& model) {
    cr_assert(model.code() == BELLOWS_MODEL_ERR_UNAVAILABLE &&
                  has(model.error(), "could not be copied to GPU"),
              "%s", model.error().c_str());
  });
  cr_expect_gt(calls, 14, "%d", calls);
}

Test(model_gpu_faults, a_driver_may_hang_in_any_call, .timeout = 120) {
  Faulty faulty;
  const int calls = fail_each_call(faulty.gpu, faulty.store, "hang", "", [](const auto& model) {
    cr_assert(model.code() == BELLOWS_MODEL_ERR_UNAVAILABLE &&
                  has(model.error(), "made no progress for 0.4 s"),
              "%s", model.error().c_str());
  });
  cr_expect_gt(calls, 14, "%d", calls);
}

Test(model_gpu_faults, a_gpu_with_too_little_memory_says_how_much_is_free, .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu);
  store.add("m", random_bytes(3 * kMega));
  store.add("small", "data");
  store.start();
  gpu.load();
  gpu.set_faults("limit 3000000\n");
  const OpenModel model = store.open_on(0, "m");
  cr_expect_eq(model.code(), BELLOWS_MODEL_ERR_NO_ROOM);
  cr_expect(has(model.error(), "3000000 of its 3000000 are free"), "%s", model.error().c_str());
  cr_expect(store.open_on(0, "small").ok() && gpu.used() == kSlab);
}

Test(model_gpu_faults, idle_copies_make_way_where_the_driver_has_less_than_the_budget,
     .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu);
  for (const char* name : {"m1", "m2", "m3", "m4"}) store.add(name, random_bytes(kMega));
  store.start();
  gpu.load();
  gpu.set_faults("limit " + std::to_string(2 * kSlab) + "\n");
  OpenModel first = store.open_on(0, "m1");
  cr_assert(first.ok() && store.open_on(0, "m2").ok());
  const OpenModel third = store.open_on(0, "m3");
  cr_expect(third.ok(), "%s", third.error().c_str());
  cr_expect_eq(gpu.used(), 2 * kSlab);
  const OpenModel fourth = store.open_on(0, "m4");
  cr_expect_eq(fourth.code(), BELLOWS_MODEL_ERR_NO_ROOM, "both are lent");
  cr_expect(first.data("w") == random_bytes(kMega));
  first.close();
  cr_expect(store.open_on(0, "m4").ok() && gpu.used() == 2 * kSlab);
}

Test(model_gpu_faults, a_gpu_that_forgets_a_byte_lends_nothing, .timeout = 60) {
  FakeGpu gpu("-DFORGETS");
  GpuStore store(gpu);
  store.lend(random_bytes(3 * kMega));
  const OpenModel model = store.open_on(0, "m");
  cr_expect(model.code() == BELLOWS_MODEL_ERR_UNAVAILABLE && has(model.error(), "gave other bytes"),
            "%s", model.error().c_str());
  cr_expect(store.open("m").ok());
}

Test(model_gpu_faults, one_gpu_that_hangs_stops_no_other, .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu);
  store.lend(random_bytes(kMega));
  gpu.set_faults("hang 5\n");
  ServedJob job(store, "12", "a", kFirstGpu);
  const OpenModel waits(job.socket(), "m", 300, 0);
  cr_expect(has(waits.error(), "not loaded in time"), "%s", waits.error().c_str());
  gpu.set_faults("");
  cr_expect(store.open_on(1, "m").ok());
  // Nor does it keep the job from ending, and with that the process.
  cr_expect_str_eq(job.end(store).c_str(), "");
  cr_expect(eventually([&] { return store.helpers("bellows-model-gpu").empty(); }));
  cr_expect_eq(gpu.used(), kSlab);
}

Test(model_gpu_faults, processes_that_do_not_end_are_few, .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu);
  store.add("m", random_bytes(kMega));
  store.option("--stall=2");
  store.start();
  gpu.load();
  gpu.set_faults("hang 5\n");
  std::vector<pid_t> held;
  // Whom this test traces the daemon can't collect, as one that hangs in the kernel.
  const auto hold_another = [&] {
    for (const pid_t found : store.helpers("bellows-model-gpu"))
      if (std::find(held.begin(), held.end(), found) == held.end() &&
          ptrace(PTRACE_SEIZE, found, nullptr, nullptr) == 0) {
        held.push_back(found);
        return true;
      }
    return false;
  };
  for (int i = 0; i < 2; ++i) {
    RawClient program(store.socket("a"));
    cr_assert(begin_to_open(program, kFirstGpu));
    if (!eventually(hold_another)) cr_skip_test("this user can't trace others");
    cr_expect(has(answer_to_open(program).text, "made no progress for 2 s"));
  }
  gpu.set_faults("");
  {
    RawClient program(store.socket("a"));
    cr_assert(begin_to_open(program, kFirstGpu));
    const modelwire::ModelReply refused = answer_to_open(program);
    cr_expect(has(refused.text, "processes that were killed have not ended there for 2 s"), "%s",
              refused.text);
    cr_expect(store.open_on(1, "m").ok() && store.open("m").ok());
  }
  RawClient waits(store.socket("a"));
  cr_assert(begin_to_open(waits, kFirstGpu));
  cr_assert_eq(waitpid(held.front(), nullptr, __WALL), held.front());
  cr_expect_eq(answer_to_open(waits).answer, modelwire::Answer::catalogue, "it goes on with one");
  cr_assert_eq(waitpid(held.back(), nullptr, __WALL), held.back());
}

Test(model_gpu_faults, a_job_that_ends_amid_a_copy_leaves_nothing, .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu);
  store.lend(random_bytes(kMega));
  // With memory made, mapped and full.
  for (const char* fault : {"hang 10\n", "hang 16\n"}) {
    gpu.set_faults(fault);
    ServedJob job(store, "12", "a", kFirstGpu);
    const OpenModel waits(job.socket(), "m", 100, 0);
    cr_expect(eventually([&] { return gpu.used() == kSlab; }));
    cr_expect_str_eq(job.end(store).c_str(), "");
    cr_expect_eq(gpu.used(), 0);
    cr_expect_str_eq(ControlClient(store).call(modelwire::ControlOp::evict, "a", "m").c_str(), "");
  }
}

Test(model_gpu_faults, a_keeper_that_is_stuck_never_closes_last_and_is_replaced, .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu);
  store.lend(random_bytes(kMega));
  // The daemon's own child, and one that it has found.
  for (const bool is_found : {false, true}) {
    const pid_t keeper = store.keeper();
    cr_assert_gt(keeper, 0);
    if (is_found) store.restart();
    ServedJob job(store, "12", "a", kFirstGpu);
    cr_assert(job.open_on(0, "m").ok());
    cr_assert(eventually([&] { return gpu.is_held_by(keeper); }));
    kill(keeper, SIGSTOP);
    (void)job.end(store);
    cr_expect(eventually([&] {
      const bool is_here = gpu.is_held_by(store.pid());
      cr_assert(is_here || !gpu.is_held_by(keeper), "only the keeper has it");
      return !is_here;
    }));
    cr_expect(eventually([&] { return gpu.used() == 0; }));
    if (gpu.is_held_by(keeper)) kill(keeper, SIGKILL);
    cr_expect(eventually([&] { return store.keeper() != 0 && store.keeper() != keeper; }));
    cr_expect(store.open("m").ok() && store.said("loaded ") == 1);
  }
}

Test(model_gpu_faults, a_close_that_hangs_keeps_nothing_else, .timeout = 60) {
  FakeGpu gpu;
  GpuStore store(gpu);
  store.add("m", random_bytes(kMega));
  // The first close does not come to an end.
  const std::string helpers = store.path() + "/helpers", program = helpers + "/bellows-model-gpu";
  std::filesystem::create_directory(helpers);
  for (const char* name : {"bellows-model-loader", "bellows-model-keeper"})
    std::filesystem::create_symlink(std::string(HELPERS "/") + name, helpers + "/" + name);
  write_file(program, "#!/bin/sh\n[ \"$1\" = --close ] && /bin/mkdir " + helpers +
                          "/stuck && exec /bin/sleep 60\nexec " HELPERS
                          "/bellows-model-gpu \"$@\"\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  store.start("1G", helpers);
  gpu.load();
  ServedJob stuck(store, "12", "a", kFirstGpu), other(store, "13", "a", kSecondGpu);
  cr_assert(stuck.open_on(0, "m").ok() && other.open_on(1, "m").ok());
  const std::string refused = stuck.end(store);
  cr_expect(has(refused, "not free yet"), "%s", refused.c_str());
  cr_expect_str_eq(other.end(store).c_str(), "");
  cr_expect_eq(gpu.used(), kSlab);
  cr_expect(!gpu.is_held_by(store.pid()), "nothing of it keeps the daemon from ending");
  store.restart();
  cr_expect(store.open_on(0, "m").ok());
}

Test(model_gpu_faults, no_user_can_offer_a_server_of_mps, .timeout = 60) {
  const ScratchDir anybodys;
  write_file(anybodys.path() + "/control", "");
  FakeGpu gpu("-DMPS='\"" + anybodys.path() + "\"'");
  GpuStore store(gpu);
  store.lend("data");
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
  const OpenModel model = store.open_on(0, "m");
  cr_expect(model.ok(), "%s", model.error().c_str());
  cr_expect(std::filesystem::is_empty(store.run() + "/mps"));
}

Test(model_gpu_faults, a_gpu_that_is_divided_has_no_models, .timeout = 60) {
  FakeGpu gpu("-DMIG");
  GpuStore store(gpu);
  store.lend("data");
  const OpenModel refused = store.open_on(0, "m");
  cr_expect(has(refused.error(), "GPU 0000:3b:00.0 is divided (MIG)"), "%s",
            refused.error().c_str());
  cr_expect(store.open("m").ok() && gpu.used() == 0);
}
