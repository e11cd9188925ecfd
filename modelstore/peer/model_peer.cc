// SPDX-License-Identifier: Apache-2.0
// bellows-model-peer: gives models to other nodes for bellows-modeld, which starts it. README.md
// has what they say to each other, on this process's standard input.
//
// usage: bellows-model-peer NODE PORT SLOW-MS [MUNGE-SOCKET]
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <exception>
#include <string>

#include "common/text.h"
#include "modelstore/digest/tree_digest.h"
#include "modelstore/loader/confine.h"
#include "modelstore/peer/peer_desk.h"

namespace bellows {
namespace {

constexpr int kDaemon = 0;
constexpr int kBacklog = 1024;

/// All of this machine's addresses; of IPv4 only where there is no IPv6.
Result<Fd> listen_on(std::uint16_t port) {
  const Error failed{ErrorKind::unavailable,
                     fmt::format("cannot listen on port {}: does something else?", port)};
  Fd listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool is_six = static_cast<bool>(listener);
  if (!is_six) listener.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1, no = 0;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  if (is_six) setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  const int bound = is_six ? bind(listener.get(), reinterpret_cast<sockaddr*>(&six), sizeof six)
                           : bind(listener.get(), reinterpret_cast<sockaddr*>(&four), sizeof four);
  if (bound < 0 || listen(listener.get(), kBacklog) < 0) return failed;
  return listener;
}

Status serve(int argc, char** argv) {
  const std::uint64_t port = argc > 3 ? parse_uint(argv[2]).value_or(0) : 0;
  const std::uint64_t slow = argc > 3 ? parse_uint(argv[3]).value_or(0) : 0;
  if (port == 0 || port > UINT16_MAX || slow == 0)
    return Error{ErrorKind::invalid, "bellows-model-peer got options that make no sense"};
  if (auto hasher = TreeHasher::make(); !hasher) return hasher.error();
  auto listener = listen_on(static_cast<std::uint16_t>(port));
  if (!listener) return listener.error();
  // Anybody on the network can speak to it.
  if (auto given_up = give_up(GivenUp::programs); !given_up) return given_up;
  if (auto dropped = drop_capabilities(); !dropped) return dropped;
  PeerDesk(std::move(*listener), kDaemon, argv[1], Munge(argc > 4 ? argv[4] : ""),
           std::chrono::milliseconds(slow))
      .run();
  return {};
}

int report(const std::string& text) {
  PeerMessage message;
  message.op = PeerOp::notice;
  message.set_text(text);
  (void)send_message(kDaemon, message);
  return 1;
}

}  // namespace
}  // namespace bellows

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const bellows::Status served = bellows::serve(argc, argv);
    return served ? 0 : bellows::report(served.error().text);
  } catch (const std::exception& error) {
    return bellows::report(std::string("bellows-model-peer ran out of something: ") + error.what());
  }
}
