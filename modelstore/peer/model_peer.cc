// SPDX-License-Identifier: Apache-2.0
// bellows-model-peer: gives models to other nodes for bellows-modeld, which starts it. README.md
// has what they say to each other, on this process's standard input.
//
// usage: bellows-model-peer NODE SLOW-MS [MUNGE-SOCKET]
#include <fmt/core.h>
#include <poll.h>

#include <string>

#include "common/text.h"
#include "modelstore/digest/tree_digest.h"
#include "modelstore/helper/helper_main.h"
#include "modelstore/loader/confine.h"
#include "modelstore/peer/peer_desk.h"

namespace bellows {
namespace {

constexpr int kPatienceMs = 10000;

/// What the daemon listens by, and keeps listening by while another process takes this one's place.
Result<Fd> take_listener() {
  pollfd daemon = {kDaemon, POLLIN, 0};
  PeerMessage message;
  plain::Handle passed;
  if (poll(&daemon, 1, kPatienceMs) == 1)
    if (auto received = receive_message(kDaemon, &message, &passed); !received)
      return received.error();
  if (message.op == PeerOp::listen && passed.get() >= 0) return Fd(passed.release());
  return Error{ErrorKind::internal, "bellows-modeld gave bellows-model-peer no socket"};
}

Status serve(int argc, char** argv) {
  const std::uint64_t slow = argc > 2 ? parse_uint(argv[2]).value_or(0) : 0;
  if (slow == 0)
    return Error{ErrorKind::invalid, "bellows-model-peer got options that make no sense"};
  if (auto hasher = TreeHasher::make(); !hasher) return hasher.error();
  auto listener = take_listener();
  if (!listener) return listener.error();
  // Anybody on the network can speak to it.
  if (auto given_up = give_up(GivenUp::programs); !given_up) return given_up;
  if (auto dropped = drop_capabilities(); !dropped) return dropped;
  PeerDesk(std::move(*listener), kDaemon, argv[1], Munge(argc > 3 ? argv[3] : ""),
           std::chrono::milliseconds(slow))
      .run();
  return {};
}

void report(const Error& error) {
  PeerMessage message;
  message.op = PeerOp::notice;
  message.set_text(error.text);
  (void)send_message(kDaemon, message);
}

}  // namespace
}  // namespace bellows

int main(int argc, char** argv) {
  return bellows::helper_main(
      "bellows-model-peer", [&] { return bellows::serve(argc, argv); }, bellows::report);
}
