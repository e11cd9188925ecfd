// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/options.h"

#include <getopt.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "examples/digits/data.h"

namespace digits {
namespace {

constexpr char kHelp[] =
    R"(Usage: digits [OPTION]...
Train a small network on handwritten digits, data-parallel over the ranks of an
MPI job, and tell how many held-out digits it reads right. Under Bellows it can
be stopped, resumed and resized after any step; the result is the same.

      --data FILE            digits.csv.gz; default: $BELLOWS_DIGITS, else
                             build/data/digits.csv.gz, else the file of Debian's
                             python3-sklearn
      --epochs N             passes over the training samples (30)
      --hidden N             width of the two hidden layers (256)
      --batch N              samples in a step, over all ranks (64)
      --chunk N              samples whose gradients are summed before they are
                             exchanged; a rank computes whole chunks, so at most
                             batch / chunk ranks have work (8)
      --rate X               learning rate (0.05)
      --momentum X           momentum (0.9)
      --seed N               of the first weights and of the order of samples (1)
      --checkpoint-every N   steps from one checkpoint to the next; there is also
                             one after each epoch; 0 = only those (20)
      --checkpoint-dir DIR   default: where the job's contract says
      --ledger DIR           write what was trained on, for check-ledger
      --weights-out FILE     write the final weights, as raw floats
      --help                 show this text

Exit status: 0 trained, or stopped when asked to; 1 failed; 2 bad usage.
)";

template <typename T>
void number(const char* name, const char* text, T min, T max, T& out) {
  T value{};
  const char* end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || !(value >= min && value <= max)) {
    throw std::invalid_argument("--" + std::string(name) + ": \"" + text +
                                "\" is not a number from " + std::to_string(min) + " to " +
                                std::to_string(max));
  }
  out = value;
}

const option kOptions[] = {
    {"data", required_argument, nullptr, 'd'},
    {"epochs", required_argument, nullptr, 'e'},
    {"hidden", required_argument, nullptr, 'n'},
    {"batch", required_argument, nullptr, 'b'},
    {"chunk", required_argument, nullptr, 'c'},
    {"rate", required_argument, nullptr, 'r'},
    {"momentum", required_argument, nullptr, 'm'},
    {"seed", required_argument, nullptr, 's'},
    {"checkpoint-every", required_argument, nullptr, 'k'},
    {"checkpoint-dir", required_argument, nullptr, 'o'},
    {"ledger", required_argument, nullptr, 'l'},
    {"weights-out", required_argument, nullptr, 'w'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

void set(int key, const char* name, const char* text, Options& options) {
  switch (key) {
    case 'd':
      options.data = text;
      break;
    case 'e':
      number(name, text, 1, 1000000, options.epochs);
      break;
    case 'n':
      number(name, text, 1, 16384, options.hidden);
      break;
    case 'b':
      number(name, text, 1, 65536, options.batch);
      break;
    case 'c':
      number(name, text, 1, 65536, options.chunk);
      break;
    case 'r':
      number(name, text, 0.0f, 100.0f, options.rate);
      break;
    case 'm':
      number(name, text, 0.0f, 1.0f, options.momentum);
      break;
    case 's':
      number(name, text, std::uint64_t{0}, UINT64_MAX, options.seed);
      break;
    case 'k':
      number(name, text, 0, 1000000000, options.checkpoint_every);
      break;
    case 'o':
      options.checkpoint_dir = text;
      break;
    case 'l':
      options.ledger_dir = text;
      break;
    case 'w':
      options.weights_out = text;
      break;
  }
}

}  // namespace

Next parse_options(int argc, char** argv, bool speak, Options& options) {
  opterr = speak;
  optind = 1;
  int index = 0;
  for (int key; (key = getopt_long(argc, argv, "", kOptions, &index)) != -1;) {
    if (key == 'h') {
      if (speak) std::fputs(kHelp, stdout);
      return Next::exit_ok;
    }
    if (key == '?') return Next::exit_usage;
    try {
      set(key, kOptions[index].name, optarg, options);
    } catch (const std::invalid_argument& error) {
      if (speak) std::fprintf(stderr, "digits: %s\n", error.what());
      return Next::exit_usage;
    }
  }
  if (optind < argc) {
    if (speak) std::fprintf(stderr, "digits: \"%s\" is not an option; see --help\n", argv[optind]);
    return Next::exit_usage;
  }
  if (options.data.empty()) options.data = default_data_path();
  return Next::run;
}

}  // namespace digits
