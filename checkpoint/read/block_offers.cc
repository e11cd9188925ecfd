// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read/block_offers.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "checkpoint/system/block_workers.h"
#include "checkpoint/system/file_read.h"
#include "common/page_cache.h"

namespace bellows {
namespace {

/// One file's blocks, and the sources that they are in.
class FileOffer {
 public:
  FileOffer(FilePlan& file, const unsigned char* data, BlockOffers& offers, ReadCount* count)
      : file_(file), data_(data), offers_(offers), count_(count) {}

  void run() {
    if (file_.copies.empty()) return;
    file_.offered.resize(file_.index->digests.size());
    for (const Copy& copy : file_.copies) {
      if (!copy.may_offer || copy.outer.count != 1 || copy.inner.count != 1) continue;
      const std::uint64_t block = file_.index->block;
      std::uint64_t b = (copy.offset + block - 1) / block;
      for (; b < file_.offered.size() && b * block < copy.end(); ++b) {
        const std::uint64_t begin = b * block, bytes = file_.index->block_bytes(b);
        if (begin + bytes > copy.end() || bytes < kLeastHashed) continue;
        file_.offered[b] = offer(b, begin, bytes, copy.to + (begin - copy.offset));
      }
    }
  }

 private:
  bool offer(std::uint64_t number, std::uint64_t begin, std::uint64_t bytes,
             const unsigned char* to) {
    const Hash128& digest = file_.index->digests[number];
    wire::Block block;
    block.to = static_cast<std::uint64_t>(to - data_);
    block.bytes = bytes;
    block.digest = {digest.high, digest.low};
    const bool in_memory = find_in_memory(begin, &block);
    if (!in_memory && !find_in_file(begin, &block)) return false;
    offers_.blocks.push_back(block);
    if (count_) (in_memory ? count_->memory : count_->store) += bytes;
    return true;
  }

  bool find_in_memory(std::uint64_t begin, wire::Block* block) {
    if (!file_.copy) return false;
    const SharedMemory& arrays = *file_.copy->arrays;
    const auto piece = piece_at(file_.copy->pieces, begin);
    if (piece->offset > begin || piece->offset + piece->bytes < begin + block->bytes) return false;
    const unsigned char* from = piece->data + (begin - piece->offset);
    if (from < arrays.data() || from >= arrays.data() + arrays.size()) return false;
    block->from = static_cast<std::uint64_t>(from - arrays.data());
    if (!memory_) memory_ = add_source(wire::Source::memory, arrays.reader());
    block->source = memory_.value_or(0);
    return memory_.has_value();
  }

  // A block that O_DIRECT takes.
  bool find_in_file(std::uint64_t begin, wire::Block* block) {
    if (begin % kSector != 0 || block->bytes % kSector != 0) return false;
    if (!tried_file_) open_file();
    block->from = begin;
    block->source = in_file_.value_or(0);
    return in_file_.has_value();
  }

  // What the page cache holds comes from there.
  void open_file() {
    tried_file_ = true;
    auto fd = open_shard(file_.path, file_.index->size);
    if (!fd) return;
    if (!is_cached(fd->get(), file_.index->size)) {
      auto direct = bellows::open_file(file_.path, O_RDONLY | O_DIRECT | O_NOFOLLOW);
      if (direct) in_file_ = add_source(wire::Source::direct_file, std::move(direct));
    }
    if (!in_file_) in_file_ = add_source(wire::Source::file, std::move(fd));
  }

  std::optional<std::uint32_t> add_source(wire::Source kind, Result<Fd> fd) {
    if (!fd || offers_.sources.size() >= offers_.most_sources) return {};
    offers_.sources.push_back({kind, std::move(*fd)});
    return static_cast<std::uint32_t>(offers_.sources.size() - 1);
  }

  FilePlan& file_;
  const unsigned char* const data_;
  BlockOffers& offers_;
  ReadCount* const count_;
  std::optional<std::uint32_t> memory_, in_file_;
  bool tried_file_ = false;
};

}  // namespace

void offer_blocks(std::vector<FilePlan>* files, const unsigned char* data, BlockOffers* offers,
                  ReadCount* count) {
  for (FilePlan& file : *files) FileOffer(file, data, *offers, count).run();
  std::sort(offers->blocks.begin(), offers->blocks.end(),
            [](const wire::Block& a, const wire::Block& b) { return a.to < b.to; });
}

}  // namespace bellows
