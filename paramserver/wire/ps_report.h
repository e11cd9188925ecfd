// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <optional>

#include "common/plain/packet.h"
#include "paramserver/wire/ps_wire.h"

namespace bellows::ps {

/// How the training of the bellows-ps at this socket goes; nothing if it doesn't answer. It waits
/// at most so long to be let in, and as long again for the answer.
inline std::optional<PsReport> ask_for_report(const char* socket, int wait_ms) {
  plain::Handle connection;
  PsMessage message;
  message.word = PsWord::report;
  const iovec part = {&message, sizeof message};
  std::size_t got = 0;
  if (plain::connect_to(socket, &connection, wait_ms) != 0 ||
      plain::send_packet(connection.get(), &part, 1, -1, MSG_DONTWAIT) != 0)
    return std::nullopt;
  pollfd answer = {connection.get(), POLLIN, 0};
  if (poll(&answer, 1, wait_ms) != 1 ||
      plain::receive_packet(connection.get(), &part, 1, &got, nullptr, MSG_DONTWAIT) != 0 ||
      !message.is_sound(got) || message.word != PsWord::report)
    return std::nullopt;
  return message.report;
}

}  // namespace bellows::ps
