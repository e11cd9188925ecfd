// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/block_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/system/block_workers.h"

namespace bellows {
namespace {

class BlockWriter {
 public:
  BlockWriter(FileOps& ops, const std::string& path, const std::vector<FilePiece>& pieces,
              std::uint64_t size, std::uint64_t block, const std::atomic<bool>& cancelled)
      : ops_(ops),
        path_(path),
        pieces_(pieces),
        size_(size),
        block_(block),
        cancelled_(cancelled),
        digests_((size + block - 1) / block) {}

  Status run() {
    auto fd = ops_.create(path_);
    if (!fd) return fd.error();
    // Blocks that the file system has found room for can be filled side by side.
    if (auto status = ops_.reserve(fd->get(), size_, path_); !status) return status;
    auto direct = ops_.open_direct(path_);
    if (!direct) return direct.error();
    direct_ = static_cast<bool>(*direct);
    auto status = work_on_blocks(digests_.size(), block_, path_,
                                 [&](std::uint64_t number, unsigned char* buffer) {
                                   return write(number, buffer, fd->get(), direct->get());
                                 });
    return status ? ops_.sync(fd->get(), path_) : status;
  }
  std::vector<Hash128>& digests() { return digests_; }

 private:
  const unsigned char* gather(std::uint64_t begin, std::uint64_t bytes,
                              unsigned char* buffer) const {
    const auto piece = piece_at(pieces_, begin);
    const unsigned char* in_place = piece->data + (begin - piece->offset);
    if (piece->offset + piece->bytes >= begin + bytes && is_aligned(in_place)) return in_place;
    copy_pieces(pieces_, begin, bytes, buffer);
    return buffer;
  }

  Status write(std::uint64_t number, unsigned char* buffer, int fd, int direct_fd) {
    if (cancelled_) return Error{ErrorKind::unavailable, path_ + ": writing was cancelled"};
    const std::uint64_t begin = number * block_, bytes = std::min(block_, size_ - begin);
    const unsigned char* data = gather(begin, bytes, buffer);
    digests_[number] = hash_of(data, bytes);
    std::uint64_t done = direct_ ? bytes / kSector * kSector : 0;
    if (done > 0) {
      auto taken = ops_.write_direct(direct_fd, data, done, begin, path_);
      if (!taken) return taken.error();
      if (!*taken) {
        direct_ = false;
        done = 0;
      }
    }
    if (done == bytes) return {};
    auto status = ops_.write_at(fd, data + done, bytes - done, begin + done, path_);
    // Begins the disk's work now, so that the fsync at the end has less to wait for.
    sync_file_range(fd, static_cast<off_t>(begin + done), static_cast<off_t>(bytes - done),
                    SYNC_FILE_RANGE_WRITE);
    return status;
  }

  FileOps& ops_;
  const std::string& path_;
  const std::vector<FilePiece>& pieces_;
  const std::uint64_t size_;
  const std::uint64_t block_;
  const std::atomic<bool>& cancelled_;
  std::vector<Hash128> digests_;
  std::atomic<bool> direct_{false};
};

}  // namespace

Result<std::vector<Hash128>> write_blocks(FileOps& ops, const std::string& path,
                                          const std::vector<FilePiece>& pieces, std::uint64_t size,
                                          std::uint64_t block, const std::atomic<bool>& cancelled) {
  BlockWriter writer(ops, path, pieces, size, block, cancelled);
  if (auto status = writer.run(); !status) return status.error();
  return std::move(writer.digests());
}

}  // namespace bellows
