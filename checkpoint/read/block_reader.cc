// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read/block_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <mutex>

#include "checkpoint/system/block_workers.h"
#include "checkpoint/system/file_read.h"
#include "common/fd.h"
#include "common/page_cache.h"

namespace bellows {
namespace {

// Threads work on neighbouring blocks, so few files are in use at any time.
constexpr std::size_t kMostOpen = 8;

/// A shard that is being read, by several threads. Owns its descriptors and the mapping, which is
/// never touched: it tells what the page cache holds.
class OpenShard {
 public:
  static Result<std::shared_ptr<OpenShard>> open(const std::string& path, std::uint64_t size) {
    auto fd = open_shard(path, size);
    if (!fd) return fd.error();
    return std::make_shared<OpenShard>(path, size, std::move(*fd));
  }
  OpenShard(const std::string& path, std::uint64_t size, Fd fd)
      : path_(path),
        size_(size),
        fd_(std::move(fd)),
        direct_fd_(::open(path.c_str(), O_RDONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC)),
        map_(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_.get(), 0)),
        direct_(static_cast<bool>(direct_fd_)) {}
  OpenShard(const OpenShard&) = delete;
  OpenShard& operator=(const OpenShard&) = delete;
  ~OpenShard() {
    if (map_ != MAP_FAILED) munmap(map_, size_);
  }

  /// `to` must have room up to the next multiple of kSector.
  Status read(unsigned char* to, std::uint64_t bytes, std::uint64_t offset) {
    std::uint64_t done = 0;
    if (direct_ && !is_cached(offset, bytes)) {
      done = read_direct(to, bytes, offset);
      if (done < bytes) done = 0;
    }
    return read_at(fd_.get(), to + done, bytes - done, offset + done, path_);
  }

 private:
  bool is_cached(std::uint64_t offset, std::uint64_t bytes) const {
    return map_ != MAP_FAILED && pages_are_cached(static_cast<char*>(map_) + offset, bytes);
  }

  // How much came; the rest is for reading through the cache.
  std::uint64_t read_direct(unsigned char* to, std::uint64_t bytes, std::uint64_t offset) {
    const std::uint64_t whole = (bytes + kSector - 1) / kSector * kSector;
    ssize_t got;
    do {
      got = pread(direct_fd_.get(), to, whole, static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EINVAL) direct_ = false;
    return got < 0 ? 0 : std::min(static_cast<std::uint64_t>(got), bytes);
  }

  const std::string path_;
  const std::uint64_t size_;
  const Fd fd_;
  const Fd direct_fd_;
  void* const map_;
  std::atomic<bool> direct_;
};

class BlockReader {
 public:
  BlockReader(const std::vector<FilePlan>& files, const Progress& progress, ReadCount* count)
      : files_(files), progress_(progress), count_(count) {
    for (std::size_t file = 0; file < files.size(); ++file) add_file(file);
  }

  Status run() {
    std::uint64_t most = 0;
    for (const FilePlan& file : files_) most = std::max(most, file.index->block);
    return work_on_blocks(items_.size(), most, "reading a checkpoint",
                          [this](std::uint64_t number, unsigned char* buffer) {
                            return read(items_[number], buffer);
                          });
  }

 private:
  /// A block, and which copies want of it.
  struct Item {
    std::size_t file;
    std::uint64_t block;
    std::vector<std::uint32_t> copies;
  };

  void add_file(std::size_t number) {
    const FilePlan& file = files_[number];
    const ShardIndex& index = *file.index;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> wanted;
    for (std::uint32_t i = 0; i < file.copies.size(); ++i) {
      const Copy& copy = file.copies[i];
      for (std::uint64_t b = copy.offset / index.block; b * index.block < copy.end(); ++b) {
        if (!file.offered.empty() && file.offered[b]) continue;
        if (touches(copy, b * index.block, (b + 1) * index.block)) wanted.emplace_back(b, i);
      }
    }
    std::sort(wanted.begin(), wanted.end());
    auto next = wanted.begin();
    for (std::uint64_t b = 0; b < index.digests.size(); ++b) {
      Item item{number, b, {}};
      for (; next != wanted.end() && next->first == b; ++next) item.copies.push_back(next->second);
      if (file.all || !item.copies.empty()) items_.push_back(std::move(item));
    }
  }

  Result<std::shared_ptr<OpenShard>> open(std::size_t number) {
    std::lock_guard lock(mutex_);
    for (const auto& [file, shard] : open_) {
      if (file == number) return shard;
    }
    const FilePlan& file = files_[number];
    auto shard = OpenShard::open(file.path, file.index->size);
    if (!shard) return shard;
    open_.emplace_back(number, *shard);
    if (open_.size() > kMostOpen) open_.pop_front();
    return shard;
  }

  // Where a block may be read to at once: all of it goes to one place that O_DIRECT takes.
  unsigned char* destination(const FilePlan& file, const Item& item, std::uint64_t begin,
                             std::uint64_t bytes) const {
    if (item.copies.size() != 1 || bytes % kSector != 0) return nullptr;
    const Copy& c = file.copies[item.copies[0]];
    const bool covers = c.outer.count == 1 && c.inner.count == 1 && c.offset <= begin &&
                        c.offset + c.bytes >= begin + bytes;
    unsigned char* to = covers ? c.to + (begin - c.offset) : nullptr;
    return covers && is_aligned(to) ? to : nullptr;
  }

  // Copied before it is checked against the digest: a rank that still lives may write there.
  bool read_copy(const FilePlan& file, std::uint64_t block, unsigned char* to) {
    if (!file.copy) return false;
    const std::uint64_t bytes = file.index->block_bytes(block);
    copy_pieces(file.copy->pieces, block * file.index->block, bytes, to);
    if (hash_of(to, bytes) != file.index->digests[block]) return false;
    if (count_) count_->memory += bytes;
    return true;
  }

  Status read_bytes(std::size_t number, std::uint64_t begin, std::uint64_t bytes,
                    unsigned char* to) {
    if (files_[number].read) return files_[number].read(to, bytes, begin);
    auto shard = open(number);
    return shard ? (*shard)->read(to, bytes, begin) : Status(shard.error());
  }

  Status read_file(const Item& item, std::uint64_t begin, std::uint64_t bytes, unsigned char* to) {
    const FilePlan& file = files_[item.file];
    if (auto status = read_bytes(item.file, begin, bytes, to); !status) return status;
    if (hash_of(to, bytes) != file.index->digests[item.block]) {
      return Error{ErrorKind::corrupt,
                   fmt::format("{} is damaged: the bytes from {} to {} do not match their digest",
                               file.path, begin, begin + bytes)};
    }
    if (count_) count_->store += bytes;
    return {};
  }

  Status read(const Item& item, unsigned char* buffer) {
    const FilePlan& file = files_[item.file];
    const std::uint64_t begin = item.block * file.index->block;
    const std::uint64_t bytes = file.index->block_bytes(item.block);
    unsigned char* in_place = destination(file, item, begin, bytes);
    unsigned char* data = in_place ? in_place : buffer;
    if (!read_copy(file, item.block, data)) {
      if (auto status = read_file(item, begin, bytes, data); !status) return status;
    }
    if (!in_place) {
      for (std::uint32_t i : item.copies) copy_out(file.copies[i], begin, begin + bytes, data);
    }
    if (progress_) progress_(bytes);
    return {};
  }

  const std::vector<FilePlan>& files_;
  const Progress& progress_;
  ReadCount* const count_;
  std::vector<Item> items_;
  std::mutex mutex_;
  std::deque<std::pair<std::size_t, std::shared_ptr<OpenShard>>> open_;
};

}  // namespace

Status read_blocks(const std::vector<FilePlan>& files, const Progress& progress, ReadCount* count) {
  return BlockReader(files, progress, count).run();
}

}  // namespace bellows
