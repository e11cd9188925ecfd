// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Writes an ld.so.cache as ldconfig does.
namespace bellows::container {

constexpr std::uint32_t kX86_64 = 0x0303;
constexpr std::uint32_t kI386 = 0x0003;
constexpr std::uint32_t kAarch64 = 0x0a03;

struct CacheEntry {
  std::uint32_t flags;
  std::string name;
  std::string path;
  std::uint64_t hwcap;
};

template <typename Number>
void put(std::string& data, Number number) {
  data.append(reinterpret_cast<const char*>(&number), sizeof number);
}

inline std::string new_cache(const std::vector<CacheEntry>& entries) {
  std::string strings;
  std::string table;
  const auto first = static_cast<std::uint32_t>(48 + 24 * entries.size());
  const auto add = [&strings, first](const std::string& text) {
    const auto offset = first + static_cast<std::uint32_t>(strings.size());
    strings.append(text.c_str(), text.size() + 1);
    return offset;
  };
  for (const CacheEntry& entry : entries) {
    put(table, entry.flags);
    put(table, add(entry.name));
    put(table, add(entry.path));
    put(table, std::uint32_t{0});
    put(table, entry.hwcap);
  }
  std::string data = "glibc-ld.so.cache1.1";
  put(data, static_cast<std::uint32_t>(entries.size()));
  put(data, static_cast<std::uint32_t>(strings.size()));
  data += '\2';
  data.append(19, '\0');
  return data + table + strings;
}

inline std::string old_and_new_cache(const std::vector<CacheEntry>& entries) {
  std::string data = "ld.so-1.7.0";
  data += '\0';
  put(data, static_cast<std::uint32_t>(entries.size()));
  data.append(12 * entries.size(), '\0');
  data.resize((data.size() + 7) / 8 * 8);
  return data + new_cache(entries);
}

}  // namespace bellows::container
