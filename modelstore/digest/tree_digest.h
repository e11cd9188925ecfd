// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "modelstore/digest/model_digest.h"

struct evp_md_ctx_st;
struct evp_md_st;

namespace bellows {

/// All leaves but the last have so many bytes.
inline constexpr std::uint64_t kLeafBytes = 1 << 20;

/// How many leaves so many bytes have: at least one.
constexpr std::uint64_t leaf_count(std::uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / kLeafBytes + 1;
}

/// Computes the tree that README.md describes. Each thread has its own.
class TreeHasher {
 public:
  static Result<TreeHasher> make();

  Result<ModelDigest> leaf(std::string_view piece);
  /// Of the leaves of `bytes` bytes. internal: they are not as many as leaf_count says.
  Result<ModelDigest> root(std::vector<ModelDigest> leaves, std::uint64_t bytes);

 private:
  struct FreeContext {
    void operator()(evp_md_ctx_st* context) const;
  };
  struct FreeAlgorithm {
    void operator()(evp_md_st* algorithm) const;
  };

  TreeHasher() = default;
  Result<ModelDigest> hash(unsigned char kind, std::initializer_list<std::string_view> parts);

  std::unique_ptr<evp_md_st, FreeAlgorithm> algorithm_;
  std::unique_ptr<evp_md_ctx_st, FreeContext> context_;
};

}  // namespace bellows
