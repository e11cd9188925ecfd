// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/wire/wire.h"
#include "common/plain/handle.h"
#include "common/plain/packet.h"

/// The library's own small tools: it may need libc only, so no std:: containers here.
namespace bellows::client {

using plain::connect_to;
using plain::Handle;
using plain::hung_up;
using plain::Mapping;

/// A message as it came: the body is followed by a zero byte.
struct Message {
  wire::Head head;
  char body[wire::kMostMessage + 1];
  Handle fd;

  /// The sentence of a failed message.
  const char* why() const { return body[0] ? body : "the agent does not say why"; }
};

/// 0 or an errno value.
int send_message(int fd, wire::Head head, const void* body, std::size_t length, const void* tail,
                 std::size_t tail_length);
/// 0, an errno value, EPIPE when the other side is gone, EPROTO when it speaks another protocol.
int receive_message(int fd, Message* message);

}  // namespace bellows::client
