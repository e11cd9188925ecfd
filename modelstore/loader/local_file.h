// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "common/fd.h"
#include "modelstore/loader/source_file.h"

namespace bellows {

/// A file of this machine's file systems.
class LocalFile final : public SourceFile {
 public:
  /// corrupt: it is no plain file.
  static Result<std::unique_ptr<SourceFile>> open(const std::string& path);

  const std::string& name() const override { return path_; }
  std::uint64_t size() const override { return static_cast<std::uint64_t>(stat_.st_size); }
  std::string version() const override;
  std::optional<plain::FileIdentity> identity() const override { return plain::identity_of(stat_); }
  Status read(unsigned char* to, std::uint64_t bytes, std::uint64_t offset) const override;
  Status check_unchanged() const override;

 private:
  explicit LocalFile(std::string path) : path_(std::move(path)) {}
  void open_direct();

  std::string path_;
  Fd fd_;
  Fd direct_;  ///< past the page cache, where the file system has that and the cache has not all
  struct stat stat_ = {};
};

}  // namespace bellows
