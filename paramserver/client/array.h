// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <cstddef>

namespace bellows::ps {

/// What malloc gave.
template <typename T>
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { free(data_); }
  /// So many, of zeros.
  bool make(std::size_t count) {
    free(data_);
    data_ = static_cast<T*>(calloc(count, sizeof(T)));
    return data_;
  }
  explicit operator bool() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
};

}  // namespace bellows::ps
