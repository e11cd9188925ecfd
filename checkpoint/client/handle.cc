// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/client/announce.h"

bellows_handle::~bellows_handle() {
  // A forked process can't use its parent's device.
  if (is_forked())
    cuda.forget();
  else
    for (bellows::client::Buffer& buffer : buffers) unpin(&buffer);
  free(arrays);
}

void bellows_handle::unpin(bellows::client::Buffer* buffer) {
  if (buffer->pinned) cuda.release_host(buffer->memory.data());
  buffer->pinned = buffer->tried = false;
}

namespace bellows::client {

int lost(bellows_t* b, int failure) {
  forget_agent(b->page());
  b->socket.reset(-1);
  return b->error.set(
      BELLOWS_ERR_AGENT,
      "rank %d lost the checkpoint agent at %s (%s); steps committed before are safe",
      b->place.rank, b->place.socket, failure == EPIPE ? "it has ended" : strerror(failure));
}

int check_connected(bellows_t* b) {
  if (!b) return BELLOWS_ERR_INVALID;
  b->error.clear();
  if (b->is_forked()) {
    return b->error.set(BELLOWS_ERR_INVALID,
                        "process %d is a child of rank %d, whose agent serves that process alone",
                        static_cast<int>(getpid()), b->place.rank);
  }
  if (b->socket.get() >= 0) return BELLOWS_OK;
  return b->error.set(BELLOWS_ERR_AGENT, "rank %d has no checkpoint agent", b->place.rank);
}

int send(bellows_t* b, wire::Op op, std::uint64_t step, std::uint64_t value) {
  wire::Head head;
  head.op = op;
  head.step = step;
  head.value = value;
  int failure = send_message(b->socket.get(), head, nullptr, 0, nullptr, 0);
  return failure ? lost(b, failure) : BELLOWS_OK;
}

int call(bellows_t* b, wire::Op ask, std::uint64_t step, std::uint64_t value, wire::Op answer) {
  int rc = send(b, ask, step, value);
  return rc == BELLOWS_OK ? receive(b, answer) : rc;
}

int send_layout(bellows_t* b) {
  if (b->layout_sent) return BELLOWS_OK;
  int rc = send(b, wire::Op::layout, 0, b->count);
  for (std::size_t i = 0; rc == BELLOWS_OK && i < b->count; ++i) {
    const Registered& r = b->arrays[i];
    wire::Head head;
    head.op = wire::Op::array;
    int failure =
        send_message(b->socket.get(), head, &r.array, sizeof r.array, r.name, r.name_length);
    if (failure) rc = lost(b, failure);
  }
  b->layout_sent = rc == BELLOWS_OK;
  return rc;
}

}  // namespace bellows::client
