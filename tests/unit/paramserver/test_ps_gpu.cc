// SPDX-License-Identifier: Apache-2.0
// Learners whose gradients and weights are on GPUs. The driver is a fake one, which copies as late
// as a real one may: when somebody waits for it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

#include "tests/unit/paramserver/ps_processes.h"
#include "tests/unit/support/fake_driver.h"

using namespace bellows;
using namespace bellows::ps_test;

namespace {

constexpr float kUntouched = -1e30F;
constexpr unsigned kPortable = 1, kReadOnly = 8;

const std::vector<std::uint64_t> kCounts = {64, 100, 28};

/// A stream of a GPU, as a program makes it.
void* make_stream(const FakeDriver& driver, int device = 0) {
  void *context = nullptr, *stream = nullptr;
  cr_assert_eq(driver.function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device), 0);
  cr_assert_eq(driver.function<int(void*)>("cuCtxPushCurrent_v2")(context), 0);
  cr_assert_eq(driver.function<int(void**, unsigned)>("cuStreamCreate")(&stream, 1), 0);
  // None is left for the library to find.
  cr_assert_eq(driver.function<int(void**)>("cuCtxPopCurrent_v2")(&context), 0);
  return stream;
}

std::size_t locked(const FakeDriver& driver, const void* at, unsigned* flags) {
  return driver.function<std::size_t(const void*, unsigned*)>("fake_locked")(at, flags);
}

/// A learner whose tensors are on a GPU, the memory of which is the machine's.
class GpuLearner : public OpenLearner {
 public:
  explicit GpuLearner(double clip_norm = 0) : OpenLearner(kCounts, terms(clip_norm)) {
    cr_assert_eq(code, BELLOWS_PS_OK, "%s", error().c_str());
    for (const std::uint64_t count : kCounts) device.emplace_back(count);
  }

  void compute(std::uint32_t learner, std::uint32_t number) {
    std::uint64_t element = 0;
    for (auto& tensor : device)
      for (float& each : tensor) each = mark(learner, number, element++);
  }
  int gradients_from_device(const std::vector<void*>& streams) {
    for (std::size_t t = 0; t < device.size(); ++t)
      if (const int rc =
              bellows_ps_gradient_from_device(ps, t, device[t].data(), streams[t % streams.size()]);
          rc != BELLOWS_PS_OK)
        return rc;
    return BELLOWS_PS_OK;
  }
  int push_from_device(const std::vector<void*>& streams) {
    if (const int rc = bellows_ps_begin(ps); rc != BELLOWS_PS_OK) return rc;
    if (const int rc = gradients_from_device(streams); rc != BELLOWS_PS_OK) return rc;
    return bellows_ps_push(ps, 1);
  }
  int weights_to_device(void* stream) {
    for (std::size_t t = 0; t < device.size(); ++t)
      if (const int rc = bellows_ps_weights_to_device(ps, t, device[t].data(), stream);
          rc != BELLOWS_PS_OK)
        return rc;
    return BELLOWS_PS_OK;
  }
  std::vector<float> on_device() const {
    std::vector<float> all;
    for (const auto& tensor : device) all.insert(all.end(), tensor.begin(), tensor.end());
    return all;
  }

  std::vector<std::vector<float>> device;

 private:
  static bellows_ps_config terms(double clip_norm) {
    bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
    config.rate = 1;
    config.clip_norm = clip_norm;
    return config;
  }
};

/// Lets each call of the driver fail in turn, until `run` has gone through all of them. What it is
/// given says whether this is the call.
void fail_each_call(const FakeDriver& driver, const std::function<bool()>& run) {
  for (int call = 1;; ++call) {
    cr_assert_lt(call, 200);
    const int before = driver.function<int()>("fake_calls")();
    driver.set_own_faults("fail " + std::to_string(before + call) + " 2\n");
    if (run()) return;
  }
}

}  // namespace

Test(ps_gpu, gradients_are_complete_before_they_are_pushed, .timeout = 60) {
  const Server server({"--threads=2"});
  const FakeDriver driver;
  const std::vector<void*> streams = {make_stream(driver), make_stream(driver), nullptr};
  const std::vector<void*> others = {make_stream(driver, 1)};
  GpuLearner one, other;
  void* context = nullptr;
  // The default stream is that of the current context.
  cr_assert_eq(driver.function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0), 0);
  cr_assert_eq(driver.function<int(void*)>("cuCtxPushCurrent_v2")(context), 0);
  for (std::uint32_t q = 0; q < 50; ++q) {
    one.compute(0, q);
    cr_assert_eq(bellows_ps_begin(one.ps), BELLOWS_PS_OK);
    auto* const place = static_cast<float*>(bellows_ps_gradient(one.ps, 1));
    *place = kUntouched;
    cr_assert_eq(one.gradients_from_device(streams), BELLOWS_PS_OK, "%s", one.error().c_str());
    cr_assert_eq(*place, kUntouched);
    cr_assert_eq(bellows_ps_push(one.ps, 1), BELLOWS_PS_OK);
    other.compute(1, q);
    cr_assert_eq(other.push_from_device(others), BELLOWS_PS_OK, "%s", other.error().c_str());
  }
  cr_assert_eq(bellows_ps_drain(one.ps), BELLOWS_PS_OK);
  cr_assert_eq(bellows_ps_drain(other.ps), BELLOWS_PS_OK);
  cr_expect(is_sum(one.pull(), {50, 50}));
}

Test(ps_gpu, of_a_tensor_with_rows_those_are_copied_that_were_named, .timeout = 60) {
  row_width = 10;
  const Server server;
  const FakeDriver driver;
  void* const stream = make_stream(driver);
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  // No more than there is.
  const std::vector<float> device(2 * row_width, 3);
  const std::uint64_t rows[] = {1, 9};
  cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
  for (const std::size_t t : {0, 2})
    std::fill_n(static_cast<float*>(bellows_ps_gradient(learner.ps, t)), kCounts[t], 0.0F);
  auto* const place = static_cast<float*>(bellows_ps_gradient(learner.ps, 1));
  place[2 * row_width] = kUntouched;
  cr_assert_eq(bellows_ps_gradient_from_device(learner.ps, 1, nullptr, stream), BELLOWS_PS_OK,
               "of no rows: %s", learner.error().c_str());
  cr_assert_eq(bellows_ps_gradient_rows(learner.ps, 1, rows, 2), BELLOWS_PS_OK);
  cr_assert_eq(bellows_ps_gradient_from_device(learner.ps, 1, device.data(), stream), BELLOWS_PS_OK,
               "%s", learner.error().c_str());
  cr_assert_eq(bellows_ps_push(learner.ps, 1), BELLOWS_PS_OK);
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
  cr_expect_eq(place[2 * row_width], kUntouched);
  const std::vector<float> weights = learner.pull();
  for (std::uint64_t i = 0; i < weights.size(); ++i) {
    const std::uint64_t row = (i - kCounts[0]) / row_width;
    cr_expect_eq(weights[i], row == 1 || row == 9 ? -3 : 0, "element %d", static_cast<int>(i));
  }
}

Test(ps_gpu, the_last_copy_of_a_gradient_counts, .timeout = 60) {
  const Server server;
  const FakeDriver driver;
  GpuLearner learner;
  std::vector<float> wrong(kCounts[1], 7);
  // Later copies may be asked for in other streams, and of other devices.
  void* const streams[] = {make_stream(driver), make_stream(driver), make_stream(driver, 1)};
  for (std::uint32_t q = 0; q < 3; ++q) {
    learner.compute(0, q);
    cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_gradient_from_device(learner.ps, 1, wrong.data(), streams[q]), 0);
    cr_assert_eq(learner.gradients_from_device({streams[(q + 1) % 3]}), BELLOWS_PS_OK);
    const auto* const place = static_cast<float*>(bellows_ps_gradient(learner.ps, 1));
    cr_assert_eq(bellows_ps_push(learner.ps, 1), BELLOWS_PS_OK, "%s", learner.error().c_str());
    // And no other is under way any more.
    for (void* stream : streams) driver.function<int(void*)>("cuStreamSynchronize")(stream);
    cr_assert_eq(*place, learner.device[1][0]);
  }
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
  cr_expect(is_sum(learner.pull(), {3}));
}

Test(ps_gpu, the_norm_is_that_of_what_was_copied, .timeout = 60) {
  const Server server;
  const FakeDriver driver;
  GpuLearner learner(1);
  for (auto& tensor : learner.device) tensor.assign(tensor.size(), 2);
  cr_assert_eq(learner.push_from_device({make_stream(driver)}), BELLOWS_PS_OK);
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
  const float each = 1 / std::sqrt(192.0F);
  for (const float weight : learner.pull()) cr_assert_lt(std::fabs(weight + each), 1e-6F);
}

Test(ps_gpu, weights_stay_until_they_are_copied, .timeout = 60) {
  const Server server({"--threads=2", "--learners=2"});
  const FakeDriver driver;
  void* const stream = make_stream(driver);
  GpuLearner reader;
  OpenLearner writer;
  for (std::uint32_t q = 0; q < 33; q += 11) {
    const std::vector<float> before = reader.pull();
    cr_assert_eq(reader.weights_to_device(stream), BELLOWS_PS_OK, "%s", reader.error().c_str());
    cr_assert(reader.on_device() != before || q == 0);
    // The newest are in another buffer, and after that the server may write to the first.
    cr_assert_eq(writer.push(0, q), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_drain(writer.ps), BELLOWS_PS_OK);
    (void)reader.pull();
    for (std::uint32_t i = 1; i < 11; ++i) cr_assert_eq(writer.push(0, q + i), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_drain(writer.ps), BELLOWS_PS_OK);
    driver.function<int(void*)>("cuStreamSynchronize")(stream);
    cr_expect(reader.on_device() == before, "after %u", q);
  }
}

Test(ps_gpu, memory_is_locked_when_it_is_copied_first_and_until_the_end, .timeout = 60) {
  const Server server({"--threads=1"});
  const FakeDriver driver;
  void* const stream = make_stream(driver);
  unsigned flags = 0;
  {
    GpuLearner learner, other;
    cr_expect_eq(locked(driver, nullptr, &flags), 0);
    cr_assert_eq(learner.push_from_device({stream}), BELLOWS_PS_OK);
    const std::size_t slot = locked(driver, nullptr, &flags);
    cr_expect_eq(flags, kPortable);
    cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
    cr_expect_eq(locked(driver, bellows_ps_gradient(learner.ps, 2), &flags), slot);
    // Of weights, no more than was pulled.
    (void)learner.pull();
    cr_assert_eq(learner.weights_to_device(stream), BELLOWS_PS_OK);
    const void* const weights = bellows_ps_weights(learner.ps, 2);
    const std::size_t buffer = locked(driver, weights, &flags);
    cr_expect_eq(flags, kPortable | kReadOnly);
    cr_expect_lt(buffer, 8192);
    cr_expect_eq(locked(driver, nullptr, &flags), slot + buffer);
    cr_assert_eq(learner.weights_to_device(stream), BELLOWS_PS_OK);
    cr_expect_eq(locked(driver, nullptr, &flags), slot + buffer);
    cr_assert_eq(other.push_from_device({stream}), BELLOWS_PS_OK);
    cr_expect_eq(locked(driver, nullptr, &flags), 2 * slot + buffer);
    cr_expect_eq(learner.leave(), BELLOWS_PS_OK);
    cr_expect_eq(locked(driver, nullptr, &flags), slot);
  }
  cr_expect_eq(locked(driver, nullptr, &flags), 0);
}

Test(ps_gpu, memory_that_cannot_be_locked_is_copied_all_the_same, .timeout = 60) {
  const Server server;
  const FakeDriver driver;
  void* const stream = make_stream(driver);
  driver.set_own_faults("writable 1\n");
  GpuLearner learner;
  cr_assert_eq(learner.push(0, 0), BELLOWS_PS_OK);
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
  const std::vector<float> weights = learner.pull();
  cr_expect_str_empty(bellows_ps_unpinned(learner.ps));
  cr_assert_eq(learner.weights_to_device(stream), BELLOWS_PS_OK);
  unsigned flags = 0;
  cr_expect_eq(locked(driver, nullptr, &flags), 0);
  cr_expect_str_eq(bellows_ps_unpinned(learner.ps),
                   "copies of weights are slower: CUDA cannot page-lock their memory: "
                   "CUDA_ERROR_OF_THE_TEST");
  (void)learner.pull();
  cr_expect(learner.on_device() == weights);
}

Test(ps_gpu, a_gradient_is_not_pushed_after_any_error, .timeout = 60) {
  const Server server;
  const FakeDriver driver;
  const std::vector<void*> streams = {make_stream(driver), make_stream(driver, 1)};
  OpenLearner reader;
  std::uint32_t pushed = 0, errors = 0, unlocked = 0;
  fail_each_call(driver, [&] {
    GpuLearner learner;
    learner.compute(0, pushed);
    const int rc = learner.push_from_device(streams);
    driver.set_own_faults("");
    if (rc == BELLOWS_PS_OK) {
      ++pushed;
      if (*bellows_ps_unpinned(learner.ps)) ++unlocked;
      return !*bellows_ps_unpinned(learner.ps);
    }
    ++errors;
    cr_assert_eq(rc, BELLOWS_PS_ERR_DEVICE);
    cr_assert(learner.error().starts_with("CUDA cannot ") &&
                  learner.error().ends_with(": CUDA_ERROR_OUT_OF_MEMORY"),
              "%s", learner.error().c_str());
    cr_assert_eq(bellows_ps_push(learner.ps, 1), BELLOWS_PS_ERR_DEVICE);
    cr_assert_neq(learner.error().find("bellows_ps_begin"), std::string::npos);
    cr_assert(is_sum(reader.pull(), {pushed}));
    cr_assert_eq(learner.push_from_device(streams), BELLOWS_PS_OK, "%s", learner.error().c_str());
    ++pushed;
    return false;
  });
  cr_expect_gt(errors, 10);
  cr_expect_eq(unlocked, 1);
  cr_expect(is_sum(reader.pull(), {pushed}));
}

Test(ps_gpu, a_copy_that_no_event_follows_is_complete, .timeout = 60) {
  const Server server;
  const FakeDriver driver;
  void* const stream = make_stream(driver);
  GpuLearner learner;
  cr_assert_eq(learner.push_from_device({stream}), BELLOWS_PS_OK);
  learner.compute(0, 0);
  cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
  const int calls = driver.function<int()>("fake_calls")();
  // The context is found and made current, and the copy asked for.
  driver.set_own_faults("fail " + std::to_string(calls + 4) + " 2\n");
  cr_expect_eq(bellows_ps_gradient_from_device(learner.ps, 0, learner.device[0].data(), stream),
               BELLOWS_PS_ERR_DEVICE);
  cr_expect_neq(learner.error().find("record an event"), std::string::npos);
  const auto* const place = static_cast<float*>(bellows_ps_gradient(learner.ps, 0));
  cr_expect(std::equal(learner.device[0].begin(), learner.device[0].end(), place));
}

Test(ps_gpu, weights_are_not_pulled_after_an_error, .timeout = 60) {
  const Server server;
  const FakeDriver driver;
  void* const stream = make_stream(driver);
  OpenLearner writer;
  std::uint32_t number = 0, errors = 0;
  fail_each_call(driver, [&] {
    GpuLearner learner;
    const std::vector<float> before = learner.pull();
    int rc = learner.weights_to_device(stream);
    if (rc == BELLOWS_PS_OK) rc = bellows_ps_pull(learner.ps);
    driver.set_own_faults("");
    if (rc != BELLOWS_PS_OK) {
      ++errors;
      cr_assert_eq(rc, BELLOWS_PS_ERR_DEVICE);
      for (int i = 0; i < 10; ++i) cr_assert_eq(writer.push(0, number++), BELLOWS_PS_OK);
      cr_assert_eq(bellows_ps_drain(writer.ps), BELLOWS_PS_OK);
      cr_assert_eq(*bellows_ps_weights(learner.ps, 0), before[0]);
      cr_assert_eq(learner.weights_to_device(stream), BELLOWS_PS_OK);
      cr_assert_eq(bellows_ps_pull(learner.ps), BELLOWS_PS_OK, "%s", learner.error().c_str());
    }
    cr_assert(learner.on_device() == before);
    return rc == BELLOWS_PS_OK && !*bellows_ps_unpinned(learner.ps);
  });
  cr_expect_gt(errors, 5);
}

Test(ps_gpu, leaving_waits_for_copies_and_says_when_they_fail, .timeout = 60) {
  const Server server;
  const FakeDriver driver;
  void* const stream = make_stream(driver);
  OpenLearner stays;
  cr_assert_eq(stays.push(0, 0), BELLOWS_PS_OK);
  cr_assert_eq(bellows_ps_drain(stays.ps), BELLOWS_PS_OK);
  GpuLearner good, bad;
  const std::vector<float> weights = good.pull();
  cr_assert_eq(good.weights_to_device(stream), BELLOWS_PS_OK);
  cr_expect_eq(good.leave(), BELLOWS_PS_OK);
  cr_expect(good.on_device() == weights);
  (void)bad.pull();
  cr_assert_eq(bad.weights_to_device(stream), BELLOWS_PS_OK);
  const int calls = driver.function<int()>("fake_calls")();
  // Behind the one that makes the context current.
  driver.set_own_faults("fail " + std::to_string(calls + 2) + " 2\n");
  cr_expect_eq(bad.leave(), BELLOWS_PS_ERR_DEVICE);
}

Test(ps_gpu, what_cannot_be_is_said, .timeout = 60) {
  const Server server;
  GpuLearner learner;
  void* const memory = learner.device[0].data();
  bellows_ps_t* const ps = learner.ps;
  cr_expect_eq(bellows_ps_weights_to_device(ps, 0, memory, nullptr), BELLOWS_PS_ERR_INVALID);
  cr_expect_eq(bellows_ps_gradient_from_device(ps, 0, memory, nullptr), BELLOWS_PS_ERR_INVALID);
  cr_expect_neq(learner.error().find("bellows_ps_begin first"), std::string::npos);
  cr_assert_eq(bellows_ps_begin(ps), BELLOWS_PS_OK);
  cr_expect_eq(bellows_ps_gradient_from_device(ps, 3, memory, nullptr), BELLOWS_PS_ERR_INVALID);
  // No driver is loaded yet.
  cr_expect_eq(bellows_ps_gradient_from_device(ps, 0, memory, nullptr), BELLOWS_PS_ERR_DEVICE);
  cr_expect_neq(learner.error().find("has not loaded libcuda.so.1"), std::string::npos);
  cr_expect_eq(bellows_ps_push(ps, 1), BELLOWS_PS_ERR_DEVICE);
  const FakeDriver driver;
  driver.load();
  cr_assert_eq(bellows_ps_begin(ps), BELLOWS_PS_OK);
  // And no context is current.
  cr_expect_eq(bellows_ps_gradient_from_device(ps, 0, memory, nullptr), BELLOWS_PS_ERR_DEVICE);
  cr_expect_neq(learner.error().find("find the context of a stream"), std::string::npos);
  learner.compute(0, 0);
  cr_expect_eq(learner.push_from_device({make_stream(driver)}), BELLOWS_PS_OK);
}
