// SPDX-License-Identifier: Apache-2.0
// A training that computes nothing: 20 steps a second until told to stop, a small checkpoint every
// hundred. For benchmarks of what happens around a training.
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "checkpoint/bellows.h"

namespace {

int fail(bellows_t* b, int code) {
  std::fprintf(stderr, "pace: %s\n", b != nullptr ? bellows_error(b) : bellows_strerror(code));
  bellows_finalize(b, 0);
  return 1;
}

int run(bellows_t* b) {
  std::vector<std::int64_t> values(1024);
  std::iota(values.begin(), values.end(), 0);
  const std::uint64_t count = values.size();
  int rc = bellows_register(b, "values", BELLOWS_I64, 1, &count, BELLOWS_REPLICATED, 0, 0,
                            values.data());
  std::uint64_t step = 0;
  if (rc >= 0) rc = bellows_restore(b, &step);
  for (; rc >= 0; ++step) {
    const int stop = rc = bellows_should_stop(b, step);
    if (rc >= 0 && (stop == 1 || step % 100 == 99)) rc = bellows_save(b, step);
    if (rc >= 0 && stop == 1) return bellows_finalize(b, 0);
    const timespec pause{0, 50'000'000};
    nanosleep(&pause, nullptr);
  }
  return fail(b, rc);
}

}  // namespace

int main() {
  bellows_t* b = nullptr;
  const int rc = bellows_init(nullptr, &b);
  return rc < 0 ? fail(b, rc) : run(b);
}
