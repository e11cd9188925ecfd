// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/container/image_reference.h"
#include "common/fd.h"
#include "common/result.h"

/// Registries, through skopeo: it knows the site's mirrors, certificates and rules of trust
/// (/etc/containers), and podman's and Docker's credentials.
namespace bellows::image {

struct FetchOptions {
  /// A registry that sends nothing for longer, or hardly anything in each such time, is given up.
  std::uint32_t stall_seconds = 60;
  std::uint64_t most_bytes = std::uint64_t{256} << 30;
  std::function<void(std::uint64_t bytes)> progress;  ///< what there is so far
};

/// One image's registry, with the user's credentials for it. A resource: the memory with these.
class Registry {
 public:
  static Result<Registry> open(const container::ImageReference& reference, FetchOptions options);

  /// The manifest that the name stands for now, as the registry has it, or a list of manifests.
  /// unavailable: the registry does not answer; denied: it refuses; sentences.
  Result<std::string> read_manifest() const;

  /// Copies the image with this digest into a directory in OCI's form; complete blobs that are
  /// there from before are not fetched again.
  Status copy(const std::string& digest, const std::string& layout) const;

 private:
  Registry(container::ImageReference reference, FetchOptions options)
      : reference_(std::move(reference)), options_(std::move(options)) {}
  Status write_login();
  std::vector<std::string> command(const char* verb) const;
  Error failure(const std::string& said) const;
  Error stalled(std::uint64_t bytes) const;

  container::ImageReference reference_;
  FetchOptions options_;
  Fd login_;  ///< none: skopeo finds its own
};

}  // namespace bellows::image
