// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/disk/image_file.h"

namespace bellows {

/// A directory of images, each under its digest. May be used by several threads at once: what
/// waits for the disk holds up only who asked for it. What is evicted is the caller's decision.
class DiskTier {
 public:
  /// Makes the directory if it isn't there, and removes what a crash left in it that is no whole
  /// image. busy: another process uses it. denied: others may write to it.
  static Result<DiskTier> open(const std::string& directory, std::uint64_t budget);
  DiskTier(DiskTier&&) noexcept;
  DiskTier& operator=(DiskTier&&) noexcept;
  ~DiskTier();

  /// By digest.
  std::vector<DiskImage> images() const;
  /// Bytes of all files, also of those that are being written.
  std::uint64_t used() const;
  std::uint64_t budget() const { return budget_; }

  /// Returns when the image is whole and durable, or nothing of it is there. One that is there
  /// already is fine. unavailable: no room in the budget, or on the disk. busy: another thread
  /// stores or removes the same.
  Status store(const DiskImage& image, const unsigned char* memory, const Wrote& wrote = {});
  /// What is open stays readable, and its room is free only when it is closed. not_found: it isn't
  /// there.
  Status remove(const ModelDigest& digest);
  /// not_found, or corrupt: remove it then.
  Result<ImageFile> open_image(const ModelDigest& digest) const;

 private:
  struct Contents;

  DiskTier(std::string directory, std::uint64_t budget);
  Status take_directory();
  Status recover();
  /// What this name in the directory is worth.
  Status recover_file(const std::string& name);
  Status reserve(const DiskImage& image, bool* is_there);
  std::string path_of(const ModelDigest& digest) const;

  std::string directory_;
  std::uint64_t budget_;
  Fd lock_;
  std::unique_ptr<Contents> contents_;
};

}  // namespace bellows
