// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows::image {

/// The SHA-256 of what comes in pieces, as registries write it.
class Sha256 {
 public:
  static Result<Sha256> begin();
  Status add(const void* data, std::size_t bytes);
  /// "sha256:HEX" of all that was added. Once.
  Result<std::string> end();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

Result<std::string> digest_of(std::string_view data);

/// The digits of a digest.
std::string hex_of(const std::string& digest);

}  // namespace bellows::image
