// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "image/layout/digest.h"
#include "image/unpack/limits.h"

struct archive;

namespace bellows::image {

/// A layer as it lies in a registry: a tar file, as it is or packed by gzip or zstd. A value but
/// for its file.
struct Layer {
  Fd file;
  std::string digest;   ///< of the file
  std::string diff_id;  ///< of the tar file in it
};

/// A layer's tar file while it is unpacked, which counts and digests all that goes by. A resource.
class LayerStream {
 public:
  /// The layer, the limits and the tally must outlive it.
  LayerStream(const Layer& layer, const Limits& limits, Tally& tally)
      : layer_(layer), limits_(limits), tally_(tally) {}
  LayerStream(const LayerStream&) = delete;
  LayerStream& operator=(const LayerStream&) = delete;

  Status open();
  /// The tar file, for libarchive's functions.
  archive* tar() { return tar_.get(); }
  /// What libarchive's functions failed for.
  Error failure() const;
  /// Reads what is left. corrupt: one of the digests is not what was promised.
  Status finish();

 private:
  struct Free {
    void operator()(archive* a) const;
  };
  static long read_file(archive*, void* self, const void** data);
  static long read_packed(archive*, void* self, const void** data);
  long next_of_file(const void** data);
  long next_of_tar(const void** data);
  Status check(Sha256& hash, const std::string& promised, const char* what) const;

  const Layer& layer_;
  const Limits& limits_;
  Tally& tally_;
  std::unique_ptr<archive, Free> packed_;  ///< the file, unpacked
  std::unique_ptr<archive, Free> tar_;
  Sha256 file_hash_;
  Sha256 tar_hash_;
  std::unique_ptr<char[]> file_bytes_;
  std::unique_ptr<char[]> tar_bytes_;
  Status problem_;  ///< one of ours, which libarchive can't carry
};

}  // namespace bellows::image
