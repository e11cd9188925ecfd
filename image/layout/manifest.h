// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

/// What registries say about an image: JSON that anyone may have written.
namespace bellows::image {

/// One file of an image, by the digest of its bytes. A value.
struct Blob {
  std::string digest;
  std::uint64_t bytes = 0;
};

/// A manifest of OCI's or Docker's second form: one image, for one kind of machine. A value.
struct ImageManifest {
  Blob config;
  std::vector<Blob> layers;  ///< the lowest first
};

/// What an image says about itself. A value.
struct ImageConfig {
  std::vector<std::string> diff_ids;     ///< digests of the layers' tar files, unpacked
  std::vector<std::string> environment;  ///< NAME=VALUE
  std::string workdir;                   ///< empty: none
  std::vector<std::string> entrypoint;   ///< words before those of a command
  std::vector<std::string> command;      ///< words where there is no other command
};

constexpr std::size_t kMostLayers = 1024;
constexpr std::size_t kMostJson = std::size_t{4} << 20;

/// invalid: it is no such text, or one of its digests is not a SHA-256; a sentence.
Result<ImageManifest> parse_manifest(std::string_view text);

/// Likewise. Variables without a name, and with line breaks, are left out.
Result<ImageConfig> parse_config(std::string_view text);

/// The digest of the one manifest that the index of an OCI layout names.
Result<Blob> parse_layout_index(std::string_view text);

}  // namespace bellows::image
