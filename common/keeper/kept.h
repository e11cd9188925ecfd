// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/keeper/keeper_wire.h"
#include "common/plain/handle.h"

namespace bellows {

/// Descriptors, each with a record that only their owner understands, for a process that may be
/// killed and started again. It parses nothing.
class KeptDescriptors {
 public:
  static constexpr std::size_t kMost = 65536;

  /// Takes one message from a socket of the owner's, and answers it. False: the owner is gone, or
  /// speaks otherwise.
  bool serve(int socket);

 private:
  struct Kept {
    KeeperMessage message;
    plain::Handle fd;
  };

  bool put(const KeeperMessage& message, plain::Handle& fd);
  bool give_all(int socket);

  std::map<std::uint64_t, Kept> kept_;
};

}  // namespace bellows
