// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows::container {

/// One shared library that the host's dynamic linker knows. A value.
struct LdCacheEntry {
  std::string name;  ///< its soname: "libcuda.so.1"
  std::string path;  ///< "/usr/lib/x86_64-linux-gnu/libcuda.so.1", often a link

  bool operator==(const LdCacheEntry&) const = default;
};

enum class Machine { x86_64, aarch64 };

constexpr Machine this_machine() {
#if defined(__aarch64__)
  return Machine::aarch64;
#else
  return Machine::x86_64;
#endif
}

/// Reads an /etc/ld.so.cache of ldconfig: the format "glibc-ld.so.cache1.1" (sysdeps/generic/
/// dl-cache.h of glibc), alone or, as before glibc 2.32, behind the old "ld.so-1.7.0" one. Only the
/// machine's own libraries, without those for certain processors (glibc-hwcaps); in the file's
/// order, in which the linker prefers the first of a name. corrupt: it is not such a file, or
/// truncated, or an entry points out of it. Safe for any bytes.
Result<std::vector<LdCacheEntry>> parse_ld_cache(std::string_view data, Machine machine);

}  // namespace bellows::container
