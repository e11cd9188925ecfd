// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/options.h"

#include <getopt.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

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
      --batch N              samples in a step, over all ranks, until the job is
                             ordered to use another number (64)
      --chunk N              samples whose gradients are summed before they are
                             exchanged; a rank computes whole chunks, so at most
                             batch / chunk ranks have work (8)
      --rate X               learning rate with --batch; with another batch it
                             changes in proportion (0.05)
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

template <auto kField, auto kMin, auto kMax>
void number(const char* name, const char* text, Options& options) {
  using T = std::remove_reference_t<decltype(options.*kField)>;
  constexpr T min = kMin, max = kMax;
  T value{};
  const char* end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || !(value >= min && value <= max)) {
    throw std::invalid_argument("--" + std::string(name) + ": \"" + text +
                                "\" is not a number from " + std::to_string(min) + " to " +
                                std::to_string(max));
  }
  options.*kField = value;
}

template <auto kField>
void words(const char*, const char* text, Options& options) {
  options.*kField = text;
}

constexpr struct {
  const char* name;
  void (*set)(const char* name, const char* text, Options& options);
} kSettings[] = {
    {"data", words<&Options::data>},
    {"epochs", number<&Options::epochs, 1, 1000000>},
    {"hidden", number<&Options::hidden, 1, 16384>},
    {"batch", number<&Options::batch, 1, 65536>},
    {"chunk", number<&Options::chunk, 1, 65536>},
    {"rate", number<&Options::rate, 0, 100>},
    {"momentum", number<&Options::momentum, 0, 1>},
    {"seed", number<&Options::seed, 0, UINT64_MAX>},
    {"checkpoint-every", number<&Options::checkpoint_every, 0, 1000000000>},
    {"checkpoint-dir", words<&Options::checkpoint_dir>},
    {"ledger", words<&Options::ledger_dir>},
    {"weights-out", words<&Options::weights_out>},
};

/// For getopt_long, which returns a setting's index in kSettings, or 'h'.
std::vector<option> long_options() {
  std::vector<option> out;
  for (const auto& setting : kSettings) {
    // Each its own value: getopt_long takes options that share one for the same, not for ambiguous.
    out.push_back({setting.name, required_argument, nullptr, static_cast<int>(out.size())});
  }
  out.push_back({"help", no_argument, nullptr, 'h'});
  out.push_back({nullptr, 0, nullptr, 0});
  return out;
}

}  // namespace

Next parse_options(int argc, char** argv, bool speak, Options& options) {
  opterr = speak;
  optind = 1;
  const std::vector<option> known = long_options();
  for (int key; (key = getopt_long(argc, argv, "", known.data(), nullptr)) != -1;) {
    if (key == 'h') {
      if (speak) std::fputs(kHelp, stdout);
      return Next::exit_ok;
    }
    if (key == '?') return Next::exit_usage;
    try {
      kSettings[key].set(kSettings[key].name, optarg, options);
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
