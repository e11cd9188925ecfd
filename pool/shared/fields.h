// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "pool/shared/gateway.h"

namespace bellows::pool {

/// Why something was not done, or may have been.
struct FieldError {
  enum class Kind {
    unavailable,   ///< nobody answers; certainly not done
    may_have_run,  ///< the answer was lost: done once, or never, or still to be done
    invalid,       ///< an argument is wrong, or the field has a value that this can't be done to
    full,          ///< there is no room; not done
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

/// What fields hold, in MessagePack: what packed() of shared.h makes. Of a field that was never
/// written: nil.
using Packed = std::string;

/// Fields of one name in a pool, as python/bellows/pool/shared.py has them, and under the same
/// keys. Every change is a transaction that holds only if the field was not changed since it was
/// read, with an id of its own: it may be sent again, and the field's history says whether it was
/// done. For one thread at a time.
class Fields {
 public:
  static constexpr std::size_t kMostBytes = 1 << 20;
  /// Of a value: what to write instead, or nothing to leave it.
  using Change = std::function<std::optional<Packed>(const Packed&)>;

  /// `pool`: its directory. Each call takes at most `timeout`.
  Fields(std::string pool, std::string name, std::chrono::milliseconds timeout);

  FieldResult<Packed> get(const std::string& field);
  /// Whether `change`, which may be called several times, wrote something.
  FieldResult<bool> change(const std::string& field, const Change& change);
  /// Writes it whatever it was.
  FieldResult<bool> set(const std::string& field, const Packed& value);

 private:
  using Clock = std::chrono::steady_clock;
  struct Version {
    std::int64_t revision = 0;  // of its last change; 0: never written
    std::int64_t count = 0;     // of changes
    std::string id;
    Packed value;
  };
  struct Settled {
    std::string text;
    bool lost = false;  // an answer before this one
  };

  std::string key(const std::string& field) const;
  std::optional<std::string> endpoint();
  void avoid();
  GatewayReply ask_once(const std::string& path, const std::string& body, Clock::time_point until);
  FieldResult<std::string> ask(const std::string& path, const std::string& body,
                               Clock::time_point until);
  FieldResult<Settled> settle(const std::string& path, const std::string& body,
                              Clock::time_point until);
  FieldResult<Version> read(const std::string& field, Clock::time_point until,
                            std::int64_t revision = 0);
  FieldResult<bool> change_from(const std::string& field, Version now, const Change& change,
                                Clock::time_point until);
  FieldResult<std::pair<bool, Version>> swap(const std::string& field, const Version& base,
                                             const Packed& value, Clock::time_point until);
  FieldResult<Version> successor(const std::string& field, const Version& base, Version now,
                                 Clock::time_point until);
  static std::optional<Version> version_in(const std::string& pairs);

  const std::string pool_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  Gateway gateway_;
  std::vector<std::string> endpoints_;
  std::size_t first_ = 0;
  std::map<std::string, Version> known_;
};

}  // namespace bellows::pool
