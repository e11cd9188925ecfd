// SPDX-License-Identifier: Apache-2.0
// Times saves of an array on a GPU, and restores onto it, against one cudaMemcpy of the same bytes
// from or to pinned memory: gpu_bench DIR MEGABYTES PAIRS. Prints lines as save_bench does; exits
// with 77 and a sentence where there is no GPU. Compiled without CUDA: the runtime is loaded.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/include/bellows.h"
#include "tests/bench/timed.h"

namespace {

constexpr int kSkipped = 77;
constexpr int kToHost = 2, kToDevice = 1;  ///< cudaMemcpyKind

[[noreturn]] void end(int status, std::string_view text) {
  std::fprintf(stderr, "gpu_bench: %.*s\n", static_cast<int>(text.size()), text.data());
  std::exit(status);
}

/// The CUDA runtime, loaded as a framework loads it, and its first device.
class Runtime {
 public:
  Runtime() {
    for (const char* name : {"libcudart.so", "libcudart.so.13", "libcudart.so.12",
                             "libcudart.so.11.0", "/usr/local/cuda/lib64/libcudart.so"}) {
      if (!library_) library_ = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    }
    if (!library_) end(kSkipped, "there is no libcudart.so");
    int devices = 0;
    if (function<int(int*)>("cudaGetDeviceCount")(&devices) != 0 || devices == 0) {
      end(kSkipped, "there is no GPU");
    }
    memcpy_ = function<int(void*, const void*, std::size_t, int)>("cudaMemcpy");
  }
  /// Memory of the device, and of the host where the device copies to directly.
  char* device(std::size_t bytes) const { return allocate("cudaMalloc", bytes); }
  char* pinned(std::size_t bytes) const { return allocate("cudaMallocHost", bytes); }

  void copy(void* to, const void* from, std::size_t bytes, int kind) const {
    if (memcpy_(to, from, bytes, kind) != 0) end(1, "cudaMemcpy failed");
  }

 private:
  template <typename Function>
  Function* function(const char* name) const {
    void* found = dlsym(library_, name);
    if (!found) end(1, std::string("the runtime has no ") + name);
    return reinterpret_cast<Function*>(found);
  }
  char* allocate(const char* name, std::size_t bytes) const {
    void* out = nullptr;
    if (function<int(void**, std::size_t)>(name)(&out, bytes) != 0) {
      end(1, std::string(name) + " failed");
    }
    return static_cast<char*>(out);
  }

  void* library_ = nullptr;
  int (*memcpy_)(void*, const void*, std::size_t, int) = nullptr;
};

/// What a pair of measurements says; the first pairs pay for what is made once.
void report(int pair, const char* kind, std::size_t bytes, double against, double ours) {
  if (pair < 0) return;
  std::printf("{\"kind\": \"%s\", \"bytes\": %zu, \"against_s\": [%.6f], \"ours_s\": %.6f}\n", kind,
              bytes, against, ours);
  std::fflush(stdout);
}

void measure(const Runtime& cuda, const std::string& dir, std::size_t bytes, int pairs) {
  char* const device = cuda.device(bytes);
  char* const host = cuda.pinned(bytes);
  std::vector<char> content(bytes);
  for (std::size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i * i >> 7);
  cuda.copy(device, content.data(), bytes, kToDevice);

  bellows_config config = BELLOWS_CONFIG_INIT;
  config.dir = dir.c_str();
  config.rank = 0;
  config.world = 1;
  config.keep = 1;
  bellows_t* b = nullptr;
  const auto check = [&](int code) {
    if (code < 0) end(1, b ? bellows_error(b) : "out of memory");
  };
  check(bellows_init(&config, &b));
  const std::uint64_t count = bytes;
  check(bellows_register(b, "data", BELLOWS_U8, 1, &count, BELLOWS_SHARDED, 0, count, device));
  std::uint64_t step = 0;
  for (int i = -2; i < pairs; ++i) {
    const double copied = timed([&] { cuda.copy(host, device, bytes, kToHost); });
    report(i, "gpu_stall", bytes, copied, timed([&] { check(bellows_save_async(b, ++step)); }));
    check(bellows_wait(b));
  }
  for (int i = -1; i < pairs; ++i) {
    const double copied = timed([&] { cuda.copy(device, host, bytes, kToDevice); });
    std::uint64_t restored = 0;
    report(i, "gpu_restore", bytes, copied, timed([&] { check(bellows_restore(b, &restored)); }));
    if (restored != step) end(1, "another step was restored");
  }
  cuda.copy(host, device, bytes, kToHost);
  if (std::memcmp(host, content.data(), bytes) != 0) end(1, "other bytes were restored");
  check(bellows_finalize(b, 1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) end(1, "usage: gpu_bench DIR MEGABYTES PAIRS");
  const Runtime cuda;
  measure(cuda, argv[1], std::strtoull(argv[2], nullptr, 10) << 20, std::atoi(argv[3]));
  return 0;
}
