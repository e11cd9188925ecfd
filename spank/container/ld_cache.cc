// SPDX-License-Identifier: Apache-2.0
#include "spank/container/ld_cache.h"

#include <cstdint>
#include <cstring>
#include <optional>

namespace bellows::container {
namespace {

constexpr std::string_view kOldMagic = "ld.so-1.7.0";
constexpr std::size_t kOldHeader = 16;  // the magic, a byte of padding, the number of entries
constexpr std::size_t kOldEntry = 12;
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeader = 48;
constexpr std::size_t kEntry = 24;
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kLongest = 4096;

constexpr std::uint8_t kBigEndian = 3;
constexpr std::uint32_t kTypeMask = 0x00ff;
constexpr std::uint32_t kElf = 1;
constexpr std::uint32_t kElfLibc6 = 3;
constexpr std::uint32_t kMachineMask = 0xff00;

constexpr std::uint32_t flags_of(Machine machine) {
  return machine == Machine::aarch64 ? 0x0a00 : 0x0300;
}

Error corrupt(const char* what) {
  return Error{ErrorKind::corrupt,
               std::string("/etc/ld.so.cache: ") + what + "; run ldconfig to rebuild it"};
}

/// `offset` must leave room for it.
template <typename Number>
Number number_at(std::string_view data, std::size_t offset) {
  Number number{};
  std::memcpy(&number, data.data() + offset, sizeof number);
  return number;
}

/// The text from `offset` to the next NUL.
std::optional<std::string_view> text_at(std::string_view data, std::uint32_t offset) {
  if (offset >= data.size()) return std::nullopt;
  const std::string_view rest = data.substr(offset, kLongest + 1);
  const auto end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return rest.substr(0, end);
}

/// What begins with the new format's header; nothing where there is none.
std::optional<std::string_view> new_format(std::string_view data) {
  if (data.starts_with(kMagic)) return data;
  if (!data.starts_with(kOldMagic) || data.size() < kOldHeader) return std::nullopt;
  // 64-bit: 2^32 entries of 12 bytes do not overflow it.
  const std::uint64_t entries = number_at<std::uint32_t>(data, kOldHeader - 4);
  const std::uint64_t end = kOldHeader + entries * kOldEntry;
  const std::uint64_t start = (end + kAlignment - 1) / kAlignment * kAlignment;
  if (start > data.size() || !data.substr(start).starts_with(kMagic)) return std::nullopt;
  return data.substr(start);
}

bool is_for(std::uint32_t flags, std::uint64_t hwcap, Machine machine) {
  const std::uint32_t type = flags & kTypeMask;
  return (type == kElf || type == kElfLibc6) && (flags & kMachineMask) == flags_of(machine) &&
         hwcap == 0;
}

}  // namespace

Result<std::vector<LdCacheEntry>> parse_ld_cache(std::string_view data, Machine machine) {
  const auto cache = new_format(data);
  if (!cache) return corrupt("not in the format of glibc 2.2 and later");
  if (cache->size() < kHeader) return corrupt("truncated");
  // The low bits of a byte that ldconfig sets since glibc 2.33; 0 before.
  if ((number_at<std::uint8_t>(*cache, 28) & 3) == kBigEndian)
    return corrupt("made on a machine with the other byte order");
  const std::uint64_t entries = number_at<std::uint32_t>(*cache, kMagic.size());
  if (kHeader + entries * kEntry > cache->size()) return corrupt("truncated");
  std::vector<LdCacheEntry> found;
  for (std::uint64_t i = 0; i < entries; i++) {
    const std::size_t at = kHeader + i * kEntry;
    const auto name = text_at(*cache, number_at<std::uint32_t>(*cache, at + 4));
    const auto path = text_at(*cache, number_at<std::uint32_t>(*cache, at + 8));
    if (!name || !path) return corrupt("an entry points out of it");
    const auto hwcap = number_at<std::uint64_t>(*cache, at + 16);
    if (!is_for(number_at<std::uint32_t>(*cache, at), hwcap, machine)) continue;
    if (name->empty() || name->find('/') != name->npos || !path->starts_with('/')) continue;
    found.push_back({std::string(*name), std::string(*path)});
  }
  return found;
}

}  // namespace bellows::container
