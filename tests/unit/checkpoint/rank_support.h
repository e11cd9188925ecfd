// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdio>

#include "checkpoint/include/bellows.h"
#include "tests/unit/checkpoint/library_support.h"

// What the tests share that run ranks of a program as processes.
namespace bellows::checkpoint_test {

constexpr std::uint64_t kRows = 11;

/// What one rank holds: a sharded f32[11,2], a replicated f64[3] and a replicated u64 scalar.
struct Model {
  Rows rows;
  std::vector<float> sharded;
  double replicated[3] = {};
  std::uint64_t count = 0;

  Model(std::uint32_t rank, std::uint32_t world)
      : rows(rows_of(rank, world, kRows)), sharded(rows.count * 2) {}
  void fill(std::uint64_t step) {
    for (std::uint64_t i = 0; i < sharded.size(); ++i) {
      sharded[i] = static_cast<float>(rows.first * 2 + i + 1000 * step);
    }
    for (int i = 0; i < 3; ++i) replicated[i] = static_cast<double>(step) + i / 8.0;
    count = step * step;
  }
  int add_to(bellows_t* b) {
    const std::uint64_t shape[] = {kRows, 2}, three[] = {3};
    int rc = bellows_register(b, "optimizer/m", BELLOWS_F32, 2, shape, BELLOWS_SHARDED, rows.first,
                              rows.count, sharded.data());
    if (rc == 0)
      rc = bellows_register(b, "w", BELLOWS_F64, 1, three, BELLOWS_REPLICATED, 0, 0, replicated);
    return rc ? rc
              : bellows_register(b, "n", BELLOWS_U64, 0, nullptr, BELLOWS_REPLICATED, 0, 0, &count);
  }
  bool operator==(const Model& other) const {
    return sharded == other.sharded && std::equal(replicated, replicated + 3, other.replicated) &&
           count == other.count;
  }
};

using RankMain = std::function<int(int rank, bellows_t* b)>;

inline pid_t start_rank(int rank, int world, const RankMain& run, unsigned seconds = 60) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  // Should the test fail, its ranks must not outlive it.
  alarm(seconds);
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.rank = rank;
  config.world = world;
  bellows_t* b = nullptr;
  if (bellows_init(&config, &b) != BELLOWS_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, bellows_error(b));
    _exit(100);
  }
  const int rc = run(rank, b);
  if (rc != 0 && rc != 7) fprintf(stderr, "rank %d gives %d: %s\n", rank, rc, bellows_error(b));
  _exit(rc);
}

inline std::vector<int> run_ranks(int world, const RankMain& run, int seconds = 20) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    pids.push_back(start_rank(rank, world, run, static_cast<unsigned>(3 * seconds)));
  }
  std::vector<int> out;
  for (pid_t pid : pids) out.push_back(await_rank(pid, 1000 * seconds));
  return out;
}

inline bool all(const std::vector<int>& codes, int wanted) {
  return std::all_of(codes.begin(), codes.end(), [&](int code) { return code == wanted; });
}

}  // namespace bellows::checkpoint_test
