// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/loading.h"

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace bellows {

Status get_pages(unsigned char* memory, std::uint64_t bytes, std::uint64_t all) {
  // Kernels before 5.14 don't know it.
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) return {};
  return Error{
      ErrorKind::unavailable,
      fmt::format("there is no memory for the model's {} bytes: {}", all, std::strerror(errno))};
}

PieceBuffer::~PieceBuffer() {
  if (mapped_) munmap(mapped_, mapped_bytes_);
}

Status PieceBuffer::make(std::uint64_t bytes) {
  constexpr std::uint64_t kHugePage = 2 << 20;
  const std::uint64_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  mapped_bytes_ = rounded + kHugePage;
  void* const mapped =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return errno_error("get", "memory to read a model through");
  mapped_ = mapped;
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
  data_ = static_cast<unsigned char*>(mapped) + (kHugePage - begin % kHugePage) % kHugePage;
  // Where there are no huge pages, small ones do.
  (void)madvise(data_, rounded, MADV_HUGEPAGE);
  return {};
}

Loading::Loading(unsigned char* memory, std::uint64_t bytes, ReadPiece read, std::uint64_t leaves)
    : memory_(memory),
      bytes_(bytes),
      read_(std::move(read)),
      leaves_of_piece_(leaves),
      leaves_(leaf_count(bytes)) {}

Loading::Loading(int memory_fd, std::uint64_t bytes, ReadPiece read, std::uint64_t leaves)
    : memory_fd_(memory_fd),
      bytes_(bytes),
      read_(std::move(read)),
      leaves_of_piece_(leaves),
      leaves_(leaf_count(bytes)) {}

Loading::~Loading() {
  next_ = leaves_.size();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

Status Loading::start(unsigned threads) {
  event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_) return errno_error("make", "an eventfd");
  threads = static_cast<unsigned>(std::clamp<std::uint64_t>(threads, 1, leaves_.size()));
  running_ = threads;
  for (unsigned i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      if ((running_ -= threads - i) == 0) eventfd_write(event_.get(), 1);
      if (i > 0) return {};
      return Error{ErrorKind::unavailable,
                   fmt::format("cannot start a thread to load the model: {}", error.what())};
    }
  }
  return {};
}

void Loading::work() {
  PieceBuffer buffer;
  auto hasher = TreeHasher::make();
  const Status ready = !hasher          ? Status(hasher.error())
                       : memory_fd_ < 0 ? Status()
                                        : buffer.make(leaves_of_piece_ * kLeafBytes);
  if (!ready) fail(ready.error());
  while (ready.ok() && take_piece(*hasher, buffer)) {
  }
  if (--running_ == 0) eventfd_write(event_.get(), 1);
}

Status Loading::fill(unsigned char* piece, std::uint64_t begin, std::uint64_t bytes) {
  if (!read_) return {};
  if (memory_)
    if (auto got = get_pages(piece, bytes, bytes_); !got) return got;
  return read_(begin, piece, bytes);
}

Status Loading::write(const unsigned char* piece, std::uint64_t begin, std::uint64_t bytes) {
  // The kernel lets in one writer of a file at a time, and the others spin.
  const std::lock_guard<std::mutex> lock(write_mutex_);
  while (bytes > 0) {
    const ssize_t written = pwrite(memory_fd_, piece, bytes, static_cast<off_t>(begin));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return Error{ErrorKind::unavailable,
                   fmt::format("there is no memory for the model's {} bytes: {}", bytes_,
                               std::strerror(errno))};
    piece += written;
    begin += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::uint64_t>(written);
  }
  return {};
}

bool Loading::take_piece(TreeHasher& hasher, const PieceBuffer& buffer) {
  const std::uint64_t first = next_.fetch_add(leaves_of_piece_);
  if (first >= leaves_.size()) return false;
  const std::uint64_t begin = first * kLeafBytes;
  const std::uint64_t end = std::min(begin + leaves_of_piece_ * kLeafBytes, bytes_);
  unsigned char* const piece = memory_ ? memory_ + begin : buffer.data();
  if (auto filled = fill(piece, begin, end - begin); !filled) {
    fail(filled.error());
    return false;
  }
  for (std::uint64_t leaf = first, at = begin; leaf == first || at < end; ++leaf) {
    const std::uint64_t bytes = std::min(kLeafBytes, end - at);
    auto digest = hasher.leaf({reinterpret_cast<const char*>(piece + (at - begin)), bytes});
    if (!digest) {
      fail(digest.error());
      return false;
    }
    leaves_[leaf] = *digest;
    at += bytes;
    done_ += bytes;
  }
  if (memory_) return true;
  const auto written = write(piece, begin, end - begin);
  if (!written) fail(written.error());
  return written.ok();
}

void Loading::fail(const Error& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!error_) error_ = error;
  next_ = leaves_.size();
}

Result<ModelDigest> Loading::finish() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  if (error_) return *error_;
  auto hasher = TreeHasher::make();
  if (!hasher) return hasher.error();
  return hasher->root(std::move(leaves_), bytes_);
}

}  // namespace bellows
