// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/disk/disk_image.h"

namespace bellows {

/// A whole image, open for reading.
class ImageFile {
 public:
  /// corrupt: the file is no whole image.
  static Result<ImageFile> open(const std::string& path);
  /// The same of a file that is open for reading. `path`: for errors.
  static Result<ImageFile> open(Fd file, const std::string& path);
  /// For another process to read.
  Fd take_file() && { return std::move(file_); }

  const DiskImage& image() const { return image_; }
  /// May be called by several threads at once. What begins and ends at multiples of kDiskBlock, and
  /// goes to memory that does, is read past the page cache, where the file system can do that.
  Status read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const;

 private:
  Status read_at(int fd, std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const;

  std::string path_;
  DiskImage image_;
  Fd file_;
  Fd direct_;  ///< none: the file system can't
};

using Wrote = std::function<void(std::uint64_t bytes)>;

/// Makes `path` hold this image, at once and durably; `part` is where it grows. On failure neither
/// is there. `wrote` gets the bytes so far. unavailable: the file system has no room.
Status write_image(const DiskImage& image, const unsigned char* memory, const std::string& part,
                   const std::string& path, const std::string& directory, const Wrote& wrote = {});

}  // namespace bellows
