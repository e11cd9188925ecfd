// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/format/shard_file.h"
#include "checkpoint/store/store_writer.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

// What the checkpoint tests share: shards made by hand, deadlines.
namespace bellows::checkpoint_test {

/// Looks every millisecond; false when it isn't true in time.
inline bool eventually(const std::function<bool()>& holds, int limit_ms = 10000) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// The rows of a sharded array that a rank holds: uneven on purpose, and none for some ranks.
struct Rows {
  std::uint64_t first;
  std::uint64_t count;
};
inline Rows rows_of(std::uint32_t rank, std::uint32_t world, std::uint64_t total) {
  // Rank 1 of three or more holds nothing; the others share by rank order, the last has the rest.
  std::uint64_t first = 0;
  for (std::uint32_t r = 0; r < world; ++r) {
    const bool last = r == world - 1;
    std::uint64_t count = last ? total - first : (world >= 3 && r == 1) ? 0 : total / world + r % 2;
    if (count > total - first) count = total - first;
    if (r == rank) return {first, count};
    first += count;
  }
  return {0, 0};
}

inline wire::Array f32_array(std::vector<std::uint64_t> shape, std::uint32_t layout,
                             std::uint64_t first = 0, std::uint64_t rows = 0) {
  wire::Array a;
  a.dtype = 3;
  a.ndims = static_cast<std::uint32_t>(shape.size());
  a.layout = layout;
  std::copy(shape.begin(), shape.end(), a.shape);
  a.first = first;
  a.count = layout == wire::kSharded ? rows : shape.empty() ? 1 : shape[0];
  return a;
}

/// Writes one rank's shard of an array "x" of f32[total], sharded, each value row + step.
inline Result<ShardFile> write_rank(StoreWriter& writer, FileOps& ops, std::uint64_t step,
                                    std::uint32_t rank, std::uint32_t world, Rows rows,
                                    std::uint64_t total) {
  std::vector<float> values(rows.count + 1);
  for (std::uint64_t i = 0; i < rows.count; ++i) {
    values[i] = static_cast<float>(rows.first + i + step);
  }
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.rank = rank;
  snapshot.world = world;
  snapshot.parts.push_back({"x", f32_array({total}, 1, rows.first, rows.count)});
  snapshot.offsets.push_back(0);
  snapshot.data = reinterpret_cast<const unsigned char*>(values.data());
  if (auto status = writer.begin_step(step); !status) return status.error();
  std::atomic<bool> cancelled{false};
  return write_shard(ops, writer.shard_path(step, rank, world), snapshot, cancelled);
}

/// Saves a whole step of f32[10] with two ranks.
inline Status save_step(StoreWriter& writer, FileOps& ops, std::uint64_t step) {
  std::vector<ShardFile> shards;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto shard = write_rank(writer, ops, step, rank, 2, rows_of(rank, 2, 10), 10);
    if (!shard) return shard.error();
    shards.push_back(*shard);
  }
  auto done = writer.commit(step, shards);
  return done ? Status() : Status(done.error());
}

/// The text of the error, or "".
inline std::string why(const Status& status) { return status ? "" : status.error().text; }

/// As long as it lives, other processes can't open the file: a passing failure that needs no broken
/// disk. The kernel gives up waiting for the holder of a lease after 45 seconds.
class OpenBlock {
 public:
  explicit OpenBlock(const std::string& path) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0) abort();
    holder_ = fork();
    if (holder_ == 0) {
      alarm(60);
      signal(SIGIO, SIG_IGN);
      const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      const char held = fcntl(fd, F_SETLEASE, F_WRLCK) == 0 ? 'y' : 'n';
      if (write(ready[1], &held, 1) == 1) pause();
      _exit(1);
    }
    char held = 'n';
    close(ready[1]);
    if (read(ready[0], &held, 1) != 1 || held != 'y') abort();
    close(ready[0]);
  }
  OpenBlock(const OpenBlock&) = delete;
  OpenBlock& operator=(const OpenBlock&) = delete;
  ~OpenBlock() {
    kill(holder_, SIGKILL);
    waitpid(holder_, nullptr, 0);
  }

 private:
  pid_t holder_;
};

inline void flip_byte(const std::string& path, std::int64_t offset) {
  const int fd = open(path.c_str(), O_RDWR);
  char byte = 0;
  if (pread(fd, &byte, 1, offset) == 1) {
    byte = static_cast<char>(byte ^ 0x10);
    if (pwrite(fd, &byte, 1, offset) != 1) abort();
  }
  close(fd);
}

}  // namespace bellows::checkpoint_test
