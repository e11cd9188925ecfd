// SPDX-License-Identifier: Apache-2.0
#include "common/plain/file_identity.h"

#include <string.h>

#include <cstdint>

namespace bellows::plain {

FileIdentity identity_of(const struct stat& s) {
  const std::uint64_t words[] = {s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size),
                                 static_cast<std::uint64_t>(s.st_ctim.tv_sec) * 1000000000 +
                                     static_cast<std::uint64_t>(s.st_ctim.tv_nsec)};
  FileIdentity identity = {};
  static_assert(sizeof words == sizeof identity);
  memcpy(identity.data(), words, sizeof words);
  return identity;
}

}  // namespace bellows::plain
