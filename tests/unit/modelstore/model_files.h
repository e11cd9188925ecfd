// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <random>
#include <string>

#include "tests/unit/modelstore/safetensors_support.h"

namespace bellows::model_test {

/// The same ones each time.
inline std::string random_bytes(std::size_t bytes, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return out;
}

/// A file with one tensor of bytes.
inline std::string one_tensor(const std::string& name, const std::string& data) {
  return tensor_file(
      "{" + entry(name, "U8", "[" + std::to_string(data.size()) + "]", 0, data.size()) + "}", data);
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace bellows::model_test
