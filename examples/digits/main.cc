// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>

#include "examples/digits/checkpoint.h"
#include "examples/digits/data.h"
#include "examples/digits/ledger.h"
#include "examples/digits/options.h"
#include "examples/digits/session.h"
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

// The numbers that decide what a step does. A checkpoint made with others is another training. The
// batch may change.
using Settings = std::array<std::int64_t, 3>;

Settings settings_of(const Options& options, const Dataset& dataset) {
  return {static_cast<std::int64_t>(options.seed), options.chunk,
          static_cast<std::int64_t>(dataset.train.size())};
}

// A training job and all that a checkpoint of it holds. The weights are on every rank; of the
// momentum each rank has a slice, and after a restart at another size another slice.
class Job {
 public:
  Job(Comm& comm, const Options& options)
      : comm_(comm),
        options_(options),
        dataset_(split(read_digits(options.data))),
        trainer_(comm, dataset_, options),
        settings_(settings_of(options, dataset_)),
        progress_(comm, trainer_),
        checkpoint_(options.checkpoint_dir, comm.rank(), comm.size()) {
    checkpoint_.replicated("weights", trainer_.weights());
    checkpoint_.sharded("momentum", trainer_.momentum(), trainer_.slice().begin,
                        trainer_.weights().size());
    checkpoint_.replicated("settings", std::span(settings_));
    checkpoint_.value("epoch", at_.epoch);
    checkpoint_.value("offset", at_.offset);
    batch_ = checkpoint_.batch(static_cast<std::uint64_t>(options.batch));
    trainer_.use_batch(batch_);
  }

  // Trains to the end, or until asked to stop.
  void run() {
    restore();
    ledger_ = open_ledger(options_, comm_, dataset_, trainer_, step_);
    for (;;) {
      comm_.settle();
      const bool done = at_.epoch == static_cast<std::uint64_t>(options_.epochs);
      const bool stop = !done && checkpoint_.should_stop(step_);
      const bool saved = (stop || is_due()) && checkpoint_.save(step_);
      if (stop) return leave(saved);
      if (done) break;
      advance();
    }
    checkpoint_.finish();
    finish();
  }

 private:
  void restore() {
    const Settings expected = settings_;
    const std::optional<std::uint64_t> restored = checkpoint_.restore();
    if (!restored) return;
    if (settings_ != expected) {
      throw std::runtime_error(
          "the checkpoint was made with another --seed, --chunk or data; "
          "use the same, or another --checkpoint-dir");
    }
    step_ = restored_ = *restored;
    if (comm_.rank() == 0) say("resumed at");
  }

  bool is_due() const {
    if (step_ == restored_) return false;
    const auto every = static_cast<std::uint64_t>(options_.checkpoint_every);
    return (every > 0 && step_ % every == 0) || at_.offset == 0;
  }

  void advance() {
    const Applied applied = trainer_.step(at_);
    if (ledger_) ledger_->record(step_, at_.epoch, applied.ids);
    ++step_;
    at_ = trainer_.sampler().after(at_);
    progress_.add(applied);
    if (const auto noise = trainer_.noise().samples()) checkpoint_.noise_scale(*noise);
    if (at_.offset == 0) progress_.report(step_, at_.epoch);
  }

  void leave(bool saved) {
    if (!saved) throw std::runtime_error("asked to stop, but the step could not be saved");
    if (comm_.rank() == 0) say("stopped at");
  }

  void finish() {
    const double accuracy = trainer_.accuracy();
    if (comm_.rank() != 0) return;
    if (!options_.weights_out.empty()) write_weights(options_.weights_out, trainer_.weights());
    std::printf("accuracy: %.1f %%\n", 100 * accuracy);
  }

  void say(const char* what) const {
    std::printf("%s step %llu with %d ranks over %s, batch %llu\n", what,
                static_cast<unsigned long long>(step_), comm_.size(), comm_.name(),
                static_cast<unsigned long long>(batch_));
    std::fflush(stdout);
  }

  Comm& comm_;
  const Options& options_;
  Dataset dataset_;
  Trainer trainer_;
  Settings settings_;
  Progress progress_;
  Position at_;  // where the next step begins
  Checkpoint checkpoint_;
  std::optional<Ledger> ledger_;
  std::uint64_t step_ = 0;
  std::uint64_t restored_ = 0;
  std::uint64_t batch_ = 0;
};

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  std::unique_ptr<digits::Session> session;
  try {
    session = digits::Session::begin(&argc, &argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 1;
  }
  digits::Options options;
  const bool first = session->rank() == 0;
  switch (digits::parse_options(argc, argv, first, options)) {
    case digits::Next::run:
      break;
    case digits::Next::exit_ok:
      return 0;
    case digits::Next::exit_usage:
      return 2;
  }
  try {
    const std::unique_ptr<digits::Comm> comm = session->make_comm();
    digits::Job(*comm, options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: rank %d: %s\n", session->rank(), error.what());
    session->abort(1);
  }
  return 0;
}
