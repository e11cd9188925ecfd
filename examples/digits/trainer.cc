// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/trainer.h"

#include <algorithm>

namespace digits {
namespace {

/// A measurement costs two sums over the ranks.
constexpr std::uint64_t kMeasureEvery = 4;

double square(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace

Trainer::Trainer(Comm& comm, const Dataset& dataset, const Options& options)
    : comm_(comm),
      dataset_(dataset),
      options_(options),
      net_(options.hidden),
      sampler_(options.seed, dataset.train.size(), static_cast<std::size_t>(options.batch)),
      rate_(options.rate),
      weights_(net_.weights()),
      momentum_(slice().size()) {
  net_.init(weights_, options.seed);
}

void Trainer::use_batch(std::size_t batch) {
  sampler_ = Sampler(options_.seed, dataset_.train.size(), batch);
  rate_ = options_.rate * static_cast<float>(batch) / static_cast<float>(options_.batch);
}

Range Trainer::slice() const {
  return share(net_.weights(), static_cast<std::size_t>(comm_.rank()),
               static_cast<std::size_t>(comm_.size()));
}

std::vector<Gradient> Trainer::compute(std::span<const std::uint32_t> batch, Range chunks) const {
  const auto chunk_size = static_cast<std::size_t>(options_.chunk);
  std::vector<Gradient> gradients(chunks.size());
  for (std::size_t c = chunks.begin; c < chunks.end; ++c) {
    std::vector<const Sample*> samples;
    const std::size_t end = std::min((c + 1) * chunk_size, batch.size());
    for (std::size_t i = c * chunk_size; i < end; ++i) {
      samples.push_back(&dataset_.train[batch[i]]);
    }
    net_.add_gradient(weights_, samples, gradients[c - chunks.begin]);
  }
  return gradients;
}

Applied Trainer::step(const Position& at) {
  const std::vector<std::uint32_t> batch = sampler_.batch(at);
  const auto chunk_size = static_cast<std::size_t>(options_.chunk);
  const std::size_t chunks = (batch.size() + chunk_size - 1) / chunk_size;
  const auto ranks = static_cast<std::size_t>(comm_.size());
  std::vector<Gradient> gradients =
      compute(batch, share(chunks, static_cast<std::size_t>(comm_.rank()), ranks));

  Applied applied;
  std::vector<std::vector<float>> parts;
  for (Gradient& gradient : gradients) {
    applied.ids.insert(applied.ids.end(), gradient.ids.begin(), gradient.ids.end());
    applied.loss += gradient.loss;
    parts.push_back(std::move(gradient.values));
  }
  std::vector<float> sum = ordered_sum(comm_, parts, chunks, weights_.size());
  for (float& value : sum) value /= static_cast<float>(batch.size());
  if (steps_++ % kMeasureEvery == 0) measure(parts, chunks, sum, batch.size());

  const Range mine = slice();
  update(weights().subspan(mine.begin, mine.size()), momentum_, sum, rate_, options_.momentum);
  std::vector<int> counts;
  for (std::size_t r = 0; r < ranks; ++r) {
    counts.push_back(static_cast<int>(share(weights_.size(), r, ranks).size()));
  }
  comm_.gather(weights_, counts);
  return applied;
}

// The chunks are what a step has of small batches. Those of the last step of an epoch differ in
// size.
void Trainer::measure(const std::vector<std::vector<float>>& parts, std::size_t chunks,
                      std::span<const float> mean, std::size_t samples) {
  const auto chunk = static_cast<std::size_t>(options_.chunk);
  if (chunks < 2 || samples != chunks * chunk) return;
  double small = 0;
  for (const std::vector<float>& part : parts) small += square(part);
  small = comm_.sum(small) / static_cast<double>(chunks * chunk * chunk);
  noise_.add(small, chunk, comm_.sum(square(mean)), samples);
}

double Trainer::accuracy() {
  const Range mine = share(dataset_.test.size(), static_cast<std::size_t>(comm_.rank()),
                           static_cast<std::size_t>(comm_.size()));
  int right = 0;
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    right += net_.classify(weights_, dataset_.test[i]) == dataset_.test[i].label;
  }
  return comm_.sum(right) / static_cast<double>(dataset_.test.size());
}

}  // namespace digits
