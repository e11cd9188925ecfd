// SPDX-License-Identifier: Apache-2.0
/// Runs a fuzz target without libFuzzer: first every seed of its corpus, then mutations of them,
/// the same ones each time. Given files, runs just these (to look at a crash).
///
/// usage: fuzz_X [--runs N] [--seed S] [FILE]...

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "common/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
/// A target may tell at the end how far its inputs came; false: not far enough to show anything.
extern "C" __attribute__((weak)) bool fuzz_target_came_far();
/// A target may want another number of mutations.
extern "C" __attribute__((weak)) std::uint64_t fuzz_target_runs();

namespace {

using Random = std::mt19937_64;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::size_t pick(Random& random, std::size_t below) {
  return below == 0 ? 0 : static_cast<std::size_t>(random() % below);
}

/// One small change: a byte set, removed, repeated or flipped, a piece of another seed put in.
void mutate(std::string& text, const std::vector<std::string>& seeds, Random& random) {
  static const std::string kBytes("\0\n:,-=%/ {}[]\"'#&*!0189\xff\x7f", 26);
  const std::size_t at = pick(random, text.size() + 1);
  const std::size_t length = pick(random, std::min<std::size_t>(text.size() - at, 16) + 1);
  switch (pick(random, 5)) {
    case 0:
      text.insert(at, 1, kBytes[pick(random, kBytes.size())]);
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, text.substr(at, length));
      break;
    case 3:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << pick(random, 8)));
      break;
    default: {
      const std::string& other = seeds[pick(random, seeds.size())];
      const std::size_t from = pick(random, other.size() + 1);
      text.insert(at, other.substr(from, pick(random, 32)));
    }
  }
  if (text.size() > 65536) text.resize(65536);
}

/// The seeds of this target. libtool may run a program under its name with "lt-" before it.
std::filesystem::path corpus() {
  std::string name = program_invocation_short_name;
  if (name.starts_with("lt-")) name.erase(0, 3);
  return std::filesystem::path(CORPUS) / name;
}

/// The input at hand when a target aborts, for the message and for a replay.
std::string current;

void run(const std::string& text) {
  current = text;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

void keep_crash(int) {
  std::FILE* file = std::fopen("fuzz-crash", "wb");
  if (file) {
    std::fwrite(current.data(), 1, current.size(), file);
    std::fclose(file);
    std::fputs("the input is in fuzz-crash; give it as an argument to run it again\n", stderr);
  }
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t usual = fuzz_target_runs ? fuzz_target_runs() : 20000;
  std::uint64_t runs = usual;
  std::uint64_t seed = 1;
  bool replay = false;
  std::signal(SIGABRT, keep_crash);
  std::signal(SIGSEGV, keep_crash);
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--runs") == 0 && has_value) {
      runs = bellows::parse_uint(argv[++i]).value_or(runs);
    } else if (std::strcmp(argv[i], "--seed") == 0 && has_value) {
      seed = bellows::parse_uint(argv[++i]).value_or(seed);
    } else {
      run(read(argv[i]));
      replay = true;
    }
  }
  if (replay) return 0;
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(corpus()))
    seeds.push_back(read(entry.path()));
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds in %s\n", corpus().c_str());
    return 2;
  }
  for (const std::string& text : seeds) run(text);
  Random random(seed);
  std::string text;
  for (std::uint64_t i = 0; i < runs; ++i) {
    if (i % 16 == 0) text = seeds[pick(random, seeds.size())];
    mutate(text, seeds, random);
    run(text);
  }
  std::printf("%zu seeds and %llu mutations\n", seeds.size(),
              static_cast<unsigned long long>(runs));
  if (fuzz_target_came_far && !fuzz_target_came_far() && runs >= usual) {
    std::fputs("the inputs no longer reach what this target is for\n", stderr);
    return 1;
  }
  return 0;
}
