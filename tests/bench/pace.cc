// SPDX-License-Identifier: Apache-2.0
// A training that computes nothing: 20 steps a second until told to stop, a small checkpoint every
// hundred. For benchmarks of what happens around a training.
//
//   pace [--every STEPS] [--shared SECONDS] [--log FILE] [--alone]
//
// With --shared a step takes what its ranks share of so many seconds: it scales perfectly.
// Appends to the log when each rank comes to its first step, by CLOCK_MONOTONIC, and when its
// main() began; and when it has done that step. --alone: without Bellows.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "checkpoint/include/bellows.h"

namespace {

struct Options {
  std::uint64_t every = 100;
  double shared_s = 0;
  const char* log = nullptr;
  bool alone = false;
};

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// One write, so that the ranks' lines stay whole.
void append(const Options& options, const char* line) {
  if (!options.log) return;
  const std::size_t length = std::strlen(line);
  const int file = open(options.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (write(file, line, length) != static_cast<ssize_t>(length)) std::perror(options.log);
  close(file);
}

void note_first(const Options& options, double began) {
  char line[96];
  std::snprintf(line, sizeof line, "first %.6f main %.6f\n", now(), began);
  append(options, line);
}

void note_stepped(const Options& options) {
  char line[48];
  std::snprintf(line, sizeof line, "stepped %.6f\n", now());
  append(options, line);
}

int fail(bellows_t* b, int code) {
  std::fprintf(stderr, "pace: %s\n", b != nullptr ? bellows_error(b) : bellows_strerror(code));
  bellows_finalize(b, 0);
  return 1;
}

timespec step_time(const Options& options, int ranks) {
  const double seconds = options.shared_s > 0 ? options.shared_s / ranks : 0.05;
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

int run(bellows_t* b, const Options& options, double began) {
  std::vector<std::int64_t> values(1024);
  std::iota(values.begin(), values.end(), 0);
  const std::uint64_t count = values.size();
  int rc = bellows_register(b, "values", BELLOWS_I64, 1, &count, BELLOWS_REPLICATED, 0, 0,
                            values.data());
  const timespec pause = step_time(options, bellows_world(b));
  std::uint64_t step = 0;
  if (rc >= 0) rc = bellows_restore(b, &step);
  for (bool first = true; rc >= 0; ++step, first = false) {
    const int stop = rc = bellows_should_stop(b, step);
    if (rc >= 0 && first) note_first(options, began);
    if (rc >= 0 && (stop == 1 || step % options.every == options.every - 1))
      rc = bellows_save(b, step);
    if (rc >= 0 && stop == 1) return bellows_finalize(b, 0);
    nanosleep(&pause, nullptr);
    if (first) note_stepped(options);
  }
  return fail(b, rc);
}

}  // namespace

int main(int argc, char** argv) {
  const double began = now();
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--alone") == 0) options.alone = true;
    if (std::strcmp(argv[i], "--every") == 0) options.every = std::strtoull(argv[++i], nullptr, 10);
    if (std::strcmp(argv[i], "--shared") == 0) options.shared_s = std::strtod(argv[++i], nullptr);
    if (std::strcmp(argv[i], "--log") == 0) options.log = argv[++i];
  }
  if (options.alone) {
    note_first(options, began);
    for (;;) pause();
  }
  bellows_t* b = nullptr;
  const int rc = bellows_init(nullptr, &b);
  return rc < 0 ? fail(b, rc) : run(b, options, began);
}
