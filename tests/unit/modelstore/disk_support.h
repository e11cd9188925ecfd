// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "modelstore/digest/tree_digest.h"
#include "modelstore/disk/disk_tier.h"

namespace bellows::disk_test {

/// Bytes in memory as a model has them: at a page's begin.
class ImageMemory {
 public:
  ImageMemory(std::uint64_t blocks, unsigned seed) : bytes_(blocks * kDiskBlock) {
    memory_ = static_cast<unsigned char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::uint64_t i = 0; i < bytes_; ++i)
      memory_[i] = static_cast<unsigned char>((i * 2654435761u + seed * 40503u) >> 11);
    auto hasher = TreeHasher::make();
    std::vector<ModelDigest> leaves;
    for (std::uint64_t at = 0; at < bytes_; at += kLeafBytes)
      leaves.push_back(*hasher->leaf(
          {reinterpret_cast<char*>(memory_) + at, std::min(kLeafBytes, bytes_ - at)}));
    image_ = {*hasher->root(leaves, bytes_), bytes_, bytes_ - kDiskBlock, 100};
  }
  ImageMemory(const ImageMemory&) = delete;
  ImageMemory& operator=(const ImageMemory&) = delete;
  ~ImageMemory() { munmap(memory_, bytes_); }

  const DiskImage& image() const { return image_; }
  const unsigned char* data() const { return memory_; }

  /// "", or what is wrong with what the tier has of it.
  std::string differs(const DiskTier& tier) const {
    const auto file = tier.open_image(image_.digest);
    if (!file) return file.error().text;
    if (file->image() != image_) return "another trailer";
    std::vector<unsigned char> room(bytes_ + kDiskBlock);
    auto* aligned =
        room.data() + kDiskBlock - reinterpret_cast<std::uintptr_t>(room.data()) % kDiskBlock;
    if (auto read = file->read(0, aligned, bytes_); !read) return read.error().text;
    return std::memcmp(aligned, memory_, bytes_) == 0 ? "" : "other bytes";
  }

 private:
  std::uint64_t bytes_;
  unsigned char* memory_ = nullptr;
  DiskImage image_;
};

inline std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.insert(entry.path().filename());
  return names;
}

}  // namespace bellows::disk_test
