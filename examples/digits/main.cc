// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "examples/digits/data.h"
#include "examples/digits/ledger.h"
#include "examples/digits/mpi_comm.h"
#include "examples/digits/options.h"
#include "examples/digits/trainer.h"

namespace digits {
namespace {

// One line for each epoch, from rank 0.
class Progress {
 public:
  Progress(Comm& comm, Trainer& trainer) : comm_(comm), trainer_(trainer) {}

  void add(const Applied& applied) {
    samples_ += static_cast<double>(applied.ids.size());
    loss_ += applied.loss;
  }

  // On all ranks together.
  void report(std::uint64_t steps, std::uint64_t epochs) {
    const double samples = comm_.sum(samples_);
    const double loss = comm_.sum(loss_) / samples;
    const double accuracy = trainer_.accuracy();
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - since_).count();
    if (comm_.rank() == 0) {
      std::printf("step %llu epoch %llu loss %.4f accuracy %.1f %% ranks %d samples/s %.0f\n",
                  static_cast<unsigned long long>(steps), static_cast<unsigned long long>(epochs),
                  loss, 100 * accuracy, comm_.size(), samples / seconds);
      std::fflush(stdout);
    }
    samples_ = loss_ = 0;
    since_ = now;
  }

 private:
  Comm& comm_;
  Trainer& trainer_;
  double samples_ = 0;
  double loss_ = 0;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

std::optional<Ledger> open_ledger(const Options& options, Comm& comm, const Dataset& dataset,
                                  Trainer& trainer, std::uint64_t restored) {
  if (options.ledger_dir.empty()) return std::nullopt;
  int attempt = 0;
  if (comm.rank() == 0) {
    attempt = Ledger::next_attempt(options.ledger_dir);
    std::vector<std::uint32_t> ids;
    for (const Sample& sample : dataset.train) ids.push_back(sample.id);
    Ledger::write_samples(options.ledger_dir, ids);
  }
  return std::make_optional<Ledger>(
      options.ledger_dir, Ledger::Header{comm.from_first(attempt), comm.rank(), comm.size(),
                                         restored, trainer.sampler().steps_per_epoch(),
                                         static_cast<std::uint64_t>(options.epochs)});
}

void write_weights(const std::string& path, std::span<const float> weights) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(weights.data()),
             static_cast<std::streamsize>(weights.size_bytes()));
  if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
}

void train(const Options& options) {
  const std::unique_ptr<Comm> comm = make_comm();
  const Dataset dataset = split(read_digits(options.data));
  Trainer trainer(*comm, dataset, options);
  std::uint64_t step = 0;
  std::optional<Ledger> ledger = open_ledger(options, *comm, dataset, trainer, step);
  Progress progress(*comm, trainer);
  while (step < trainer.steps()) {
    const std::uint64_t epoch = trainer.sampler().epoch_of(step);
    const Applied applied = trainer.step(step);
    if (ledger) ledger->record(step, epoch, applied.ids);
    ++step;
    progress.add(applied);
    if (step % trainer.sampler().steps_per_epoch() == 0) progress.report(step, epoch + 1);
  }
  const double accuracy = trainer.accuracy();
  if (comm->rank() == 0) {
    if (!options.weights_out.empty()) write_weights(options.weights_out, trainer.weights());
    std::printf("accuracy: %.1f %%\n", 100 * accuracy);
  }
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  digits::MpiSession mpi(&argc, &argv);
  digits::Options options;
  const bool first = mpi.rank() == 0;
  switch (digits::parse_options(argc, argv, first, options)) {
    case digits::Next::run:
      break;
    case digits::Next::exit_ok:
      return 0;
    case digits::Next::exit_usage:
      return 2;
  }
  try {
    digits::train(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: rank %d: %s\n", mpi.rank(), error.what());
    mpi.abort(1);
  }
  return 0;
}
