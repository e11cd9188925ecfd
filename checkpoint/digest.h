// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows {

/// A running XXH3-128. One thread at a time.
class Digest {
 public:
  Digest();
  void add(const void* data, std::size_t bytes);
  /// 32 lower-case hexadecimal digits: what `xxh128sum` prints.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

std::string digest_of(std::string_view data);

/// Adds `bytes` of the file from `offset`. corrupt when the file ends before, io when it can't be
/// read; both name the path.
Status add_file_range(Digest& digest, int fd, std::uint64_t offset, std::uint64_t bytes,
                      const std::string& path);

/// Whether the text is a digest as hex() writes it.
bool is_digest(std::string_view text);

}  // namespace bellows
