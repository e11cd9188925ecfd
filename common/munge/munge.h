// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows {

/// A text that somebody sealed, and who that was. A value.
struct Unsealed {
  std::string text;
  uid_t uid = 0;
};

/// Seals texts with the cluster's key through munged: only the user whom it is meant for can open
/// a sealed text, once, and learns who sealed it. A value; any number of threads may use one.
class Munge {
 public:
  /// `socket`: munged's; empty: the usual one.
  explicit Munge(std::string socket) : socket_(std::move(socket)) {}

  /// unavailable: munged does not answer; invalid: the text is too long.
  Result<std::string> seal(std::string_view text, uid_t reader, std::chrono::seconds life) const;
  /// unavailable: munged does not answer; denied: the credential is forged, too old, meant for
  /// somebody else, or was opened before.
  Result<Unsealed> open(const std::string& credential) const;

 private:
  std::string socket_;
};

/// munged's socket as the value of AuthInfo in slurm.conf names it; "": the usual one.
std::string munge_socket_of(std::string_view auth_info);

}  // namespace bellows
