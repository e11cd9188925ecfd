// SPDX-License-Identifier: Apache-2.0
// Arrays in a device's memory, with a stand-in for the CUDA runtime.
#include <criterion/criterion.h>
#include <dlfcn.h>

#include <set>

#include "checkpoint/include/bellows.h"
#include "tests/unit/checkpoint/library_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

constexpr std::size_t kBytes = 1 << 16;

/// The stand-in, compiled as `file` and loaded as a program loads the real one.
class Runtime {
 public:
  Runtime(const Place& place, const std::string& file, const std::string& options) {
    const std::string path = place.scratch.path() + "/" + file;
    const std::string compile =
        std::string(COMPILER) + " -shared -fPIC " + options + " -o " + path + " " STAND_IN;
    cr_assert(system(compile.c_str()) == 0, "%s", compile.c_str());
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    cr_assert(handle_, "%s", dlerror());
  }
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

void add_bytes(bellows_t* b, const char* name, void* data) {
  const std::uint64_t shape[] = {kBytes};
  cr_assert(bellows_register(b, name, BELLOWS_U8, 1, shape, BELLOWS_SHARDED, 0, kBytes, data) ==
                BELLOWS_OK,
            "%s", bellows_error(b));
}

bool full_of(const unsigned char* data, unsigned char value) {
  return std::all_of(data, data + kBytes, [value](unsigned char c) { return c == value; });
}

// What a training loop does with an array on a device and one on the host.
void save_and_restore(const char* file, const char* options) {
  Place place;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  // Only now, as a framework may.
  const Runtime cuda(place, file, options);
  void* device = cuda.function<void*(std::size_t)>("stand_in_malloc")(kBytes);
  unsigned char* shadow = cuda.function<unsigned char*()>("stand_in_shadow")();
  const auto later = cuda.function<void(std::size_t, unsigned char)>("stand_in_later");
  const auto registered = cuda.function<int()>("stand_in_registered");
  std::vector<unsigned char> host(kBytes, 9);
  add_bytes(b, "device", device);
  add_bytes(b, "host", host.data());
  for (std::uint64_t step = 1; step <= 3; ++step) {
    // A kernel that is under way when the save begins.
    later(kBytes, static_cast<unsigned char>(step));
    cr_assert(bellows_save_async(b, step) == BELLOWS_OK, "%s", bellows_error(b));
    memset(shadow, 0xee, kBytes);
    host.assign(kBytes, 0xee);
    cr_assert(bellows_wait(b) == BELLOWS_OK, "%s", bellows_error(b));
    host.assign(kBytes, 9);
    // The second save spares what the first has stored.
    cr_expect(registered() == (step == 1 ? 1 : 2), "%d buffers are registered", registered());
  }
  std::uint64_t step = 0;
  cr_assert(bellows_restore(b, &step) == BELLOWS_OK && step == 3, "%s", bellows_error(b));
  cr_expect(full_of(shadow, 3) && full_of(host.data(), 9));
  // A larger buffer that replaces another is registered again.
  std::vector<unsigned char> more(kBytes);
  add_bytes(b, "more", more.data());
  cr_assert(bellows_save(b, 4) == BELLOWS_OK, "%s", bellows_error(b));
  cr_expect(registered() == 2, "%d buffers are registered", registered());
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
  cr_expect(registered() == 0 && cuda.function<int()>("stand_in_streams")() == 0);
}

}  // namespace

Test(cuda, arrays_of_a_device_are_saved_and_restored, .timeout = 60) {
  save_and_restore("libcudart.so.12", "");
}

Test(cuda, a_runtime_with_the_old_symbol_table_is_found_too, .timeout = 60) {
  save_and_restore("libcudart.so", "-Wl,--hash-style=sysv");
}

Test(cuda, a_runtime_in_a_wheel_of_pytorch_is_found, .timeout = 60) {
  save_and_restore("libcudart-d0da41ae.so.11.0", "");
}

Test(cuda, a_failing_device_is_a_sentence, .timeout = 60) {
  Place place;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(nullptr, &b) == BELLOWS_OK, "%s", bellows_error(b));
  const Runtime cuda(place, "libcudart.so.11.0", "");
  add_bytes(b, "device", cuda.function<void*(std::size_t)>("stand_in_malloc")(kBytes));
  cuda.function<void(int)>("stand_in_fail")(719);
  cr_expect(bellows_save_async(b, 1) == BELLOWS_ERR_IO);
  cr_expect(has(bellows_error(b), "CUDA cannot copy an array: unspecified launch failure"), "%s",
            bellows_error(b));
  // The step has failed, and is told once; the next one may do better.
  cuda.function<void(int)>("stand_in_fail")(0);
  cr_expect(bellows_wait(b) == BELLOWS_OK);
  unsigned char* shadow = cuda.function<unsigned char*()>("stand_in_shadow")();
  std::uint64_t restored = 0;
  for (std::uint64_t step = 2; step <= 3; ++step) {
    // It waits for what the device was asked since.
    cuda.function<void(std::size_t, unsigned char)>("stand_in_later")(kBytes, 10 * step);
    cr_expect(bellows_save(b, step) == BELLOWS_OK, "%s", bellows_error(b));
    memset(shadow, 0xee, kBytes);
    cr_expect(bellows_restore(b, &restored) == BELLOWS_OK && restored == step);
    cr_expect(full_of(shadow, 10 * step), "step %lu", step);
    cuda.function<void(int)>("stand_in_fail")(719);
    cr_expect(bellows_restore(b, &restored) == BELLOWS_ERR_IO);
    cuda.function<void(int)>("stand_in_fail")(0);
  }
  cr_expect(bellows_finalize(b, 0) == BELLOWS_OK);
}
