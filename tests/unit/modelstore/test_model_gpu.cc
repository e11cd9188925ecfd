// SPDX-License-Identifier: Apache-2.0
// Models in the memory of GPUs, which a driver plays that is not real.
#include <sys/mman.h>

#include "tests/unit/modelstore/fake_gpu.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

/// How a process ends that does this.
int exit_of(const std::function<bool()>& work) {
  const pid_t child = fork_child();
  if (child == 0) _exit(work() ? 0 : 1);
  int status = 1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  return status;
}

}  // namespace

Test(model_gpu, lends_one_copy_to_all, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  const std::string data = random_bytes(5 * kMega + 12345);
  store.lend(data);
  OpenModel model = store.open_on(0, "m");
  cr_assert(model.ok(), "%s", model.error().c_str());
  cr_expect(model.data("w") == data);
  cr_expect_eq(exit_of([&] { return store.open_on(0, "m").data("w") == data; }), 0);
  cr_expect(store.open_on(0, "sha256:" + model.digest()).ok());
  cr_expect(store.said("copied ") == 1 && store.said("loaded ") == 1, "%s", store.log().c_str());
  cr_expect_eq(gpu.used(), 3 * kSlab);
  // Once it is copied, it need not be in memory.
  ControlClient control(store);
  cr_expect_str_eq(control.call(modelwire::ControlOp::evict, "a", "m").c_str(), "");
  model.close();
  cr_expect(store.open_on(0, "m").ok() && store.said("copied ") == 1);
  cr_expect(store.open_on(1, "m").data("w") == data && store.said("copied ") == 2);
  cr_expect(eventually([&] { return store.helpers("bellows-model-gpu").empty(); }));
}

Test(model_gpu, is_for_the_jobs_gpus_only, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.gpus_of_a = kSecondGpu;
  store.lend("data", "tenant=a,visible=b");
  for (const OpenModel& refused : {store.open_on(0, "m"), store.open_on(1, "m", "b")}) {
    cr_expect_eq(refused.code(), BELLOWS_MODEL_ERR_NOT_FOUND);
    cr_expect(has(refused.error(), "not for this job on this GPU"), "%s", refused.error().c_str());
  }
  const OpenModel absent = store.open_on(7, "m");
  cr_expect(absent.code() == BELLOWS_MODEL_ERR_INVALID && has(absent.error(), "no GPU 7"));
  cr_expect(store.open_on(1, "m").ok() && store.open("m", "b").ok());
  cr_expect(gpu.allocations().size() == 1);
}

Test(model_gpu, needs_an_administrators_consent_and_a_driver, .timeout = 60) {
  ModelStore store;
  store.gpus_of_a = kFirstGpu;
  store.add("m", "data");
  store.start();
  const OpenModel without(store.socket("a"), "m", 20000, 0);
  cr_expect(without.code() == BELLOWS_MODEL_ERR_UNAVAILABLE &&
                has(without.error(), "has not loaded libcuda.so.1"),
            "%s", without.error().c_str());
  const FakeGpu gpu;
  gpu.load();
  const OpenModel refused(store.socket("a"), "m", 20000, 0);
  cr_expect(refused.code() == BELLOWS_MODEL_ERR_UNAVAILABLE && has(refused.error(), "--gpu-memory"),
            "%s", refused.error().c_str());
  store.option("--gpu-memory=64M");
  store.option("--gpu-driver=/nonexistent/libcuda.so.1");
  store.restart();
  const OpenModel driverless(store.socket("a"), "m", 20000, 0);
  cr_expect(driverless.code() == BELLOWS_MODEL_ERR_UNAVAILABLE &&
                has(driverless.error(), "no driver of NVIDIA's"),
            "%s", driverless.error().c_str());
  cr_expect(store.open("m").ok());
}

Test(model_gpu, keeps_to_its_budget_and_never_evicts_what_is_lent, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu, "4M");
  for (const char* name : {"m1", "m2", "m3"}) store.add(name, random_bytes(kMega));
  store.start();
  gpu.load();
  OpenModel first = store.open_on(0, "m1");
  OpenModel second = store.open_on(0, "m2");
  cr_assert(first.ok() && second.ok());
  const OpenModel third = store.open_on(0, "m3");
  cr_expect_eq(third.code(), BELLOWS_MODEL_ERR_NO_ROOM, "%s", third.error().c_str());
  second.close();
  cr_expect(store.open_on(0, "m3").ok());
  cr_expect_eq(gpu.used(), 2 * kSlab);
  cr_expect(first.data("w") == random_bytes(kMega));
  cr_expect(store.open_on(0, "m1").ok() && store.said("copied ") == 3, "%s", store.log().c_str());
  // The other GPU has a budget of its own.
  cr_expect(store.open_on(1, "m2").ok());
}

Test(model_gpu, is_free_before_the_end_of_the_job_is_answered, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend(random_bytes(3 * kMega));
  for (int i = 0; i < 5; ++i) {
    ServedJob job(store, "12", "a", std::string(kFirstGpu) + "," + kSecondGpu);
    cr_assert(job.open_on(0, "m").ok() && job.open_on(1, "m").ok());
    cr_assert_eq(gpu.allocations().size(), 2);
    cr_assert_str_eq(job.end(store).c_str(), "");
    cr_assert_eq(gpu.used(), 0, "after %d jobs", i);
  }
  cr_expect(store.open("m").ok());
}

Test(model_gpu, a_copy_never_changes_its_tenant, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend(random_bytes(kMega), "tenant=a,visible=b");
  ServedJob of_a(store, "1", "a", kFirstGpu), of_b(store, "2", "b", kFirstGpu);
  cr_assert(of_a.open_on(0, "m").ok());
  const auto before = gpu.allocations();
  cr_assert(of_b.open_on(0, "m").ok());
  cr_expect(gpu.allocations().size() == 2 && store.said("copied ") == 2, "each job has its own");
  // A job that takes another's name gets nothing of it either.
  ServedJob again(store, "3", "a", kSecondGpu);
  cr_assert(again.open_on(1, "m").ok());
  plain::Handle listener;
  listen_at(store.path() + "/another.sock", &listener);
  cr_expect_str_eq(ControlClient(store).serve("3", "b", listener.get(), kSecondGpu).c_str(), "");
  cr_expect(eventually([&] { return gpu.allocations().size() == 2; }));
  cr_expect(OpenModel(store.path() + "/another.sock", "m", 20000, 1).ok());
  cr_expect_eq(store.said("copied "), 4);
  cr_assert_str_eq(of_a.end(store).c_str(), "");
  for (const auto& [inode, bytes] : before) cr_expect_eq(gpu.allocations().count(inode), 0);
}

Test(model_gpu, outlives_the_daemon_as_long_as_the_job, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  const std::string data = random_bytes(3 * kMega);
  store.lend(data);
  ServedJob job(store, "12", "a", kFirstGpu), ended(store, "13", "a", kSecondGpu);
  const OpenModel reader = job.open_on(0, "m");
  cr_assert(reader.ok() && ended.open_on(1, "m").ok());
  store.stop();
  cr_expect(reader.data("w") == data, "a reader goes on");
  // It ends without a daemon to tell.
  unlink(ended.socket().c_str());
  store.start();
  cr_expect(job.open_on(0, "m").data("w") == data);
  cr_expect_eq(store.said("copied "), 2);
  cr_expect(eventually([&] { return gpu.allocations().size() == 1; }));
  cr_expect(ended.open_on(1, "m").code() == BELLOWS_MODEL_ERR_UNAVAILABLE);
}

Test(model_gpu, is_free_after_a_job_whose_end_nobody_could_tell, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend("data");
  const ServedJob job(store, "12", "a", kFirstGpu), other(store, "13", "a", kSecondGpu);
  cr_assert(job.open_on(0, "m").ok() && other.open_on(1, "m").ok());
  unlink(job.socket().c_str());
  cr_expect(eventually([&] { return gpu.allocations().size() == 1; }));
  cr_expect(other.open_on(1, "m").ok() && store.said("copied ") == 2);
}

Test(model_gpu, a_new_version_leaves_no_copy_of_the_old, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend("first");
  OpenModel old = store.open_on(0, "m");
  cr_assert(old.ok());
  write_file(store.path() + "/new.st", one_tensor("w", "second"));
  cr_assert_str_eq(ControlClient(store).add("a", "m", store.path() + "/new.st").c_str(), "");
  cr_expect(store.open_on(0, "m").data("w") == "second" && old.data("w") == "first");
  old.close();
  cr_expect(eventually([&] { return gpu.allocations().size() == 1; }));
}

Test(model_gpu, a_prefetch_goes_to_all_gpus_of_the_job, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend("data");
  const ServedJob job(store, "12", "a", std::string(kFirstGpu) + "," + kSecondGpu);
  ControlClient control(store);
  auto request = control.request(modelwire::ControlOp::prefetch_on_gpus, "", "m");
  std::memcpy(request.path, "12", request.path_length = 2);
  cr_expect_str_eq(control.call(request).c_str(), "");
  cr_expect(eventually([&] { return store.said("copied ") == 2; }));
  request.path[1] = '3';
  cr_expect(has(control.call(request), "job 13 sees no model m"));
}

Test(model_gpu, a_program_cannot_write_through_its_pointer, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend("data");
  const OpenModel model = store.open_on(0, "m");
  cr_assert(model.ok());
  bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  cr_assert_eq(bellows_model_find(model.get(), "w", &tensor), BELLOWS_MODEL_OK);
  const int status = exit_of([&] {
    signal(SIGSEGV, SIG_DFL);
    *static_cast<volatile char*>(const_cast<void*>(tensor.data)) = 'x';
    return true;
  });
  cr_expect(WIFSIGNALED(status) || WEXITSTATUS(status) > 1, "%d", status);
  using Copy = int (*)(std::uint64_t, const void*, std::size_t);
  const auto copy = reinterpret_cast<Copy>(dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2"));
  cr_assert(copy);
  cr_expect_neq(copy(reinterpret_cast<std::uint64_t>(tensor.data), "evil", 4), 0);
  cr_expect(store.open_on(0, "m").data("w") == "data");
}

Test(model_gpu, a_forked_process_leaves_it_alone, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend("data");
  OpenModel model = store.open_on(0, "m");
  cr_assert(model.ok());
  // No call of the driver would come back there.
  std::string hangs;
  for (int call = 1; call < 40; ++call) hangs += "hang " + std::to_string(call) + "\n";
  gpu.set_own_faults(hangs);
  cr_expect_eq(exit_of([&] {
                 alarm(10);
                 model.close();
                 return true;
               }),
               0);
  gpu.set_own_faults("");
  cr_expect(model.data("w") == "data");
}

Test(model_gpu, stays_mapped_until_the_driver_can_wait, .timeout = 60) {
  const FakeGpu gpu;
  GpuStore store(gpu);
  store.lend("data");
  OpenModel model = store.open_on(0, "m");
  bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  cr_assert_eq(bellows_model_find(model.get(), "w", &tensor), BELLOWS_MODEL_OK);
  gpu.set_own_faults("busy 1\n");
  model.close();
  cr_expect(std::memcmp(tensor.data, "data", 4) == 0);
  store.open_on(0, "m").close();
  cr_expect(std::memcmp(tensor.data, "data", 4) == 0, "the driver can't wait still");
  gpu.set_own_faults("");
  store.open_on(0, "m").close();
  const auto page = reinterpret_cast<std::uintptr_t>(tensor.data) / 4096 * 4096;
  cr_expect_eq(msync(reinterpret_cast<void*>(page), 4096, MS_ASYNC), -1, "it is mapped for ever");
  ServedJob other(store, "12", "a", kFirstGpu);
  cr_expect(other.open_on(0, "m").ok());
}

Test(model_gpu, is_counted_by_tenants_of_jobs, .timeout = 120) {
  FakeGpu gpu;
  GpuStore store(gpu, "4M");
  store.gpus_of_a = "";
  store.add("m", random_bytes(kMega), "tenant=a,visible=b");
  store.add("large", random_bytes(6 * kMega));
  const std::string file = store.path() + "/models.prom";
  store.option("--metrics=" + file);
  store.start();
  gpu.load();
  ServedJob of_a(store, "12", "a", std::string(kFirstGpu) + "," + kSecondGpu);
  ServedJob of_b(store, "13", "b", kFirstGpu);
  const OpenModel held = of_a.open_on(0, "m");
  cr_assert(held.ok() && of_a.open_on(1, "m").ok() && of_b.open_on(0, "m").ok());
  cr_expect_eq(of_a.open_on(0, "large").code(), BELLOWS_MODEL_ERR_NO_ROOM);
  gpu.set_faults("fail 1 999\n");
  ServedJob ended(store, "14", "b", kSecondGpu);
  cr_expect_eq(ended.open_on(1, "m").code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_assert_str_eq(ended.end(store).c_str(), "");
  const auto metrics = [&] {
    std::ifstream in(file);
    return "\n" + std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto line = [&](const std::string& text) {
    return has(metrics(), "\nbellows_modeld_" + text + "\n");
  };
  // It is written every 15 s.
  const auto written = [&] { return line("gpu_load_failures_total{tenant=\"b\"} 1"); };
  cr_assert(eventually(written), "%s", metrics().c_str());
  for (const char* each :
       {"gpu_loads_total{tenant=\"a\"} 2", "gpu_loads_total{tenant=\"b\"} 1",
        "gpu_load_failures_total{tenant=\"a\"} 0", "gpu_room_refusals_total{tenant=\"a\"} 1",
        "gpu_room_refusals_total{tenant=\"b\"} 0", "budget_bytes{tier=\"gpu\"} 12582912",
        "used_bytes{tier=\"gpu\"} 6291456", "evicting_bytes{tier=\"gpu\"} 0",
        "tenant_budget_bytes{tier=\"gpu\",tenant=\"a\"} 8388608",
        "tenant_used_bytes{tier=\"gpu\",tenant=\"b\"} 2097152",
        "gpu_copies{state=\"lent\",tenant=\"a\"} 1", "gpu_copies{state=\"idle\",tenant=\"a\"} 1",
        "gpu_copies{state=\"idle\",tenant=\"b\"} 1",
        "gpu_copies{state=\"loading\",tenant=\"b\"} 0"})
    cr_expect(line(each), "%s is not in %s", each, metrics().c_str());
}

Test(model_gpu, is_never_opened_to_be_written, .timeout = 60) {
  bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  config.flags = BELLOWS_MODEL_ON_GPU | BELLOWS_MODEL_WRITABLE;
  bellows_model_t* model = nullptr;
  cr_expect_eq(bellows_model_open("m", &config, &model), BELLOWS_MODEL_ERR_INVALID);
  cr_expect(has(bellows_model_error(model), "can only be read"));
  bellows_model_close(model);
}
