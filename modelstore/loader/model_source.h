// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/plain/file_identity.h"
#include "common/result.h"
#include "modelstore/format/model_layout.h"

namespace bellows {

/// The files of one model, open for reading.
class ModelSource {
 public:
  /// `path`: a safetensors file, an index of such files, or a folder with either under its usual
  /// name. Reads the headers. Errors name the file.
  static Result<ModelSource> open(const std::string& path, uid_t uid);

  const ModelLayout& layout() const { return layout_; }
  /// What lies in memory from `begin` on, in so many bytes of zeros. May be called by several
  /// threads at once.
  Status read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const;
  /// Of its files, in the state in which they are read.
  std::vector<plain::FileIdentity> identities() const;
  /// corrupt: a file is not what it was when it was opened.
  Status check_unchanged() const;

 private:
  struct OpenFile {
    std::string path;
    Fd fd;
    Fd direct;  ///< past the page cache, where the file system has that and the cache has not all
    struct stat stat;
  };

  Status open_all(const std::string& path);
  Status open_indexed(const std::string& folder, const std::string& index);
  /// Opens one and reads its header.
  Status add_file(const std::string& path);
  static Status read_file_part(const OpenFile& file, unsigned char* to, std::uint64_t bytes,
                               std::uint64_t offset);

  std::vector<OpenFile> files_;
  std::vector<ModelFile> headers_;
  std::size_t tensors_ = 0;  ///< in all files, also those that the index does not name
  ModelLayout layout_;
};

}  // namespace bellows
