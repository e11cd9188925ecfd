// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/container/image_reference.h"
#include "common/fd.h"
#include "common/result.h"
#include "image/fetch/registry.h"
#include "image/unpack/limits.h"

/// A user's directory of imported images, on one node or shared by several.
namespace bellows::image {

/// An image in the cache. A value.
struct CachedImage {
  std::vector<std::string> names;  ///< in registries, as last seen there
  std::string digest;              ///< of the manifest, as the registry has it
  std::string path;                ///< of its root directory
  std::uint64_t bytes = 0;         ///< of its layers, unpacked
  std::int64_t used = 0;           ///< when it was last asked for, in seconds since 1970
  std::vector<std::string> users;  ///< who has a lease on it
};

struct ImportOptions {
  FetchOptions fetch;
  Limits limits;
  std::uint64_t budget = UINT64_MAX;  ///< in bytes, of all images
  std::string user;                   ///< who shall have a lease on it; empty: nobody
  std::function<void(const std::string& sentence)> say;  ///< what takes long
};

struct Imported {
  CachedImage image;
  bool reused = false;  ///< it was there
  Fd lease;             ///< not if nobody wants one, or that user has one already
};

class Cache {
 public:
  /// Makes the directory if there is none. denied: it is not the caller's, or others may write it.
  static Result<Cache> open(const std::string& path);

  /// The image as its registry has it now. Whoever else imports it is waited for, and what they
  /// found is not asked for again. After an error there is nothing of the image but whole blobs,
  /// which the next import uses. A new one makes room for itself in the budget: images that nobody
  /// has a lease on go, those first that were not asked for the longest.
  Result<Imported> import(const container::ImageReference& reference,
                          const ImportOptions& options) const;

  /// The last used comes first.
  Result<std::vector<CachedImage>> list() const;

  /// Reads all of an image. corrupt: it is not what was imported; not_found: it is not there.
  Status verify(const std::string& digest) const;

  /// not_found: it is not there. busy: it is being imported, or somebody has a lease on it.
  Status remove(const std::string& digest) const;

 private:
  explicit Cache(std::string path) : path_(std::move(path)) {}
  Result<Imported> import_locked(const container::ImageReference& reference,
                                 const ImportOptions& options, const std::string& name_digest,
                                 std::int64_t since) const;
  Status make_room(const ImportOptions& options) const;
  void remove_leftovers() const;
  std::string directory(const char* kind, const std::string& digest) const;
  Result<Fd> lock(const std::string& digest, const container::ImageReference& reference,
                  const ImportOptions& options) const;
  Result<std::string> current_digest(const Registry& registry, const std::string& name_digest,
                                     std::int64_t since) const;
  Result<CachedImage> find(const std::string& digest) const;
  Result<CachedImage> make(const Registry& registry, const container::ImageReference& reference,
                           const std::string& digest, const ImportOptions& options) const;

  std::string path_;
};

/// $BELLOWS_IMAGE_CACHE, else bellows/images in the user's directory for caches.
std::string default_cache();

}  // namespace bellows::image
