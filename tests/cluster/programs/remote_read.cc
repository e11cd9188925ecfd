// SPDX-License-Identifier: Apache-2.0
// Reads a remote file as a loader does: several threads, a piece at a time.
//
// usage: remote_read [--threads N] [--piece BYTES] [--out FILE] [--endpoint URL] [--ca FILE]
//                    [--allow ADDRESSES]... URL
//
// S3's keys are in ACCESS_KEY and SECRET_KEY, a token in TOKEN. Prints the bytes, the seconds that
// reading them took, and megabytes a second; or the error, and exits with 1.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/text.h"
#include "modelstore/remote/remote_file.h"

namespace {

using namespace bellows;

struct Options {
  std::uint64_t threads = 4;
  std::uint64_t piece = 1 << 20;
  std::string out;
  std::string url;
  RemoteCredentials credentials;
  RemoteLimits limits;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  options.limits.addresses.clear();
  options.credentials.bearer = variable("TOKEN");
  options.credentials.s3.access_key = variable("ACCESS_KEY");
  options.credentials.s3.secret_key = variable("SECRET_KEY");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--threads")
      options.threads = parse_uint(value).value_or(0);
    else if (name == "--piece")
      options.piece = parse_uint(value).value_or(0);
    else if (name == "--out")
      options.out = value;
    else if (name == "--endpoint")
      options.credentials.s3.endpoint = value;
    else if (name == "--ca")
      options.limits.ca_file = value;
    else if (name == "--allow")
      options.limits.addresses.push_back(value);
    else
      return std::nullopt;
  }
  options.url = argv[argc - 1];
  if (argc % 2 != 0 || options.threads == 0 || options.piece == 0) return std::nullopt;
  return options;
}

/// Memory for the whole file, or for a piece of each thread.
unsigned char* memory_for(const Options& options, std::uint64_t size) {
  if (options.out.empty())
    return static_cast<unsigned char*>(mmap(nullptr, options.threads * options.piece,
                                            PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                            0));
  const Fd file(open(options.out.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file || ftruncate(file.get(), static_cast<off_t>(size)) < 0) return nullptr;
  return static_cast<unsigned char*>(
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
}

Status read_all(const RemoteFile& file, const Options& options, unsigned char* memory) {
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  Status first;
  const auto work = [&](std::uint64_t thread) {
    for (std::uint64_t at; (at = next.fetch_add(options.piece)) < file.size();) {
      unsigned char* to = memory + (options.out.empty() ? thread * options.piece : at);
      auto read = file.read(at, to, std::min(options.piece, file.size() - at));
      if (read) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      if (first) first = std::move(read);
      next = file.size();
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < options.threads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  return first;
}

int fail(const std::string& why) {
  fmt::print(stderr, "remote_read: {}\n", why);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) {
    fail("wrong usage: see the source");
    return 2;
  }
  const auto file = RemoteFile::open(options->url, options->credentials, options->limits);
  if (!file) return fail(file.error().text);
  unsigned char* memory = memory_for(*options, file->size());
  if (!memory || memory == MAP_FAILED) return fail(std::strerror(errno));
  const auto begin = std::chrono::steady_clock::now();
  const auto read = read_all(*file, *options, memory);
  if (!read) return fail(read.error().text);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{} {:.3f} {:.0f}\n", file->size(), took.count(),
             static_cast<double>(file->size()) / 1e6 / took.count());
  return 0;
}
