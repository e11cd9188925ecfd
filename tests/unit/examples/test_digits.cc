// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "examples/digits/comm.h"
#include "examples/digits/data.h"
#include "examples/digits/ledger.h"
#include "examples/digits/net.h"
#include "examples/digits/random.h"
#include "examples/digits/sampler.h"
#include "examples/digits/trainer.h"
#include "tests/unit/support/scratch_dir.h"

// Last: its macros would meet the standard library's names.
#include <criterion/criterion.h>

using namespace digits;
using bellows::ScratchDir;

namespace {

// What the ranks of a ThreadComm share.
struct Meeting {
  explicit Meeting(int ranks) : size(ranks), barrier(ranks), sent(ranks), counts(ranks) {}

  int size;
  std::barrier<> barrier;
  std::vector<std::span<const float>> sent;
  std::vector<std::span<const int>> counts;
  double total = 0;
  int first = 0;
  std::mutex mutex;
};

std::size_t start_of(std::span<const int> counts, int part) {
  std::size_t offset = 0;
  for (int i = 0; i < part; ++i) offset += static_cast<std::size_t>(counts[i]);
  return offset;
}

// Ranks that are threads of this process.
class ThreadComm : public Comm {
 public:
  ThreadComm(int rank, Meeting& meeting) : Comm(rank, meeting.size), meeting_(meeting) {}

  void exchange(std::span<const float> send, std::span<const int> send_counts,
                std::span<float> receive, std::span<const int> receive_counts) override {
    meeting_.sent[rank()] = send;
    meeting_.counts[rank()] = send_counts;
    meeting_.barrier.arrive_and_wait();
    for (int from = 0; from < size(); ++from) {
      const auto& counts = meeting_.counts[from];
      cr_assert_eq(counts[rank()], receive_counts[from]);
      const auto part = meeting_.sent[from].subspan(start_of(counts, rank()), counts[rank()]);
      std::copy(part.begin(), part.end(), receive.begin() + start_of(receive_counts, from));
    }
    meeting_.barrier.arrive_and_wait();
  }

  void gather(std::span<float> values, std::span<const int> counts) override {
    meeting_.sent[rank()] = values;
    meeting_.barrier.arrive_and_wait();
    for (int from = 0; from < size(); ++from) {
      if (from == rank()) continue;
      const std::size_t offset = start_of(counts, from);
      const auto part = meeting_.sent[from].subspan(offset, counts[from]);
      std::copy(part.begin(), part.end(), values.begin() + offset);
    }
    meeting_.barrier.arrive_and_wait();
  }

  void settle() override { meeting_.barrier.arrive_and_wait(); }

  double sum(double value) override {
    if (rank() == 0) meeting_.total = 0;
    meeting_.barrier.arrive_and_wait();
    {
      std::lock_guard lock(meeting_.mutex);
      meeting_.total += value;
    }
    meeting_.barrier.arrive_and_wait();
    const double total = meeting_.total;
    meeting_.barrier.arrive_and_wait();
    return total;
  }

  int from_first(int value) override {
    if (rank() == 0) meeting_.first = value;
    meeting_.barrier.arrive_and_wait();
    const int first = meeting_.first;
    meeting_.barrier.arrive_and_wait();
    return first;
  }

  const char* name() const override { return "threads"; }

 private:
  Meeting& meeting_;
};

void on_ranks(int ranks, const std::function<void(Comm&)>& body) {
  Meeting meeting(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadComm comm(rank, meeting);
      body(comm);
    });
  }
}

// Digits of a kind: blobs whose place depends on the label.
std::vector<Sample> make_samples(std::size_t count) {
  std::vector<Sample> samples(count);
  Random random(7);
  for (std::size_t i = 0; i < count; ++i) {
    samples[i].id = static_cast<std::uint32_t>(i);
    samples[i].label = static_cast<std::uint8_t>(random.below(kClasses));
    for (int p = 0; p < kPixels; ++p) {
      const bool lit = p / 6 == samples[i].label;
      samples[i].pixels[p] = static_cast<float>(random.below(lit ? 16 : 4)) / 16.0f;
    }
  }
  return samples;
}

Options small_options() {
  Options options;
  options.hidden = 9;
  options.batch = 20;
  options.chunk = 3;
  options.epochs = 2;
  return options;
}

// Weights and all momentum after some steps, and who trained on what.
struct Outcome {
  std::vector<float> weights;
  std::vector<float> momentum;
  std::map<std::uint64_t, std::multiset<std::uint32_t>> ids;  // by epoch
  double accuracy = 0;
};

// `batches`: one after another, each for five steps, the last until the end; none: the options'.
Outcome train_at(int ranks, const Dataset& dataset, const Options& options = small_options(),
                 const std::vector<std::size_t>& batches = {}) {
  Outcome outcome;
  std::mutex mutex;
  on_ranks(ranks, [&](Comm& comm) {
    Trainer trainer(comm, dataset, options);
    Position at;
    for (std::size_t step = 0; at.epoch < static_cast<std::uint64_t>(options.epochs); ++step) {
      if (step % 5 == 0 && step / 5 < batches.size()) trainer.use_batch(batches[step / 5]);
      const Applied applied = trainer.step(at);
      std::lock_guard lock(mutex);
      outcome.ids[at.epoch].insert(applied.ids.begin(), applied.ids.end());
      at = trainer.sampler().after(at);
    }
    const double accuracy = trainer.accuracy();
    std::lock_guard lock(mutex);
    if (comm.rank() == 0)
      outcome.weights.assign(trainer.weights().begin(), trainer.weights().end());
    outcome.momentum.resize(trainer.weights().size());
    std::copy(trainer.momentum().begin(), trainer.momentum().end(),
              outcome.momentum.begin() + trainer.slice().begin);
    outcome.accuracy = accuracy;
  });
  return outcome;
}

// One attempt of the training that make_ledgers writes down.
struct Attempt {
  int ranks;
  std::uint64_t restored;
  std::uint64_t end;
};

constexpr std::size_t kLedgerBatch = 8;

/// Where a step of that training begins.
Position position_of(const Sampler& sampler, std::uint64_t step) {
  Position at;
  for (std::uint64_t i = 0; i < step; ++i) at = sampler.after(at);
  return at;
}

constexpr std::size_t kLedgerSamples = 50;

// The ledgers of a training of 3 epochs of 50 samples, 7 steps an epoch.
void make_ledgers(const std::string& dir, const std::vector<Attempt>& attempts) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < kLedgerSamples; ++i) all.push_back(i);
  Ledger::write_samples(dir, all);
  for (const Attempt& attempt : attempts) {
    const int number = Ledger::next_attempt(dir);
    const Sampler sampler(5, kLedgerSamples, kLedgerBatch);
    for (int rank = 0; rank < attempt.ranks; ++rank) {
      Ledger ledger(dir,
                    {number, rank, attempt.ranks, attempt.restored, sampler.steps_per_epoch(), 3});
      for (std::uint64_t step = attempt.restored; step < attempt.end; ++step) {
        const Position at = position_of(sampler, step);
        const std::vector<std::uint32_t> batch = sampler.batch(at);
        const Range mine = share(batch.size(), rank, attempt.ranks);
        ledger.record(step, at.epoch, std::span(batch).subspan(mine.begin, mine.size()));
      }
    }
  }
}

// A run that was stopped at 9, killed at 15 after a checkpoint at 12, and once more before it had
// done a step.
const std::vector<Attempt> kHistory = {{2, 0, 9}, {3, 9, 15}, {5, 12, 12}, {1, 12, 21}};

int check_ledger(const std::string& dir) {
  const int status =
      std::system((TOP_SRCDIR "/tests/lib/check-ledger " + dir + " >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Replaces the last `from` in a file by `to`.
void doctor(const std::string& path, const std::string& from, const std::string& to) {
  std::ifstream in(path);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = text.rfind(from);
  cr_assert_neq(at, std::string::npos);
  std::ofstream(path) << text.replace(at, from.size(), to);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace

TestSuite(digits, .timeout = 60);

Test(digits, split_is_fixed_and_stratified) {
  const std::vector<Sample> samples = make_samples(503);
  const Dataset one = split(samples);
  const Dataset two = split(samples);
  std::set<std::uint32_t> train, test;
  for (const Sample& sample : one.train) train.insert(sample.id);
  for (const Sample& sample : one.test) test.insert(sample.id);
  cr_assert_eq(train.size() + test.size(), 503);
  for (std::uint32_t id : test) cr_assert_eq(train.count(id), 0);
  cr_assert_eq(one.test.size(), two.test.size());
  for (std::size_t i = 0; i < one.test.size(); ++i) cr_assert_eq(one.test[i].id, two.test[i].id);
  std::array<std::size_t, kClasses> all{}, held{};
  for (const Sample& sample : samples) ++all[sample.label];
  for (const Sample& sample : one.test) ++held[sample.label];
  for (int label = 0; label < kClasses; ++label) cr_assert_eq(held[label], all[label] / 5);
}

Test(digits, share_covers_everything_once) {
  for (std::size_t total : {0u, 1u, 7u, 64u, 1437u}) {
    for (std::size_t parts = 1; parts <= 9; ++parts) {
      std::size_t next = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const Range range = share(total, part, parts);
        cr_assert_eq(range.begin, next);
        next = range.end;
      }
      cr_assert_eq(next, total);
    }
  }
}

Test(digits, sampler_uses_each_sample_once_an_epoch_with_any_batches) {
  const std::vector<std::vector<std::size_t>> plans = {
      {16}, {101}, {200}, {1}, {7, 64, 3, 16, 100}};
  for (const auto& plan : plans) {
    Position at;
    std::vector<std::uint32_t> order, before;
    for (std::size_t step = 0; at.epoch < 4; ++step) {
      const Sampler sampler(3, 101, plan[step / 3 % plan.size()]);
      for (std::uint32_t index : sampler.batch(at)) order.push_back(index);
      at = sampler.after(at);
      if (at.offset != 0) continue;
      cr_assert_eq(order.size(), 101);
      cr_assert_eq(std::set<std::uint32_t>(order.begin(), order.end()).size(), 101);
      cr_assert(order != before, "each epoch has an order of its own");
      before = std::exchange(order, {});
    }
  }
}

Test(digits, sampler_depends_on_the_position_alone) {
  const Sampler sampler(3, 101, 16);
  cr_assert_eq(sampler.steps_per_epoch(), 7);
  cr_assert(sampler.after({0, 80}) == Position({0, 96}) &&
            sampler.after({0, 96}) == Position({1, 0}));
  for (const Position& at : {Position{0, 0}, Position{2, 48}, Position{1, 96}}) {
    cr_assert(Sampler(3, 101, 16).batch(at) == sampler.batch(at));
    cr_assert(Sampler(4, 101, 16).batch(at) != sampler.batch(at));
    const auto longer = Sampler(3, 101, 40).batch(at);
    const auto batch = sampler.batch(at);
    cr_assert(std::equal(batch.begin(), batch.end(), longer.begin()), "the order is the same");
  }
}

Test(digits, gradient_agrees_with_finite_differences) {
  const Net net(7);
  const std::vector<Sample> samples = make_samples(5);
  std::vector<const Sample*> chosen;
  for (const Sample& sample : samples) chosen.push_back(&sample);
  std::vector<float> weights(net.weights());
  net.init(weights, 11);
  Gradient gradient;
  net.add_gradient(weights, chosen, gradient);
  cr_assert_eq(gradient.ids.size(), 5);

  auto loss_with = [&](std::size_t i, float change) {
    std::vector<float> moved = weights;
    moved[i] += change;
    Gradient result;
    net.add_gradient(moved, chosen, result);
    return result.loss;
  };
  const float h = 1e-3f;
  int bad = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double numeric = (loss_with(i, h) - loss_with(i, -h)) / (2.0 * h);
    if (std::abs(numeric - gradient.values[i]) > 2e-3 + 0.02 * std::abs(numeric)) ++bad;
  }
  // A step across the corner of a rectifier has no derivative to agree with.
  cr_assert_leq(bad, static_cast<int>(weights.size() / 100), "%d of %zu", bad, weights.size());
}

Test(digits, ordered_sum_adds_in_the_order_of_parts) {
  // 1e8 + 1 - 1e8 is 0 or 1 in floats, by the order.
  std::vector<std::vector<float>> parts;
  for (float value : {1e8f, 1.0f, -1e8f, 1.0f, 3.0f}) parts.emplace_back(11, value);
  for (int ranks = 1; ranks <= 8; ++ranks) {
    on_ranks(ranks, [&](Comm& comm) {
      const Range mine = share(parts.size(), comm.rank(), ranks);
      const std::vector<float> sum =
          ordered_sum(comm, std::span(parts).subspan(mine.begin, mine.size()), parts.size(), 11);
      cr_assert_eq(sum.size(), share(11, comm.rank(), ranks).size());
      for (float value : sum) cr_assert_eq(value, 4.0f);
    });
  }
}

Test(digits, weights_are_the_same_bits_at_every_size) {
  const Dataset dataset = split(make_samples(150));
  const Outcome one = train_at(1, dataset);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const Outcome other = train_at(ranks, dataset);
    cr_assert(same_bits(one.weights, other.weights), "%d ranks", ranks);
    cr_assert(same_bits(one.momentum, other.momentum), "%d ranks", ranks);
    cr_assert_eq(one.accuracy, other.accuracy);
    for (const auto& [epoch, ids] : other.ids) {
      cr_assert_eq(ids.size(), dataset.train.size());
      cr_assert_eq(std::set<std::uint32_t>(ids.begin(), ids.end()).size(), ids.size());
      for (const Sample& sample : dataset.test) cr_assert_eq(ids.count(sample.id), 0);
    }
  }
}

Test(digits, batches_change_alike_at_every_size) {
  const Dataset dataset = split(make_samples(150));
  const std::vector<std::size_t> batches = {20, 40, 7, 60};
  const Outcome one = train_at(1, dataset, small_options(), batches);
  for (int ranks : {2, 5}) {
    const Outcome other = train_at(ranks, dataset, small_options(), batches);
    cr_assert(same_bits(one.weights, other.weights) && same_bits(one.momentum, other.momentum));
    for (const auto& [epoch, ids] : other.ids) {
      cr_assert_eq(ids.size(), dataset.train.size());
      cr_assert_eq(std::set<std::uint32_t>(ids.begin(), ids.end()).size(), ids.size());
    }
  }
  cr_assert(!same_bits(one.weights, train_at(1, dataset).weights));
}

Test(digits, the_learning_rate_follows_the_batch) {
  const Dataset dataset = split(make_samples(150));
  Options larger = small_options();
  larger.batch *= 2;
  larger.rate *= 2;
  const Outcome grown =
      train_at(1, dataset, small_options(), {static_cast<std::size_t>(larger.batch)});
  cr_assert(same_bits(grown.weights, train_at(1, dataset, larger).weights));
}

Test(digits, bad_data_is_refused_with_its_line) {
  char path[] = "/tmp/bellows-digits-XXXXXX";
  const int fd = mkstemp(path);
  std::string good;
  for (int i = 0; i < kPixels; ++i) good += "16,";
  good += "9\n";
  const std::vector<std::string> bad = {"1,2,3\n",
                                        good.substr(0, good.size() - 2) + "10\n",
                                        "17" + good.substr(2),
                                        "1," + good,
                                        "x\n",
                                        "\n"};
  for (const std::string& line : bad) {
    const std::string text = good + line;
    cr_assert_eq(ftruncate(fd, 0), 0);
    cr_assert_eq(pwrite(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    try {
      read_digits(path);
      cr_assert_fail("accepted: %s", line.c_str());
    } catch (const std::runtime_error& error) {
      cr_assert(std::strstr(error.what(), (std::string(path) + ":2:").c_str()), "%s", error.what());
    }
  }
  close(fd);
  unlink(path);
}

Test(digits, check_ledger_accepts_what_the_weights_descend_from) {
  ScratchDir dir;
  make_ledgers(dir.path(), kHistory);
  cr_assert_eq(check_ledger(dir.path()), 0);
  // Half a line of a step that was done again.
  std::ofstream(dir.path() + "/ledger-2-0.txt", std::ios::app) << "15 2 17";
  cr_assert_eq(check_ledger(dir.path()), 0);
}

Test(digits, check_ledger_sees_a_doubled_and_a_missing_sample) {
  const Sampler sampler(5, kLedgerSamples, kLedgerBatch);
  const std::string id = " " + std::to_string(sampler.batch(position_of(sampler, 20)).back());
  const std::string other = " " + std::to_string(sampler.batch(position_of(sampler, 19)).front());
  const std::vector<std::pair<std::string, std::string>> faults = {
      {id + "\n", "\n"},            // missing
      {id + "\n", id + id + "\n"},  // doubled
      {id + "\n", other + "\n"},    // both
      {id + "\n", id + " 50\n"},    // held out
      {id + "\n", id},              // the last line was never finished
      {"\n20 2 ", "\n20 1 "},       // of another epoch
      {"\n20 2 ", "\n20 3 "},       // of one after the last
  };
  for (const auto& [from, to] : faults) {
    ScratchDir dir;
    make_ledgers(dir.path(), kHistory);
    doctor(dir.path() + "/ledger-4-0.txt", from, to);
    cr_assert_eq(check_ledger(dir.path()), 1, "%s -> %s", from.c_str(), to.c_str());
  }
}

Test(digits, check_ledger_sees_steps_that_nobody_did) {
  const std::vector<std::vector<Attempt>> histories = {
      {{2, 0, 9}, {1, 10, 21}},             // a gap
      {{2, 3, 21}},                         // no beginning
      {{2, 0, 20}},                         // no end
      {{2, 0, 9}, {1, 9, 21}, {1, 20, 20}}  // the last attempt has not done what it restored before
  };
  for (const auto& history : histories) {
    ScratchDir dir;
    make_ledgers(dir.path(), history);
    cr_assert_eq(check_ledger(dir.path()), 1);
  }
  ScratchDir empty;
  cr_assert_eq(check_ledger(empty.path()), 2);
}
