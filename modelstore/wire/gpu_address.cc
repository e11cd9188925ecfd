// SPDX-License-Identifier: Apache-2.0
#include "modelstore/wire/gpu_address.h"

#include <string.h>

namespace bellows::modelwire {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// Of `most` digits at most, and one at least.
bool read_hex(const char*& at, const char* end, int most, std::uint64_t* out) {
  const char* begin = at;
  for (*out = 0; at < end && digit(*at) >= 0; ++at)
    *out = *out * 16 + static_cast<std::uint64_t>(digit(*at));
  return at > begin && at - begin <= most;
}

bool skip(const char*& at, const char* end, char c) { return at < end && *at++ == c; }

}  // namespace

bool read_gpu(const char* text, std::size_t length, std::uint64_t* gpu) {
  const char* at = text;
  const char* const end = text + length;
  std::uint64_t domain = 0, bus = 0, device = 0, function = 0;
  if (length > 0 && length < 10) {
    if (!read_hex(at, end, 2, &bus)) return false;
  } else if (!read_hex(at, end, 8, &domain) || !skip(at, end, ':') || !read_hex(at, end, 2, &bus)) {
    return false;
  }
  if (!skip(at, end, ':') || !read_hex(at, end, 2, &device) || !skip(at, end, '.') ||
      !read_hex(at, end, 1, &function) || at != end || device > 31 || function > 7)
    return false;
  *gpu = domain << 16 | bus << 8 | device << 3 | function;
  return true;
}

void write_gpu(std::uint64_t gpu, char (&text)[kGpuText]) {
  char* at = text;
  const std::uint64_t domain = gpu >> 16 & 0xffffffff;
  for (int shift = domain > 0xffff ? 28 : 12; shift >= 0; shift -= 4)
    *at++ = kDigits[domain >> shift & 15];
  *at++ = ':';
  *at++ = kDigits[gpu >> 12 & 15];
  *at++ = kDigits[gpu >> 8 & 15];
  *at++ = ':';
  *at++ = kDigits[gpu >> 7 & 1];
  *at++ = kDigits[gpu >> 3 & 15];
  *at++ = '.';
  *at++ = kDigits[gpu & 7];
  *at = 0;
}

bool is_gpu_list(const char* text, std::size_t length) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= length && length > 0; ++i) {
    if (i < length && text[i] != ',') continue;
    std::uint64_t gpu;
    if (!read_gpu(text + begin, i - begin, &gpu)) return false;
    begin = i + 1;
  }
  return true;
}

}  // namespace bellows::modelwire
