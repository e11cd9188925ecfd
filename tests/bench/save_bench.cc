// SPDX-License-Identifier: Apache-2.0
// Times checkpoints against copies, writes and reads of the same bytes: save_bench DIR MEGABYTES
// PAIRS. Prints lines of JSON, for each kind of work one for each pair.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "checkpoint/include/bellows.h"
#include "common/fd.h"
#include "tests/bench/timed.h"

namespace {

constexpr std::size_t kBlock = 4 << 20;
/// A raw write or read is done by so many threads, and again by so many; whichever is faster on
/// this disk is what ours is held against, since ours has up to four.
constexpr int kRawThreads[] = {2, 4};

[[noreturn]] void fail(std::string_view text) {
  std::fprintf(stderr, "save_bench: %.*s\n", static_cast<int>(text.size()), text.data());
  std::exit(1);
}

bellows::Fd opened(const std::string& path, int flags) {
  bellows::Result<bellows::Fd> file = bellows::open_file(path, flags, 0600);
  if (!file) fail(file.error().text);
  return std::move(*file);
}

/// Memory as O_DIRECT needs it, touched.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : size_(bytes), data_(static_cast<char*>(std::aligned_alloc(4096, bytes)), std::free) {
    if (!data_) fail("out of memory");
    std::memset(data_.get(), 1, bytes);
  }
  char* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::unique_ptr<char, void (*)(void*)> data_;
};

void plain_write(const std::string& path, const Memory& data) {
  const bellows::Fd file = opened(path, O_WRONLY | O_CREAT | O_TRUNC);
  bellows::Status written = bellows::write_all(file.get(), {data.data(), data.size()}, path);
  if (!written) fail(written.error().text);
  if (fsync(file.get()) != 0) fail("fsync: " + path);
}

// Thread t of `count` takes the blocks t, t + count, and so on.
void in_blocks(std::size_t bytes, int count,
               const std::function<ssize_t(std::size_t, std::size_t)>& move) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t at = t * kBlock; at < bytes; at += count * kBlock) {
        const std::size_t now = std::min(kBlock, bytes - at);
        if (move(at, now) != static_cast<ssize_t>(now)) fail("a direct read or write was short");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void direct_write(const std::string& path, const Memory& data, int threads) {
  const bellows::Fd file = opened(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT);
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(data.size())) != 0) fail("fallocate: " + path);
  in_blocks(data.size(), threads, [&](std::size_t at, std::size_t bytes) {
    return pwrite(file.get(), data.data() + at, bytes, static_cast<off_t>(at));
  });
  if (fsync(file.get()) != 0) fail("fsync: " + path);
}

void direct_read(const std::string& path, const Memory& data, int threads) {
  const bellows::Fd file = opened(path, O_RDONLY | O_DIRECT);
  in_blocks(data.size(), threads, [&](std::size_t at, std::size_t bytes) {
    return pread(file.get(), data.data() + at, bytes, static_cast<off_t>(at));
  });
}

// Takes the newest step's files out of the page cache.
void evict(const std::string& checkpoints) {
  const std::string dir = checkpoints + "/latest";
  std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(dir.c_str()), closedir);
  if (!stream) fail("no " + dir);
  while (const dirent* entry = readdir(stream.get())) {
    if (entry->d_name[0] == '.') continue;
    const bellows::Fd file = opened(dir + "/" + entry->d_name, O_RDONLY);
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

/// A program of one rank with one array.
class Program {
 public:
  Program(const std::string& dir, const Memory& data) : dir_(dir) {
    bellows_config config = BELLOWS_CONFIG_INIT;
    config.dir = dir.c_str();
    config.rank = 0;
    config.world = 1;
    config.keep = 1;
    if (bellows_init(&config, &b_) < 0) fail(b_ ? bellows_error(b_) : "out of memory");
    const std::uint64_t count = data.size();
    check(bellows_register(b_, "data", BELLOWS_U8, 1, &count, BELLOWS_SHARDED, 0, count,
                           data.data()));
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { bellows_finalize(b_, 1); }

  double stall() {
    return timed([&] { check(bellows_save_async(b_, ++step_)); });
  }
  /// Until the step is durable, once training goes on.
  double finish_save() {
    return timed([&] { check(bellows_wait(b_)); });
  }
  double cold_restore() {
    evict(dir_);
    return timed([&] {
      std::uint64_t step = 0;
      check(bellows_restore(b_, &step));
      if (step == 0) fail("no step was restored");
    });
  }

 private:
  void check(int code) const {
    if (code < 0) fail(bellows_error(b_));
  }

  std::string dir_;
  bellows_t* b_ = nullptr;
  std::uint64_t step_ = 0;
};

// How long it takes with each number of threads.
std::vector<double> raw_times(const std::function<void(int)>& work) {
  std::vector<double> out;
  for (int threads : kRawThreads) out.push_back(timed([&] { work(threads); }));
  return out;
}

/// What one round measured, in seconds.
struct Times {
  std::vector<double> against;  ///< what ours is held against, in each way
  double ours = 0;
  double plain = 0, save = 0;  ///< of writes: as a program writes, and ours with the stall
};

// One line for each round but the first.
void report(int round, const char* kind, std::size_t bytes, const Times& times) {
  if (round < 0) return;
  std::printf("{\"kind\": \"%s\", \"bytes\": %zu, \"against_s\": [", kind, bytes);
  for (std::size_t i = 0; i < times.against.size(); ++i) {
    std::printf("%s%.6f", i > 0 ? ", " : "", times.against[i]);
  }
  std::printf("], \"ours_s\": %.6f", times.ours);
  if (times.plain > 0) {
    std::printf(", \"plain_s\": %.6f, \"save_s\": %.6f", times.plain, times.save);
  }
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: save_bench DIR MEGABYTES PAIRS");
  const std::string dir = argv[1], plain = dir + "/plain", direct = dir + "/direct";
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10) << 20;
  const Memory data(bytes), copy(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data.data()[i] = static_cast<char>(i * i >> 7);

  const std::string checkpoints = dir + "/checkpoints";
  auto program = std::make_unique<Program>(checkpoints, data);
  const int pairs = std::atoi(argv[3]);
  // Kinds of work apart from each other, since a disk goes on after a file is removed; the first
  // of each pays for memory and directories, here for two buffers.
  for (int i = -2; i < pairs; ++i) {
    data.data()[0] = static_cast<char>(i);
    const double copied = timed([&] { std::memcpy(copy.data(), data.data(), bytes); });
    report(i, "stall", bytes, {{copied}, program->stall()});
    program->finish_save();
  }
  for (int i = -1; i < pairs; ++i) {
    data.data()[0] = static_cast<char>(i);
    const double stall = program->stall();
    const double durable = program->finish_save();
    const double plain_s = timed([&] { plain_write(plain, data); });
    const auto raw = raw_times(
        [&](int threads) { direct_write(direct + std::to_string(threads), data, threads); });
    report(i, "write", bytes, {raw, durable, plain_s, stall + durable});
    unlink(plain.c_str());
    for (int threads : kRawThreads) unlink((direct + std::to_string(threads)).c_str());
  }
  direct_write(direct, data, kRawThreads[0]);
  for (int i = -1; i < pairs; ++i) {
    // Into the same memory as ours: on a virtual machine it depends on where its pages lie, by a
    // third, how fast a disk fills it.
    const auto raw = raw_times([&](int threads) { direct_read(direct, data, threads); });
    // The agent from before has the step in its memory.
    program.reset();
    program = std::make_unique<Program>(checkpoints, data);
    report(i, "read", bytes, {raw, program->cold_restore()});
  }
  unlink(direct.c_str());
  return 0;
}
