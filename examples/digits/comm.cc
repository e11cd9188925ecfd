// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/comm.h"

#include "examples/digits/sampler.h"

namespace digits {

std::vector<int> offsets(std::span<const int> counts) {
  std::vector<int> result;
  int offset = 0;
  for (int count : counts) {
    result.push_back(offset);
    offset += count;
  }
  return result;
}

std::vector<float> ordered_sum(Comm& comm, std::span<const std::vector<float>> parts,
                               std::size_t total_parts, std::size_t width) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const Range mine = share(width, static_cast<std::size_t>(comm.rank()), ranks);
  std::vector<float> send;
  send.reserve(parts.size() * width);
  std::vector<int> send_counts;
  std::vector<int> receive_counts;
  for (std::size_t r = 0; r < ranks; ++r) {
    const Range theirs = share(width, r, ranks);
    for (const std::vector<float>& part : parts) {
      send.insert(send.end(), part.begin() + static_cast<std::ptrdiff_t>(theirs.begin),
                  part.begin() + static_cast<std::ptrdiff_t>(theirs.end));
    }
    send_counts.push_back(static_cast<int>(parts.size() * theirs.size()));
    receive_counts.push_back(static_cast<int>(share(total_parts, r, ranks).size() * mine.size()));
  }
  // Ranks hold neighbouring parts, so what arrives in the order of ranks is in the parts' order.
  std::vector<float> received(total_parts * mine.size());
  comm.exchange(send, send_counts, received, receive_counts);

  std::vector<float> sum(mine.size());
  const float* part = received.data();
  for (std::size_t p = 0; p < total_parts; ++p, part += mine.size()) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

}  // namespace digits
