// SPDX-License-Identifier: Apache-2.0
#include "modelstore/disk/disk_image.h"

#include <endian.h>

#include <cstring>

#include "modelstore/digest/tree_digest.h"

namespace bellows {
namespace {

constexpr char kMagic[8] = {'B', 'L', 'W', 'I', 'M', 'G', '0', '1'};
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

/// Numbers are little-endian. `check` is the digest of what stands before it.
struct Trailer {
  char magic[8];
  std::uint64_t bytes;
  std::uint64_t catalogue_at;
  std::uint64_t catalogue_bytes;
  unsigned char digest[32];
  unsigned char check[32];
};
constexpr std::size_t kChecked = offsetof(Trailer, check);

Result<ModelDigest> check_of(const Trailer& trailer) {
  auto hasher = TreeHasher::make();
  if (!hasher) return hasher.error();
  return hasher->leaf({reinterpret_cast<const char*>(&trailer), kChecked});
}

bool is_possible(const DiskImage& image) {
  return image.bytes > 0 && image.bytes <= kMostBytes && image.bytes % kDiskBlock == 0 &&
         image.catalogue_at <= image.bytes &&
         image.catalogue_bytes <= image.bytes - image.catalogue_at;
}

}  // namespace

std::uint64_t DiskImage::file_bytes() const { return bytes + kDiskBlock; }

Result<std::string> DiskImage::trailer() const {
  if (!is_possible(*this))
    return Error{ErrorKind::internal, "a model's image has a size that none can have"};
  Trailer trailer{};
  std::memcpy(trailer.magic, kMagic, sizeof kMagic);
  trailer.bytes = htole64(bytes);
  trailer.catalogue_at = htole64(catalogue_at);
  trailer.catalogue_bytes = htole64(catalogue_bytes);
  std::memcpy(trailer.digest, digest.bytes.data(), sizeof trailer.digest);
  const auto check = check_of(trailer);
  if (!check) return check.error();
  std::memcpy(trailer.check, check->bytes.data(), sizeof trailer.check);
  std::string block(kDiskBlock, '\0');
  std::memcpy(block.data(), &trailer, sizeof trailer);
  return block;
}

Result<DiskImage> DiskImage::parse(std::string_view block) {
  const Error wrong{ErrorKind::corrupt, "this is no whole image of a model"};
  Trailer trailer;
  if (block.size() != kDiskBlock) return wrong;
  std::memcpy(&trailer, block.data(), sizeof trailer);
  DiskImage image;
  image.bytes = le64toh(trailer.bytes);
  image.catalogue_at = le64toh(trailer.catalogue_at);
  image.catalogue_bytes = le64toh(trailer.catalogue_bytes);
  std::memcpy(image.digest.bytes.data(), trailer.digest, sizeof trailer.digest);
  const auto check = check_of(trailer);
  if (!check) return check.error();
  if (std::memcmp(trailer.magic, kMagic, sizeof kMagic) != 0 ||
      std::memcmp(trailer.check, check->bytes.data(), sizeof trailer.check) != 0 ||
      block.find_first_not_of('\0', sizeof trailer) != std::string_view::npos ||
      !is_possible(image))
    return wrong;
  return image;
}

}  // namespace bellows
