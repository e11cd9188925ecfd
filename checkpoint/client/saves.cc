// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "checkpoint/client/arrays.h"
#include "checkpoint/client/handle.h"

namespace bellows::client {

bool Saves::flies(std::uint64_t step) const {
  for (std::size_t i = 0; i < count; ++i) {
    if (in_flight[i] == step) return true;
  }
  return false;
}

void Saves::land(std::uint64_t step) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (in_flight[i] != step) in_flight[kept++] = in_flight[i];
  }
  count = kept;
}

namespace {

bool is_failed_save(const wire::Head& head) {
  return head.op == wire::Op::failed && head.value == wire::Failure::save_of_step;
}

// True when the message was of a save in flight, whoever waits for it.
bool take_outcome(bellows_t* b) {
  Saves& saves = b->saves;
  const wire::Head& head = b->answer.head;
  if (head.op != wire::Op::saved && !is_failed_save(head)) return false;
  if (!saves.flies(head.step)) return false;
  saves.land(head.step);
  if (head.op == wire::Op::saved) {
    saves.newest_saved = saves.newest_known = head.step;
    return true;
  }
  if (saves.failed == Saves::kMost) return true;
  SaveFailure& failure = saves.failures[saves.failed++];
  failure.step = head.step;
  failure.code = head.code < 0 ? head.code : BELLOWS_ERR_AGENT;
  const char* why = b->answer.why();
  const std::size_t length = strnlen(why, sizeof failure.text - 1);
  memcpy(failure.text, why, length);
  failure.text[length] = 0;
  return true;
}

int take_message(bellows_t* b) {
  int failure = receive_message(b->socket.get(), &b->answer);
  return failure ? lost(b, failure) : BELLOWS_OK;
}

// Steps ascend; one that is stored may be stored again, as after a change of the arrays.
int check_step(bellows_t* b, std::uint64_t step, bool waits) {
  const Saves& saves = b->saves;
  if (step == wire::kNoStep) {
    return b->error.set(BELLOWS_ERR_INVALID, "a step must be smaller than 2^64 - 1");
  }
  std::uint64_t before = saves.newest_saved;
  bool again = waits;
  if (saves.count > 0) {
    before = saves.in_flight[saves.count - 1];
    again = false;
  }
  if (before == wire::kNoStep || step > before || (again && step == before)) return BELLOWS_OK;
  return b->error.set(BELLOWS_ERR_INVALID,
                      "step %llu cannot be saved after step %llu: the steps of a run must ascend",
                      (unsigned long long)step, (unsigned long long)before);
}

// The buffer that the agent has named; its descriptor comes along when it is a new one.
int take_buffer(bellows_t* b, std::uint64_t step, Buffer** out) {
  const wire::Head& head = b->answer.head;
  if (head.op != wire::Op::buffer || head.step != step || head.code < 0 ||
      head.code >= static_cast<std::int32_t>(wire::kBuffers)) {
    return lost(b, EPROTO);
  }
  Buffer& buffer = b->buffers[head.code];
  *out = &buffer;
  if (b->answer.fd.get() < 0) {
    if (buffer.memory.size() >= head.value) return BELLOWS_OK;
    return b->error.set(BELLOWS_ERR_MEMORY, "the snapshot buffer is not mapped");
  }
  b->unpin(&buffer);
  if (buffer.memory.map(b->answer.fd.get(), head.value, PROT_READ | PROT_WRITE)) return BELLOWS_OK;
  return b->error.set(BELLOWS_ERR_MEMORY, "cannot map the snapshot buffer: %s", strerror(errno));
}

// Until the agent names a buffer or says that the step has failed.
int await_buffer(bellows_t* b, std::uint64_t step, Buffer** out) {
  while (b->saves.flies(step)) {
    int rc = take_message(b);
    if (rc != BELLOWS_OK) return rc;
    if (!take_outcome(b)) return take_buffer(b, step, out);
  }
  return BELLOWS_OK;
}

// This rank can't give its part: the step must fail for the others too. Keeps the call's sentence.
int withdraw(bellows_t* b, std::uint64_t step, int code) {
  const ErrorText why = b->error;
  int rc = send(b, wire::Op::save_ready, step, wire::Ready::could_not_copy);
  if (rc == BELLOWS_OK) rc = await_save(b, step);
  if (rc != BELLOWS_OK) return rc;
  Saves& saves = b->saves;
  if (saves.failed > 0 && saves.failures[saves.failed - 1].step == step) --saves.failed;
  b->error = why;
  return code;
}

}  // namespace

int receive(bellows_t* b, wire::Op op) {
  do {
    int rc = take_message(b);
    if (rc != BELLOWS_OK) return rc;
  } while (take_outcome(b));
  const wire::Head& head = b->answer.head;
  if (head.op == wire::Op::failed) {
    return b->error.set(head.code < 0 ? head.code : BELLOWS_ERR_AGENT, "%s", b->answer.why());
  }
  return head.op == op ? BELLOWS_OK : lost(b, EPROTO);
}

int reserve_buffer(bellows_t* b) {
  for (const Buffer& buffer : b->buffers) {
    if (buffer.memory.size() > 0) return BELLOWS_OK;
  }
  if (buffer_bytes(b) == 0) return BELLOWS_OK;
  return send(b, wire::Op::reserve, 0, 0);
}

int begin_save(bellows_t* b, std::uint64_t step, bool waits) {
  // An agent has buffers for fewer.
  if (b->saves.count == Saves::kMost) return lost(b, EPROTO);
  int rc = check_step(b, step, waits);
  if (rc == BELLOWS_OK) rc = send_layout(b);
  if (rc == BELLOWS_OK) rc = send(b, wire::Op::save_begin, step, 0);
  if (rc != BELLOWS_OK) return rc;
  b->saves.in_flight[b->saves.count++] = step;
  Buffer* buffer = nullptr;
  rc = await_buffer(b, step, &buffer);
  if (rc == BELLOWS_OK && !buffer) return rc;
  if (rc == BELLOWS_OK) rc = save_arrays(b, buffer);
  if (rc == BELLOWS_OK) {
    return send(b, wire::Op::save_ready, step, waits ? wire::Ready::waits : wire::Ready::goes_on);
  }
  return b->socket.get() < 0 ? rc : withdraw(b, step, rc);
}

int await_save(bellows_t* b, std::uint64_t step) {
  while (b->saves.flies(step)) {
    int rc = take_message(b);
    if (rc != BELLOWS_OK) return rc;
    if (!take_outcome(b)) return lost(b, EPROTO);
  }
  return BELLOWS_OK;
}

int await_all(bellows_t* b) {
  int rc = BELLOWS_OK;
  while (rc == BELLOWS_OK && b->saves.count > 0) rc = await_save(b, b->saves.in_flight[0]);
  return rc;
}

int take_news(bellows_t* b) {
  pollfd p = {b->socket.get(), POLLIN, 0};
  while (b->saves.count > 0 && poll(&p, 1, 0) > 0) {
    int rc = take_message(b);
    if (rc != BELLOWS_OK) return rc;
    if (!take_outcome(b)) return lost(b, EPROTO);
  }
  return BELLOWS_OK;
}

int give_failure(bellows_t* b, std::uint64_t own) {
  Saves& saves = b->saves;
  if (saves.failed == 0) return BELLOWS_OK;
  const SaveFailure& oldest = saves.failures[0];
  const int code = oldest.code;
  if (oldest.step == own) {
    b->error.set(code, "%s", oldest.text);
  } else {
    b->error.set(code, "step %llu: %s", (unsigned long long)oldest.step, oldest.text);
    b->error.step = oldest.step;
  }
  --saves.failed;
  memmove(&saves.failures[0], &saves.failures[1], saves.failed * sizeof saves.failures[0]);
  return code;
}

}  // namespace bellows::client
