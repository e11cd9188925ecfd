// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/digest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

#include "common/fd.h"

namespace bellows {

Digest::Digest() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Digest::add(const void* data, std::size_t bytes) {
  XXH3_128bits_update(state_.get(), data, bytes);
}

static std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string Digest::hex() const { return to_hex(XXH3_128bits_digest(state_.get())); }

std::string digest_of(std::string_view data) {
  return to_hex(XXH3_128bits(data.data(), data.size()));
}

Status add_file_range(Digest& digest, int fd, std::uint64_t offset, std::uint64_t bytes,
                      const std::string& path) {
  std::vector<char> chunk(std::min<std::uint64_t>(bytes, 1 << 20));
  while (bytes > 0) {
    ssize_t got = pread(fd, chunk.data(), std::min<std::uint64_t>(bytes, chunk.size()),
                        static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("read", path);
    if (got == 0) {
      return Error{ErrorKind::corrupt,
                   fmt::format("{} ends at byte {}, {} more are expected", path, offset, bytes)};
    }
    digest.add(chunk.data(), static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return {};
}

bool is_digest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace bellows
