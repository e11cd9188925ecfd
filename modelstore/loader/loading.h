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

/// Puts what belongs there at a place in memory, every byte of it, since anything may have been
/// there; called by several threads at once, each with a place of its own.
using ReadPiece =
    std::function<Status(std::uint64_t begin, unsigned char* to, std::uint64_t bytes)>;

/// Gets the memory's pages, part of a model of `all` bytes. unavailable: there are none; without
/// this, a write would end the process.
Status get_pages(unsigned char* memory, std::uint64_t bytes, std::uint64_t all);

/// Where a thread puts a piece before that is written to a memfd: memory of its own, at a multiple
/// of a huge page.
class PieceBuffer {
 public:
  PieceBuffer() = default;
  PieceBuffer(const PieceBuffer&) = delete;
  PieceBuffer& operator=(const PieceBuffer&) = delete;
  ~PieceBuffer();
  Status make(std::uint64_t bytes);
  unsigned char* data() const { return data_; }

 private:
  void* mapped_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  unsigned char* data_ = nullptr;
};

/// Fills memory and computes its digest, with several threads that take a piece of kLeafBytes at a
/// time, so that each is hashed while the processor's cache has it; or several leaves, where each
/// read costs a journey.
class Loading {
 public:
  /// `memory` stays the caller's, and valid until this object is gone. Without `read` the memory is
  /// only hashed.
  Loading(unsigned char* memory, std::uint64_t bytes, ReadPiece read, std::uint64_t leaves = 1);
  /// Of a memfd of small pages, which stays open as long. The kernel need neither clear nor map
  /// pages that are written whole, and the direct reads of a disk need not find each of them: of
  /// 512 MB that took 0.5 s of processor time, and 0.7 s with the memory mapped.
  Loading(int memory_fd, std::uint64_t bytes, ReadPiece read, std::uint64_t leaves = 1);
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
  bool take_piece(TreeHasher& hasher, const PieceBuffer& buffer);
  Status fill(unsigned char* piece, std::uint64_t begin, std::uint64_t bytes);
  Status write(const unsigned char* piece, std::uint64_t begin, std::uint64_t bytes);
  void fail(const Error& error);

  unsigned char* memory_ = nullptr;
  int memory_fd_ = -1;  ///< where there is no memory_
  std::uint64_t bytes_;
  ReadPiece read_;
  std::uint64_t leaves_of_piece_;
  std::vector<ModelDigest> leaves_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<unsigned> running_{0};
  std::mutex write_mutex_;
  std::mutex mutex_;
  std::optional<Error> error_;
  Fd event_;
  std::vector<std::thread> threads_;
};

}  // namespace bellows
