// SPDX-License-Identifier: Apache-2.0
// A training program without training: it lasts as long as a program that was measured. A step
// takes the time that bellows-simulate(1) reckons with where the ranks are, with the smallest batch
// that was measured; only the arithmetic is waited for. It ends after the steps of that batch. A
// ledger tells which samples each rank has used, as that of the digits does, and a log tells of
// starts, stops and the end.
//
//   replay --model FOLDER --log FILE --ledger FOLDER [--save-every SECONDS]
#include <getopt.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/include/bellows.hpp"
#include "elastic/simulate/application.h"
#include "examples/digits/ledger.h"

namespace {

using Clock = std::chrono::steady_clock;

/// Of a step, for the ledger.
constexpr std::uint32_t kSamples = 32;
constexpr std::uint64_t kRows = 4096;

struct Options {
  std::string model, log, ledger;
  double save_every_s = 5;
};

Options parse(int argc, char** argv) {
  const option names[] = {{"model", required_argument, nullptr, 'm'},
                          {"log", required_argument, nullptr, 'l'},
                          {"ledger", required_argument, nullptr, 'd'},
                          {"save-every", required_argument, nullptr, 's'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  for (int c; (c = getopt_long(argc, argv, "", names, nullptr)) != -1;) {
    if (c == 'm') options.model = optarg;
    if (c == 'l') options.log = optarg;
    if (c == 'd') options.ledger = optarg;
    if (c == 's') options.save_every_s = std::strtod(optarg, nullptr);
    if (c == '?') std::exit(2);
  }
  return options;
}

const char* variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

/// Of "4(x2),1".
bellows::Placement placement() {
  bellows::Placement placement;
  std::istringstream all(variable("SLURM_STEP_TASKS_PER_NODE", ""));
  for (std::string part; std::getline(all, part, ',');) {
    unsigned ranks = 0, nodes = 1;
    if (std::sscanf(part.c_str(), "%u(x%u)", &ranks, &nodes) < 1)
      throw std::runtime_error("SLURM_STEP_TASKS_PER_NODE is not as srun writes it");
    placement.insert(placement.end(), nodes, static_cast<std::uint8_t>(ranks));
  }
  if (placement.empty()) throw std::runtime_error("this is no step of Slurm");
  return placement;
}

bellows::Application read_model(const std::string& folder) {
  auto application = bellows::Application::read(folder, {});
  if (!application) throw std::runtime_error(application.error().text);
  return *std::move(application);
}

/// A rank of the training.
class Replay {
 public:
  explicit Replay(const Options& options)
      : options_(options),
        application_(read_model(options.model)),
        steps_(
            static_cast<std::uint64_t>(std::llround(application_.progress(application_.epochs())))),
        placement_(placement()),
        rank_(static_cast<std::uint64_t>(checkpoint_.rank())),
        world_(static_cast<std::uint64_t>(checkpoint_.world())) {
    const auto& limits = application_.limits();
    const auto batch = lay_out(limits, bellows::layout_of(placement_), limits.submitted);
    step_s_ = application_.step_s(placement_, batch);
    rows_.resize(kRows * (rank_ + 1) / world_ - kRows * rank_ / world_);
    checkpoint_.sharded("steps", std::span(rows_), kRows * rank_ / world_, kRows);
  }

  void run() {
    std::uint64_t step = checkpoint_.restore().value_or(0);
    for (const std::uint64_t row : rows_)
      if (row != step) throw std::runtime_error("a row is not what it was saved as");
    note("start", step);
    digits::Ledger ledger = open_ledger(step);
    const auto every =
        static_cast<std::uint64_t>(std::max(1.0, std::ceil(options_.save_every_s / step_s_)));
    const auto lasts =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(step_s_));
    for (auto due = Clock::now(); step < steps_; ++step) {
      const bool stop = checkpoint_.should_stop(step);
      if (stop || (step > 0 && step % every == 0)) checkpoint_.save_async(step);
      if (stop) {
        note("stop", step);
        return checkpoint_.leave();
      }
      // What a rank is late by does not add up, unless it was kept for longer than a step.
      if (Clock::now() - due > lasts) due = Clock::now();
      due += lasts;
      std::this_thread::sleep_until(due);
      use(ledger, step);
    }
    note("finish", step);
    checkpoint_.finish();
  }

 private:
  digits::Ledger open_ledger(std::uint64_t step) const {
    std::filesystem::create_directories(options_.ledger);
    if (rank_ == 0 && step == 0) {
      std::vector<std::uint32_t> all(steps_ * kSamples);
      std::iota(all.begin(), all.end(), 0U);
      digits::Ledger::write_samples(options_.ledger, all);
    }
    // Later runs of the job have more restarts, and later attempts of a run a later step of Slurm.
    const int attempt = 1000 * std::atoi(variable("SLURM_RESTART_COUNT", "0")) +
                        std::atoi(variable("SLURM_STEP_ID", "0"));
    return {options_.ledger,
            {attempt, static_cast<int>(rank_), static_cast<int>(world_), step, steps_, 1}};
  }

  void use(digits::Ledger& ledger, std::uint64_t step) {
    for (std::uint64_t& row : rows_) ++row;
    const std::uint64_t first = kSamples * rank_ / world_;
    std::vector<std::uint32_t> samples(kSamples * (rank_ + 1) / world_ - first);
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(step * kSamples + first));
    ledger.record(step, 0, samples);
  }

  void note(const char* what, std::uint64_t step) const {
    if (rank_ != 0) return;
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    std::FILE* log = std::fopen(options_.log.c_str(), "ae");
    const bool written = log && std::fprintf(log, "%s step=%llu ranks=%llu nodes=%zu time=%.3f\n",
                                             what, static_cast<unsigned long long>(step),
                                             static_cast<unsigned long long>(world_),
                                             placement_.size(), now.count()) > 0;
    if (!log || std::fclose(log) != 0 || !written)
      throw std::runtime_error(options_.log + " cannot be written");
  }

  Options options_;
  bellows::Application application_;
  std::uint64_t steps_;
  bellows::Placement placement_;
  bellows::Checkpoint checkpoint_;
  std::uint64_t rank_;
  std::uint64_t world_;
  double step_s_ = 0;
  std::vector<std::uint64_t> rows_;  ///< this rank's; each counts the steps
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Replay(parse(argc, argv)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "replay: %s\n", error.what());
    return 1;
  }
  return 0;
}
