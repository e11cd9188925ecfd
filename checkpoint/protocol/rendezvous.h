// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Where rank 0 of an attempt shall listen for the others. A value.
struct Rendezvous {
  std::string address;
  std::uint16_t port = 0;

  bool operator==(const Rendezvous&) const = default;
};

/// A TCP port of this node that nobody else gets while this lives, but for a program that sets
/// SO_REUSEADDR, as PyTorch's store does: it can listen there. A resource.
class ReservedPort {
 public:
  /// unavailable: every port that was tried is in use.
  static Result<ReservedPort> take();
  std::uint16_t port() const { return port_; }

 private:
  ReservedPort(Fd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}
  Fd fd_;
  std::uint16_t port_;
};

/// This node's address as the step's srun reached it, which the other nodes can reach too; the name
/// of the node, where Slurm did not say.
std::string own_address(const std::string& node);

}  // namespace bellows
