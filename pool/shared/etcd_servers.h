// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pool/shared/gateway.h"

namespace bellows::pool {

/// Why something was not done, or may have been.
struct FieldError {
  enum class Kind {
    unavailable,   ///< nobody answers; certainly not done
    may_have_run,  ///< the answer was lost: done once, or never, or still to be done
    invalid,       ///< an argument is wrong, or the field has a value that this can't be done to
    full,          ///< there is no room; not done
    lock_lost,     ///< the lock that it needs is not held; not done
  };
  Kind kind = Kind::unavailable;
  std::string text;
};

/// A T or a FieldError. A value type.
template <typename T>
class [[nodiscard]] FieldResult {
 public:
  FieldResult(T value) : value_(std::move(value)) {}           // NOLINT: implicit
  FieldResult(FieldError error) : error_(std::move(error)) {}  // NOLINT: implicit

  explicit operator bool() const { return value_.has_value(); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  const FieldError& error() const { return error_; }

 private:
  std::optional<T> value_;
  FieldError error_;
};

/// The servers of a pool's etcd as one: asks another when one does not answer. For one thread at a
/// time.
class EtcdServers {
 public:
  using Clock = std::chrono::steady_clock;
  struct Settled {
    std::string text;
    bool lost = false;  ///< an answer before this one
  };

  /// `pool`: its directory, whose shared.json names them.
  explicit EtcdServers(std::string pool) : pool_(std::move(pool)), gateway_(pool_) {}

  /// One request to one server, until then at the latest.
  GatewayReply ask_once(const std::string& path, const std::string& body, Clock::time_point until);
  /// A request that may be repeated without harm.
  FieldResult<std::string> ask(const std::string& path, const std::string& body,
                               Clock::time_point until);
  /// A transaction that takes effect once however often it is sent. may_have_run: it is not known
  /// whether it did.
  FieldResult<Settled> settle(const std::string& path, const std::string& body,
                              Clock::time_point until);

 private:
  std::optional<std::string> endpoint();
  void avoid();

  const std::string pool_;
  Gateway gateway_;
  std::vector<std::string> endpoints_;
  std::size_t first_ = 0;
};

/// In base64, as the gateway has keys and values.
std::string encode(std::string_view data);
std::optional<std::string> decode(const std::string& text);

}  // namespace bellows::pool
