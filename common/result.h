// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace bellows {

/// The closed set of things that can go wrong. Callers branch on the kind and show the text.
enum class ErrorKind {
  invalid,      ///< the caller's or user's input is wrong
  not_found,    ///< what was asked for does not exist
  denied,       ///< a rule or a permission forbids it
  unavailable,  ///< something outside (slurmctld, a file system) does not answer; trying again may
                ///< help
  corrupt,      ///< stored data does not match its digest or format
  busy,         ///< another owner holds it
  io,           ///< a system call failed
  internal,     ///< a broken invariant of our own
};

/// What was wrong, where, and what to do, in one sentence for a person.
struct Error {
  ErrorKind kind;
  std::string text;
};

/// Success or an Error. A value type; never throws.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error)
      : error_(std::move(error)) {}  // NOLINT: implicit so that `return Error{...}` reads well

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  /// Only when !ok().
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

/// A T or an Error. A value type; reading the value of a failed Result is a programming error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : data_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : data_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return data_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() & { return std::get<0>(data_); }
  const T& operator*() const& { return std::get<0>(data_); }
  T&& operator*() && { return std::get<0>(std::move(data_)); }
  T* operator->() { return &std::get<0>(data_); }
  const T* operator->() const { return &std::get<0>(data_); }
  const Error& error() const { return std::get<1>(data_); }

 private:
  std::variant<T, Error> data_;
};

}  // namespace bellows
