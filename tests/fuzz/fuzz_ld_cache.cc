// SPDX-License-Identifier: Apache-2.0
/// An ld.so.cache as ldconfig wrote it, a full disk cut it, or a hostile administrator made it.
/// Most mutations damage the header and are turned away there, so what follows it is also tried
/// behind a header that fits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "spank/container/ld_cache.h"

using namespace bellows::container;

namespace {

constexpr std::size_t kHeader = 48;
constexpr std::size_t kEntry = 24;

void check(std::string_view text) {
  for (Machine machine : {Machine::x86_64, Machine::aarch64}) {
    const auto entries = parse_ld_cache(text, machine);
    if (!entries) {
      if (entries.error().kind != bellows::ErrorKind::corrupt) std::abort();
      continue;
    }
    if (entries->size() > text.size() / kEntry) std::abort();
    for (const LdCacheEntry& entry : *entries) {
      if (entry.name.empty() || entry.name.find('/') != std::string::npos) std::abort();
      if (!entry.path.starts_with('/')) std::abort();
      if (text.find(entry.name + '\0') == text.npos) std::abort();
      if (text.find(entry.path + '\0') == text.npos) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  const std::string_view body = text.substr(std::min(text.size(), kHeader));
  std::string fitting = "glibc-ld.so.cache1.1";
  fitting += static_cast<char>(std::min<std::size_t>(body.size() / kEntry, 4));
  fitting.resize(kHeader);
  check(fitting += body);
  return 0;
}
