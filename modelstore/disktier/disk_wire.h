// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/text.h"
#include "modelstore/digest/model_digest.h"
#include "modelstore/disk/disk_image.h"
#include "modelstore/helper/helper_message.h"

namespace bellows {

/// What is said between bellows-modeld and bellows-model-disk.
enum class DiskWord : std::uint32_t {
  find = 1,      ///< number; text: the tenant; digest: of a model, or of its source where
                 ///< of_source is 1
  release = 2,   ///< number: what was found is read no more
  store = 3,     ///< number, the image's fields, load_ms and text: the tenant; with its memory
  damaged = 4,   ///< digest: its image is not what it should be
  found = 5,     ///< number, digest; with the image, open for reading
  none = 6,      ///< number: there is no such image
  progress = 7,  ///< number, bytes: so many are stored
  stored = 8,    ///< number; text: the digest
  failed = 9,    ///< number; text: why it is not stored
  notice = 10,   ///< text: for the log
  held = 11,     ///< number: of images, also of one being stored; bytes: that they take
};

struct DiskMessage {
  static constexpr const char* kProcess = "bellows-model-disk";
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kMostText = 511;

  std::uint32_t version = kVersion;
  DiskWord word = DiskWord::none;
  std::uint64_t number = 0;  ///< of a find or a store
  std::uint64_t bytes = 0;
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
  std::uint64_t load_ms = 0;  ///< how long its source took
  ModelDigest digest;
  ModelDigest source;           ///< store: of where the model came from, and its version
  std::uint32_t of_source = 0;  ///< find: see there; store: 1: `source` is known
  std::uint32_t length = 0;
  char text[kMostText + 1] = {};

  /// Cuts what is too long.
  void set_text(std::string_view from) {
    length = put_text(text, kMostText, one_line(from, kMostText));
  }
  std::string_view text_view() const { return {text, length}; }
  DiskImage image() const { return {digest, bytes, catalogue_at, catalogue_bytes}; }
  bool is_sound() const {
    return version == kVersion && word >= DiskWord::find && word <= DiskWord::held &&
           length <= kMostText;
  }
};

}  // namespace bellows
