// SPDX-License-Identifier: Apache-2.0
// Times checkpoints against plain writes of the same bytes: save_bench DIR MEGABYTES PAIRS.
// Prints one line of JSON for each pair.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/bellows.h"
#include "common/fd.h"

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

[[noreturn]] void fail(std::string_view text) {
  std::fprintf(stderr, "save_bench: %.*s\n", static_cast<int>(text.size()), text.data());
  std::exit(1);
}

double time_save(bellows_t* b, std::uint64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  if (bellows_save(b, step) < 0) fail(bellows_error(b));
  return seconds_since(begin);
}

double time_write(const std::string& path, const std::vector<double>& data) {
  const auto begin = std::chrono::steady_clock::now();
  bellows::Result<bellows::Fd> file = bellows::open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (!file) fail(file.error().text);
  const std::string_view bytes(reinterpret_cast<const char*>(data.data()),
                               data.size() * sizeof(double));
  bellows::Status written = bellows::write_all(file->get(), bytes, path);
  if (!written) fail(written.error().text);
  if (fsync(file->get()) != 0) fail("fsync: " + path);
  const double seconds = seconds_since(begin);
  unlink(path.c_str());
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: save_bench DIR MEGABYTES PAIRS");
  const std::string dir = argv[1];
  const std::uint64_t count = std::strtoull(argv[2], nullptr, 10) * 1000000 / sizeof(double);
  std::vector<double> data(count);
  for (std::uint64_t i = 0; i < count; ++i) data[i] = 1.0 / static_cast<double>(i + 1);

  const std::string checkpoints = dir + "/checkpoints";
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.dir = checkpoints.c_str();
  config.rank = 0;
  config.world = 1;
  config.keep = 1;
  bellows_t* b = nullptr;
  if (bellows_init(&config, &b) < 0) fail(b ? bellows_error(b) : "out of memory");
  if (bellows_register(b, "data", BELLOWS_F64, 1, &count, BELLOWS_SHARDED, 0, count, data.data()) <
      0) {
    fail(bellows_error(b));
  }
  const int pairs = std::atoi(argv[3]);
  // The first of each kind pays for memory and directories.
  for (int i = -1; i < pairs; ++i) {
    data[0] = i;
    const double save = time_save(b, static_cast<std::uint64_t>(i + 2));
    const double write = time_write(dir + "/plain", data);
    if (i < 0) continue;
    std::printf("{\"bytes\": %llu, \"save_s\": %.6f, \"write_s\": %.6f}\n",
                static_cast<unsigned long long>(count * sizeof(double)), save, write);
  }
  bellows_finalize(b, 1);
  return 0;
}
