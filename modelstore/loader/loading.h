// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/digest/tree_digest.h"

namespace bellows {

/// Puts what belongs there at a place in memory; called by several threads at once, each with a
/// place of its own.
using ReadPiece =
    std::function<Status(std::uint64_t begin, unsigned char* to, std::uint64_t bytes)>;

/// Gets the memory's pages, part of a model of `all` bytes. unavailable: there are none; without
/// this, a write would end the process.
Status get_pages(unsigned char* memory, std::uint64_t bytes, std::uint64_t all);

/// Fills memory and computes its digest, with several threads that take a piece of kLeafBytes at a
/// time, so that each is hashed while the processor's cache has it; or several leaves, where each
/// read costs a journey.
class Loading {
 public:
  /// `memory` stays the caller's, and valid until this object is gone. Without `read` the memory is
  /// only hashed.
  Loading(unsigned char* memory, std::uint64_t bytes, ReadPiece read, std::uint64_t leaves = 1);
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;
  /// Waits for the threads.
  ~Loading();

  Status start(unsigned threads);
  /// Becomes readable when all is done, or something failed.
  int event() const { return event_.get(); }
  std::uint64_t bytes_done() const { return done_.load(); }
  /// Waits. The first error, or the digest.
  Result<ModelDigest> finish();

 private:
  void work();
  /// False: it failed, or there is none.
  bool take_piece(TreeHasher& hasher);
  Status fill(unsigned char* piece, std::uint64_t begin, std::uint64_t bytes);
  void fail(const Error& error);

  unsigned char* memory_;
  std::uint64_t bytes_;
  ReadPiece read_;
  std::uint64_t leaves_of_piece_;
  std::vector<ModelDigest> leaves_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<unsigned> running_{0};
  std::mutex mutex_;
  std::optional<Error> error_;
  Fd event_;
  std::vector<std::thread> threads_;
};

}  // namespace bellows
