// SPDX-License-Identifier: Apache-2.0
/// Measures the model store from a program's side.
///
/// usage: model_bench open SOCKET MODEL COUNT   microseconds of each open and close, one a line
///        model_bench refused SOCKET MODEL COUNT  likewise, of opens that fail
///        model_bench read SOCKET MODEL COUNT   "SECONDS SECONDS": the first read of all data after
///                                              an open, and a read of as much memory of its own
///        model_bench first SOCKET MODEL FILE COUNT
///                                              "SECONDS SECONDS": open and a read of all data, and
///                                              read(2) of the file and a read of that memory
///        model_bench raw FILE                  seconds to read a file past the page cache
///        model_bench hold SOCKET MODEL         opens, says "open", and at each line that it gets
///                                              reads all and says "read", until there is none

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "modelstore/include/bellows_model.h"
#include "tests/bench/timed.h"

namespace {

volatile std::uint64_t sink;

/// As fast as one core reads.
void read_all(const void* data, std::uint64_t bytes) {
  const auto* words = static_cast<const std::uint64_t*>(data);
  std::uint64_t sums[8] = {};
  for (std::uint64_t i = 0; i + 8 <= bytes / 8; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += words[i + static_cast<std::uint64_t>(k)];
  for (std::uint64_t sum : sums) sink = sink + sum;
}

class Opened {
 public:
  Opened(const char* socket, const char* name) {
    bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
    config.socket = socket;
    if (bellows_model_open(name, &config, &model_) == BELLOWS_MODEL_OK &&
        bellows_model_tensor(model_, 0, &tensor_) == BELLOWS_MODEL_OK)
      return;
    std::fprintf(stderr, "%s\n", bellows_model_error(model_));
    std::exit(1);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { bellows_model_close(model_); }
  const bellows_tensor& tensor() const { return tensor_; }
  void read() const {
    bellows_tensor tensor = BELLOWS_TENSOR_INIT;
    for (std::uint64_t i = 0; i < bellows_model_count(model_); ++i)
      if (bellows_model_tensor(model_, i, &tensor) == BELLOWS_MODEL_OK)
        read_all(tensor.data, tensor.bytes);
  }

 private:
  bellows_model_t* model_ = nullptr;
  bellows_tensor tensor_ = BELLOWS_TENSOR_INIT;
};

void measure_opens(const char* socket, const char* name, int count) {
  for (int i = 0; i < count; ++i)
    std::printf("%.2f\n", 1e6 * timed([&] { const Opened opened(socket, name); }));
}

void measure_refusals(const char* socket, const char* name, int count) {
  bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  config.socket = socket;
  for (int i = 0; i < count; ++i) {
    int rc = BELLOWS_MODEL_OK;
    std::printf("%.2f\n", 1e6 * timed([&] {
                            bellows_model_t* model = nullptr;
                            rc = bellows_model_open(name, &config, &model);
                            bellows_model_close(model);
                          }));
    if (rc == BELLOWS_MODEL_ERR_NOT_FOUND) continue;
    std::fprintf(stderr, "%s can be seen\n", name);
    std::exit(1);
  }
}

void measure_reads(const char* socket, const char* name, int count) {
  const Opened first(socket, name);
  const std::vector<char> own(first.tensor().bytes, 1);
  for (int i = 0; i < count; ++i) {
    const double lent = timed([&] { Opened(socket, name).read(); });
    const double resident = timed([&] { read_all(own.data(), own.size()); });
    std::printf("%.6f %.6f\n", lent, resident);
  }
}

void read_file(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) {
    std::fprintf(stderr, "%s cannot be opened\n", path);
    std::exit(1);
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  // A vector would write zeros first.
  const std::unique_ptr<char[]> own(new char[size]);
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = read(fd, own.get() + at, size - at);
    if (got <= 0) {
      std::fprintf(stderr, "%s cannot be read\n", path);
      std::exit(1);
    }
    at += static_cast<std::size_t>(got);
  }
  close(fd);
  read_all(own.get(), size);
}

void measure_first(const char* socket, const char* name, const char* path, int count) {
  const Opened loaded(socket, name);
  for (int i = 0; i < count; ++i) {
    const double lent = timed([&] { Opened(socket, name).read(); });
    const double own = timed([&] { read_file(path); });
    std::printf("%.6f %.6f\n", lent, own);
  }
}

/// As fast as the disk is: several threads, each with a large piece at a time.
void read_raw(const char* path) {
  constexpr std::size_t kPiece = 4 << 20;
  const int fd = open(path, O_RDONLY | O_DIRECT);
  if (fd < 0) {
    std::fprintf(stderr, "%s has no O_DIRECT\n", path);
    std::exit(3);
  }
  std::atomic<off_t> next{0};
  const auto work = [&] {
    void* piece = std::aligned_alloc(4096, kPiece);
    while (pread(fd, piece, kPiece, next.fetch_add(kPiece)) > 0) {
    }
    std::free(piece);
  };
  std::printf("%.6f\n", timed([&] {
                std::vector<std::thread> threads;
                for (int i = 0; i < 4; ++i) threads.emplace_back(work);
                for (std::thread& thread : threads) thread.join();
              }));
  close(fd);
}

void hold(const char* socket, const char* name) {
  const Opened opened(socket, name);
  std::puts("open");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin)) {
    opened.read();
    std::puts("read");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 3 ? argv[1] : "";
  if (mode == "open" && argc == 5) {
    measure_opens(argv[2], argv[3], std::atoi(argv[4]));
  } else if (mode == "refused" && argc == 5) {
    measure_refusals(argv[2], argv[3], std::atoi(argv[4]));
  } else if (mode == "read" && argc == 5) {
    measure_reads(argv[2], argv[3], std::atoi(argv[4]));
  } else if (mode == "first" && argc == 6) {
    measure_first(argv[2], argv[3], argv[4], std::atoi(argv[5]));
  } else if (argc == 3 && std::string(argv[1]) == "raw") {
    read_raw(argv[2]);
  } else if (mode == "hold") {
    hold(argv[2], argv[3]);
  } else {
    std::fputs(
        "usage: model_bench open|refused|read|hold SOCKET MODEL [COUNT] | first SOCKET MODEL FILE "
        "COUNT | raw FILE\n",
        stderr);
    return 2;
  }
  return 0;
}
