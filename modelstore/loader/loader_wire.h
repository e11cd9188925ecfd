// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/text.h"
#include "modelstore/digest/model_digest.h"
#include "modelstore/helper/helper_message.h"
#include "modelstore/peerwire/peer_letter.h"
#include "modelstore/peerwire/peer_nodes.h"

namespace bellows {

/// What is said between bellows-modeld and one of its loaders.
enum class LoaderWord : std::uint32_t {
  load = 1,   ///< text: the place; uid: with whose rights a path is opened; asks: 1: `version`
              ///< comes before anything else is read, and waits for `image` or `go_on`
  check = 2,  ///< with memory, and bytes
  fill = 3,   ///< with memory of the size that was asked for; asks: 1: its pages may be huge
  sized = 4,  ///< bytes, catalogue_at, catalogue_bytes; text: the node that gives them, if one does
  progress = 5,    ///< bytes: so many are done
  done = 6,        ///< digest
  failed = 7,      ///< text: a sentence; error: its ErrorKind
  version = 8,     ///< digest: of what the place has now
  image = 9,       ///< with an image of the model, open for reading, to read instead of its place
  go_on = 10,      ///< there is no image
  files = 11,      ///< before sized: in `text`, identities of files that the model is read from
  peers = 12,      ///< there is no image, but these nodes may have the model: `text` is a PeersTask
  peer_at = 13,    ///< text: a node; and back: "HOST PORT", or nothing
  peer_lost = 14,  ///< text: a node, and on the next line why it is not asked; error: corrupt
                   ///< or busy if that is for this model only
  copy = 15,  ///< to bellows-model-gpu: with sealed memory, its bytes, catalogue and digest; text:
              ///< the PCI address of the GPU. Followed by `fill` with memory for the
              ///< catalogue alone; answered by `done` with the GPU's memory, and its bytes
};

struct LoaderMessage {
  static constexpr const char* kProcess = "its loader";
  static constexpr std::uint32_t kVersion = 4;
  static constexpr std::size_t kMostText = 8191;  ///< so much a URL may have

  std::uint32_t version = kVersion;
  LoaderWord word = LoaderWord::failed;
  std::uint64_t bytes = 0;
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
  ModelDigest digest;
  std::uint32_t uid = 0;
  std::uint32_t error = 0;
  std::uint32_t length = 0;
  std::uint32_t asks = 0;
  char text[kMostText + 1] = {};

  /// Cuts what is too long.
  void set_text(std::string_view from) { set_bytes(one_line(from, kMostText)); }
  /// Takes as they are what fits.
  void set_bytes(std::string_view from) { length = put_text(text, kMostText, from); }
  std::string_view text_view() const { return {text, length}; }
  /// Of a failed message.
  Error to_error() const;
  bool is_sound() const {
    return version == kVersion && word >= LoaderWord::load && word <= LoaderWord::copy &&
           length <= kMostText;
  }
};

/// Whom a loader asks before it reads a model from afar, and how.
struct PeersTask {
  std::string self;               ///< this node
  std::string munge_socket;       ///< "": the usual one
  std::uint64_t first_ms = 0;     ///< for a node's first word
  std::uint64_t patience_ms = 0;  ///< without any progress over there
  std::string tenant;
  std::string model;                  ///< its name
  std::optional<ModelDigest> digest;  ///< where it is known
  std::vector<std::pair<PeerMode, PeerNode>> nodes;

  std::string to_text() const;
  /// internal: to_text does not give such a text.
  static Result<PeersTask> parse(std::string_view text);
};

}  // namespace bellows
