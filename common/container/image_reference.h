// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

/// Names of images in registries, as pyxis and Docker have them.
namespace bellows::container {

inline constexpr std::string_view kRegistryScheme = "docker://";

/// An image in a registry. A value.
struct ImageReference {
  std::string user;      ///< whose credentials are meant; empty: whichever there are
  std::string registry;  ///< HOST[:PORT], such as docker.io
  std::string name;      ///< such as library/ubuntu
  std::string tag;       ///< "latest" where none was given; empty where there is a digest
  std::string digest;    ///< "sha256:HEX"; empty: none

  bool operator==(const ImageReference&) const = default;

  /// docker://[USER@]REGISTRY/NAME:TAG or @DIGEST: one text for each image, whatever was written.
  std::string text() const;
  /// The same without the user: what rules are about.
  std::string place() const;
  /// As short as people write it, for messages.
  std::string brief() const;
};

/// [docker://][USER@][REGISTRY#]NAME[:TAG][@DIGEST], and REGISTRY/NAME, since a registry has a dot
/// or a port, as Docker has it. invalid: a sentence.
Result<ImageReference> parse_reference(std::string_view text);

/// "sha256:" and 64 digits: nothing else may become part of a file's name.
bool is_digest(std::string_view text);

/// Whether an image's text names one in a registry.
inline bool is_in_registry(std::string_view image) { return image.starts_with(kRegistryScheme); }

}  // namespace bellows::container
