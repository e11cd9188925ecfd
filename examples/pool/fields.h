// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "pool/shared/shared.h"

namespace example {

/// Fields that the pool shares, for a member that answers several calls at once. What fails throws,
/// and so arrives at the caller, as it does from Python.
class Fields {
 public:
  explicit Fields(std::string name) : shared_(directory(), std::move(name)) {}

  template <typename T>
  std::optional<T> get(const std::string& field) {
    const std::lock_guard guard(mutex_);
    return checked(shared_.get<T>(field));
  }
  template <typename T, typename U>
  bool compare_and_set(const std::string& field, const T& from, const U& to) {
    const std::lock_guard guard(mutex_);
    return checked(shared_.compare_and_set(field, from, to));
  }
  template <typename T, typename F>
  T update(const std::string& field, const F& function) {
    const std::lock_guard guard(mutex_);
    return checked(shared_.update<T>(field, function));
  }

 private:
  static std::string directory() {
    const char* const pool = std::getenv("BELLOWS_POOL");
    return pool ? pool : "";
  }
  template <typename T>
  static T checked(bellows::pool::FieldResult<T> result) {
    if (!result) throw std::runtime_error(result.error().text);
    return std::move(*result);
  }

  std::mutex mutex_;
  bellows::pool::Shared shared_;
};

}  // namespace example
