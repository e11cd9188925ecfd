// SPDX-License-Identifier: Apache-2.0
#include "image/layout/digest.h"

#include <fmt/format.h>

#include <array>

namespace bellows::image {
namespace {

constexpr std::string_view kBegin = "sha256:";

Error failed() { return {ErrorKind::internal, "libcrypto can't compute a SHA-256"}; }

}  // namespace

Result<Sha256> Sha256::begin() {
  Sha256 hash;
  hash.context_.reset(EVP_MD_CTX_new());
  if (!hash.context_ || EVP_DigestInit_ex(hash.context_.get(), EVP_sha256(), nullptr) != 1)
    return failed();
  return hash;
}

Status Sha256::add(const void* data, std::size_t bytes) {
  return EVP_DigestUpdate(context_.get(), data, bytes) == 1 ? Status() : failed();
}

Result<std::string> Sha256::end() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  if (EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) != 1) return failed();
  std::string text(kBegin);
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

Result<std::string> digest_of(std::string_view data) {
  auto hash = Sha256::begin();
  if (!hash) return hash.error();
  if (auto status = hash->add(data.data(), data.size()); !status) return status.error();
  return hash->end();
}

std::string hex_of(const std::string& digest) { return digest.substr(kBegin.size()); }

}  // namespace bellows::image
