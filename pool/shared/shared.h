// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <msgpack.hpp>

#include <chrono>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "pool/shared/fields.h"

namespace bellows::pool {

/// A value as fields hold it, in MessagePack.
template <typename T>
Packed packed(const T& value) {
  std::ostringstream stream;
  msgpack::pack(stream, value);
  return stream.str();
}

/// Nothing if it is of another type, or not MessagePack.
template <typename T>
std::optional<T> unpacked(const Packed& data) {
  try {
    return msgpack::unpack(data.data(), data.size()).get().as<T>();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Fields of one name that all members of a pool share, with the types of C++; python/README.md has
/// what they promise. For one thread at a time.
class Shared {
 public:
  using Error = FieldError;

  Shared(std::string pool, std::string name,
         std::chrono::milliseconds timeout = std::chrono::seconds(10))
      : fields_(std::move(pool), std::move(name), timeout) {}

  /// Nothing inside: it was never written, or is nil. invalid: it is no T.
  template <typename T>
  FieldResult<std::optional<T>> get(const std::string& field) {
    const auto value = fields_.get(field);
    if (!value) return value.error();
    auto found = unpacked<std::optional<T>>(*value);
    if (!found) return other_type(field);
    return std::move(*found);
  }
  template <typename T>
  FieldResult<bool> set(const std::string& field, const T& value, const FieldLock* lock = nullptr) {
    return fields_.set(field, packed(value), lock);
  }
  /// Writes `to` if the value is `from` (std::optional<int>() and the like: never written).
  template <typename T, typename U>
  FieldResult<bool> compare_and_set(const std::string& field, const T& from, const U& to,
                                    const FieldLock* lock = nullptr) {
    const Packed old = packed(from);
    const auto change = [&](const Packed& now) {
      // Python has another form of 1.0.
      const auto value = unpacked<T>(now);
      return value && packed(*value) == old ? std::optional(packed(to)) : std::nullopt;
    };
    return fields_.change(field, change, lock);
  }
  /// Replaces a value by function(value), which may be called several times, and returns that.
  template <typename T, typename F>
  FieldResult<T> update(const std::string& field, const F& function,
                        const FieldLock* lock = nullptr) {
    std::optional<T> last;
    const auto change = [&](const Packed& now) -> std::optional<Packed> {
      const auto value = unpacked<std::optional<T>>(now);
      last.reset();
      if (!value) return std::nullopt;
      last = function(*value);
      return packed(*last);
    };
    const auto done = fields_.change(field, change, lock);
    if (!done) return done.error();
    if (!last) return other_type(field);
    return std::move(*last);
  }
  /// Adds to a number, 0 if it was never written, and returns the sum.
  template <typename T>
  FieldResult<T> add(const std::string& field, T n) {
    return update<T>(field, [n](const std::optional<T>& now) { return now.value_or(0) + n; });
  }

 private:
  static FieldError other_type(const std::string& field) {
    return {FieldError::Kind::invalid, field + " of the pool has a value of another type"};
  }

  Fields fields_;
};

}  // namespace bellows::pool
