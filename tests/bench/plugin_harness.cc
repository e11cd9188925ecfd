// SPDX-License-Identifier: Apache-2.0
// Times job_submit() of the plugin itself: plugin_harness PLUGIN POLICY ACCOUNT UID [COMMENT].
// Reads pairs of numbers from standard input, of calls and of KiB that pass through the processor's
// caches before each, and answers each pair with a line of JSON, in microseconds.
// Each call must admit the job and, as a Lua hook would, leave COMMENT in it.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/plugin_host.h"

namespace {

using bellows::HostJob;
using bellows::PluginHost;

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "plugin_harness: %s\n", text.c_str());
  std::exit(1);
}

double now_us(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Times {
  std::vector<double> wall;
  double most_cpu = 0;  ///< of one call, without what other programs ran in between
};

/// The jobs that are submitted, and what must become of them.
struct Case {
  std::string account;
  std::uint32_t uid;
  std::string comment;
};

void time_call(const PluginHost& host, const Case& wanted, Times& times) {
  const HostJob job = bellows::sample_job(wanted.account);
  job->user_id = wanted.uid;
  char* message = nullptr;
  const double cpu = now_us(CLOCK_THREAD_CPUTIME_ID);
  const double wall = now_us(CLOCK_MONOTONIC);
  const int rc = host.submit(*job, &message);
  times.wall.push_back(now_us(CLOCK_MONOTONIC) - wall);
  times.most_cpu = std::max(times.most_cpu, now_us(CLOCK_THREAD_CPUTIME_ID) - cpu);
  if (rc != SLURM_SUCCESS || !job->admin_comment)
    fail(std::string("the job was not admitted: ") + (message ? message : "without a reason"));
  if (wanted.comment != (job->comment ? job->comment : "")) fail("no hook has run, or another one");
  bellows::release(message);
}

void measure(const PluginHost& host, const Case& wanted, std::size_t calls, std::size_t kib) {
  Times times;
  std::vector<unsigned char> other(kib * 1024);
  times.wall.reserve(calls);
  for (std::size_t i = 0; i < calls; ++i) {
    for (std::size_t at = 0; at < other.size(); at += 64) ++other[at];
    time_call(host, wanted, times);
  }
  std::sort(times.wall.begin(), times.wall.end());
  std::printf("{\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f, \"max_cpu\": %.3f}\n",
              times.wall[calls / 2], times.wall[calls * 99 / 100], times.wall.back(),
              times.most_cpu);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 6) fail("usage: plugin_harness PLUGIN POLICY ACCOUNT UID [COMMENT]");
  const PluginHost host(argv[1], argv[2]);
  if (host.init() != SLURM_SUCCESS) fail("init failed");
  const Case wanted{argv[3], static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10)),
                    argc > 5 ? argv[5] : ""};
  unsigned long calls = 0;
  unsigned long kib = 0;
  while (std::scanf("%lu %lu", &calls, &kib) == 2 && calls > 0) measure(host, wanted, calls, kib);
  return host.fini() == SLURM_SUCCESS ? 0 : 1;
}
