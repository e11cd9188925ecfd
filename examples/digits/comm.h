// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace digits {

/// How ranks exchange numbers. All calls are collective: every rank makes them in the same order.
/// A failed exchange ends the program: there is nothing to save in the middle of a step.
class Comm {
 public:
  Comm(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Rank s's part d of `send` goes to rank d's part s of `receive`. Parts follow one another;
  /// the counts are their lengths.
  virtual void exchange(std::span<const float> send, std::span<const int> send_counts,
                        std::span<float> receive, std::span<const int> receive_counts) = 0;

  /// Every rank gives its part of `values` (counts[rank] floats, one part after the other) and
  /// gets all the others.
  virtual void gather(std::span<float> values, std::span<const int> counts) = 0;

  /// Returns when every rank has come here: none of them needs another any more to end what it
  /// called before. Call it before waiting outside of MPI for what other ranks do.
  ///
  /// Libraries like Open MPI move data only inside their own calls. A rank that left an exchange
  /// early, and then waits for the others in bellows_save or bellows_should_stop, may hold the
  /// last piece that another rank waits for inside the exchange: both would wait forever.
  virtual void settle() = 0;

  /// The sum over the ranks, for counts and reports. With whole numbers it is exact.
  virtual double sum(double value) = 0;

  /// Rank 0's value, on every rank.
  virtual int from_first(int value) = 0;

  /// The kind of exchange, for people.
  virtual const char* name() const = 0;

 private:
  int rank_;
  int size_;
};

/// The sum of `total_parts` vectors of `width` floats, of which each rank brings some neighbours:
/// rank r the parts share(total_parts, r, size). It gets the elements share(width, r, size) of
/// the sum.
///
/// The parts are always added one by one in their order, whoever computed them. That is why this
/// is not MPI_Allreduce or ncclAllReduce: those choose an order by the number of ranks and their
/// place on the nodes, and float addition is not associative, so a job that was moved or resized
/// would end with other weights. The price is that every part travels whole: total_parts * width
/// floats a step over all ranks, instead of about 2 * width for each rank.
std::vector<float> ordered_sum(Comm& comm, std::span<const std::vector<float>> parts,
                               std::size_t total_parts, std::size_t width);

/// Where each part begins.
std::vector<int> offsets(std::span<const int> counts);

}  // namespace digits
