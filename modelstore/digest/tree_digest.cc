// SPDX-License-Identifier: Apache-2.0
#include "modelstore/digest/tree_digest.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/evp.h>

namespace bellows {
namespace {

constexpr unsigned char kLeaf = 0;
constexpr unsigned char kNode = 1;
constexpr unsigned char kRoot = 2;

Error openssl_error() {
  char why[256] = "";
  ERR_error_string_n(ERR_get_error(), why, sizeof why);
  return Error{ErrorKind::internal, fmt::format("cannot compute SHA-256 with OpenSSL: {}", why)};
}

std::string_view view_of(const ModelDigest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

std::string_view view_of(const std::uint64_t& number) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

}  // namespace

void TreeHasher::FreeContext::operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
void TreeHasher::FreeAlgorithm::operator()(EVP_MD* algorithm) const { EVP_MD_free(algorithm); }

Result<TreeHasher> TreeHasher::make() {
  TreeHasher hasher;
  // Fetched once: to look it up for each of many thousand digests would take longer than some.
  hasher.algorithm_.reset(EVP_MD_fetch(nullptr, "SHA256", nullptr));
  hasher.context_.reset(EVP_MD_CTX_new());
  if (!hasher.algorithm_ || !hasher.context_) return openssl_error();
  return hasher;
}

Result<ModelDigest> TreeHasher::hash(unsigned char kind,
                                     std::initializer_list<std::string_view> parts) {
  ModelDigest digest;
  bool done = EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr) == 1 &&
              EVP_DigestUpdate(context_.get(), &kind, sizeof kind) == 1;
  for (std::string_view part : parts)
    done = done && EVP_DigestUpdate(context_.get(), part.data(), part.size()) == 1;
  if (!done || EVP_DigestFinal_ex(context_.get(), digest.bytes.data(), nullptr) != 1)
    return openssl_error();
  return digest;
}

Result<ModelDigest> TreeHasher::leaf(std::string_view piece) { return hash(kLeaf, {piece}); }

Result<ModelDigest> TreeHasher::root(std::vector<ModelDigest> leaves, std::uint64_t bytes) {
  if (leaves.size() != leaf_count(bytes))
    return Error{ErrorKind::internal, fmt::format("{} digests for {} bytes", leaves.size(), bytes)};
  while (leaves.size() > 1) {
    std::size_t above = 0;
    for (std::size_t i = 0; i < leaves.size(); i += 2, ++above) {
      if (i + 1 == leaves.size()) {
        leaves[above] = leaves[i];
        continue;
      }
      const auto node = hash(kNode, {view_of(leaves[i]), view_of(leaves[i + 1])});
      if (!node) return node.error();
      leaves[above] = *node;
    }
    leaves.resize(above);
  }
  return hash(kRoot, {view_of(bytes), view_of(kLeafBytes), view_of(leaves.front())});
}

}  // namespace bellows
