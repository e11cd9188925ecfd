// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/plain/handle.h"
#include "common/result.h"

namespace bellows {

/// What is said between bellows-modeld and one of its loaders.
enum class LoaderWord : std::uint32_t {
  load = 1,      ///< text: the place; uid: with whose rights a path is opened; asks: 1: `version`
                 ///< comes before anything else is read, and waits for `image` or `go_on`
  check = 2,     ///< with memory, and bytes
  fill = 3,      ///< with memory of the size that was asked for
  sized = 4,     ///< bytes, catalogue_at, catalogue_bytes
  progress = 5,  ///< bytes: so many are done
  done = 6,      ///< digest
  failed = 7,    ///< text: a sentence; error: its ErrorKind
  version = 8,   ///< digest: of what the place has now
  image = 9,     ///< with an image of the model, open for reading, to read instead of its place
  go_on = 10,    ///< there is no image
  files = 11,    ///< before sized: in `text`, identities of files that the model is read from
};

struct LoaderMessage {
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::size_t kMostText = 8191;  ///< so much a URL may have

  std::uint32_t version = kVersion;
  LoaderWord word = LoaderWord::failed;
  std::uint64_t bytes = 0;
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
  std::uint8_t digest[32] = {};
  std::uint32_t uid = 0;
  std::uint32_t error = 0;
  std::uint32_t length = 0;
  std::uint32_t asks = 0;
  char text[kMostText + 1] = {};

  /// Cuts what is too long.
  void set_text(std::string_view text);
  /// Takes as they are what fits.
  void set_bytes(std::string_view from);
  std::string_view text_view() const { return {text, length}; }
  /// Of a failed message.
  Error to_error() const;
};

/// unavailable: the other side is gone, or cannot take it now.
Status send_message(int socket, const LoaderMessage& message, int passed = -1);
/// unavailable: the other side is gone; invalid: it speaks otherwise. What it says is only as long
/// as it says, and of a kind that exists. Nothing came: `word` is progress and `bytes` UINT64_MAX.
Status receive_message(int socket, LoaderMessage* message, plain::Handle* passed);

}  // namespace bellows
