// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/bellows.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "checkpoint/client_start.h"

using bellows::client::ErrorText;
using bellows::client::Handle;
using bellows::client::Mapping;
using bellows::client::Message;
using bellows::client::Place;
namespace client = bellows::client;
namespace wire = bellows::wire;

namespace {

// The agent drops an undecided gate after a minute; this is for an agent that is stopped or hangs.
constexpr int kGateLimitMs = 120000;
constexpr int kGateCheckMs = 100;

struct Registered {
  wire::Array array;
  char name[wire::kMostName + 1];
  std::uint32_t name_length;
  void* data;
};

}  // namespace

struct bellows_handle {
  ErrorText error;
  Place place;
  Handle socket;
  Mapping control;
  Mapping buffer;
  Message answer;
  Registered* arrays = nullptr;
  std::size_t count = 0;
  std::size_t capacity = 0;
  bool layout_sent = false;

  bellows_handle() = default;
  bellows_handle(const bellows_handle&) = delete;
  bellows_handle& operator=(const bellows_handle&) = delete;
  ~bellows_handle() { free(arrays); }

  wire::Control* page() { return reinterpret_cast<wire::Control*>(control.data()); }
};

namespace {

int lost(bellows_t* b, int failure) {
  b->socket.reset(-1);
  return b->error.set(
      BELLOWS_ERR_AGENT,
      "rank %d lost the checkpoint agent at %s (%s); steps committed before are safe",
      b->place.rank, b->place.socket, failure == EPIPE ? "it has gone" : strerror(failure));
}

// The fields of a handle may be used only after this.
int check_connected(bellows_t* b) {
  if (!b) return BELLOWS_ERR_INVALID;
  b->error.text[0] = 0;
  if (b->socket.get() >= 0) return BELLOWS_OK;
  return b->error.set(BELLOWS_ERR_AGENT, "rank %d has no checkpoint agent", b->place.rank);
}

int send(bellows_t* b, wire::Op op, std::uint64_t step, std::uint64_t value) {
  wire::Head head;
  head.op = op;
  head.step = step;
  head.value = value;
  int failure = client::send_message(b->socket.get(), head, nullptr, 0, nullptr, 0);
  return failure ? lost(b, failure) : BELLOWS_OK;
}

// Waits for `op`; a failed message becomes this call's error.
int receive(bellows_t* b, wire::Op op) {
  int failure = client::receive_message(b->socket.get(), &b->answer);
  if (failure) return lost(b, failure);
  if (b->answer.head.op == wire::Op::failed) {
    return b->error.set(b->answer.head.code < 0 ? b->answer.head.code : BELLOWS_ERR_AGENT, "%s",
                        b->answer.body);
  }
  return b->answer.head.op == op ? BELLOWS_OK : lost(b, EPROTO);
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
    int failure = client::send_message(b->socket.get(), head, &r.array, sizeof r.array, r.name,
                                       r.name_length);
    if (failure) rc = lost(b, failure);
  }
  b->layout_sent = rc == BELLOWS_OK;
  return rc;
}

enum class Copy { into_buffer, from_buffer };

/// Bytes of an array in the caller's memory.
struct Span {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// What of an array takes part in a copy; false: nothing.
bool find_span(const bellows_t* b, const Registered& r, Copy direction, Span* out) {
  const wire::Array& a = r.array;
  std::uint64_t first = 0, count = a.count;
  if (direction == Copy::into_buffer &&
      !wire::stored_part(a, r.name, r.name_length, b->place.rank, b->place.world, &first, &count)) {
    return false;
  }
  if (a.layout == wire::kSharded) first = 0;
  // Registered arrays are known to fit.
  return wire::part_bytes(a, first, &out->begin) && wire::part_bytes(a, count, &out->bytes);
}

int copy_arrays(bellows_t* b, Mapping& buffer, Copy direction) {
  wire::Placer placer;
  for (std::size_t i = 0; i < b->count; ++i) {
    const Registered& r = b->arrays[i];
    Span span;
    if (!find_span(b, r, direction, &span)) continue;
    std::uint64_t offset = 0;
    if (!placer.place(span.bytes, &offset) || offset + span.bytes > buffer.size()) {
      return lost(b, EPROTO);
    }
    if (span.bytes == 0) continue;
    auto* mine = static_cast<unsigned char*>(r.data) + span.begin;
    if (direction == Copy::into_buffer) {
      memcpy(buffer.data() + offset, mine, span.bytes);
    } else {
      memcpy(mine, buffer.data() + offset, span.bytes);
    }
  }
  return BELLOWS_OK;
}

bool name_is_good(const char* name, std::size_t length) {
  if (length == 0 || length > wire::kMostName || name[0] == '/' || name[length - 1] == '/') {
    return false;
  }
  for (std::size_t i = 0; i < length; ++i) {
    char c = name[i];
    if (c < '!' || c > '~') return false;
    if (c == '/' && name[i + 1] == '/') return false;
    bool begins = i == 0 || name[i - 1] == '/';
    if (begins && c == '.') return false;
  }
  return true;
}

int check_array(bellows_t* b, const char* name, const wire::Array& a, const void* data) {
  if (wire::element_bytes(a.dtype) == 0) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: %u is not a BELLOWS_ data type", name,
                        a.dtype);
  }
  if (a.layout == BELLOWS_SHARDED && a.ndims == 0) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: a sharded array has a first axis", name);
  }
  std::uint64_t end = 0, bytes = 0;
  if (a.layout == BELLOWS_SHARDED &&
      (__builtin_add_overflow(a.first, a.count, &end) || end > a.shape[0])) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: %llu rows from row %llu pass its %llu rows",
                        name, (unsigned long long)a.count, (unsigned long long)a.first,
                        (unsigned long long)a.shape[0]);
  }
  if (!wire::part_bytes(a, wire::axis_extent(a), &bytes) || !wire::held_bytes(a, &bytes)) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: its shape has too many bytes", name);
  }
  if (!data && bytes > 0) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: data is NULL but %llu bytes are expected",
                        name, (unsigned long long)bytes);
  }
  return BELLOWS_OK;
}

// The slot of `name`, or a new one; nullptr without memory.
Registered* slot(bellows_t* b, const char* name, std::size_t length) {
  for (std::size_t i = 0; i < b->count; ++i) {
    if (strcmp(b->arrays[i].name, name) == 0) return &b->arrays[i];
  }
  if (b->count == b->capacity) {
    std::size_t capacity = b->capacity ? b->capacity * 2 : 16;
    void* grown = realloc(b->arrays, capacity * sizeof(Registered));
    if (!grown) return nullptr;
    b->arrays = static_cast<Registered*>(grown);
    b->capacity = capacity;
  }
  Registered* r = &b->arrays[b->count++];
  memcpy(r->name, name, length + 1);
  r->name_length = static_cast<std::uint32_t>(length);
  return r;
}

// Sleeps until the agent changed something since `seen`, at most kGateCheckMs.
void wait_change(wire::Control* page, std::uint32_t seen) {
  timespec limit = {0, kGateCheckMs * 1000000L};
  syscall(SYS_futex, &page->wake, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

int wait_at_gate(bellows_t* b, std::uint64_t step) {
  wire::Control* page = b->page();
  timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (;;) {
    std::uint32_t seen = page->wake.load();
    // Stop is stored before the gate is ever taken away, so it is looked at last.
    bool gated = step >= page->gate.load();
    if (step >= page->stop.load()) return 1;
    if (!gated) return 0;
    if (client::hung_up(b->socket.get())) return lost(b, EPIPE);
    wait_change(page, seen);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - begin.tv_sec) * 1000 > kGateLimitMs) return 0;
  }
}

}  // namespace

extern "C" {

int bellows_init(const struct bellows_config* config, bellows_t** out) {
  if (!out) return BELLOWS_ERR_INVALID;
  *out = nullptr;
  bellows_config known = BELLOWS_CONFIG_INIT;
  if (config) {
    memcpy(&known, config, config->size < sizeof known ? config->size : sizeof known);
  }
  void* memory = malloc(sizeof(bellows_t));
  if (!memory) return BELLOWS_ERR_MEMORY;
  bellows_t* b = *out = new (memory) bellows_handle;
  if (config && config->size < sizeof(size_t)) {
    return b->error.set(BELLOWS_ERR_INVALID, "config.size is %zu: begin with BELLOWS_CONFIG_INIT",
                        config->size);
  }
  int rc = client::find_place(known, &b->place, &b->error);
  if (rc != BELLOWS_OK) return rc;
  rc = client::join_agent(&b->place, &b->socket, &b->control, &b->error);
  if (rc != BELLOWS_OK) b->socket.reset(-1);
  return rc;
}

int bellows_register(bellows_t* b, const char* name, int dtype, int ndims,
                     const uint64_t* global_shape, int layout, uint64_t first_row, uint64_t rows,
                     void* data) {
  if (!b) return BELLOWS_ERR_INVALID;
  b->error.text[0] = 0;
  std::size_t length = name ? strnlen(name, wire::kMostName + 1) : 0;
  if (!name || !name_is_good(name, length)) {
    return b->error.set(
        BELLOWS_ERR_INVALID,
        "an array's name is 1 to %u printable characters without spaces, with / only "
        "between parts and no part that begins with a dot; this is not: %.64s",
        wire::kMostName, name ? name : "(null)");
  }
  if (ndims < 0 || ndims > BELLOWS_MAX_DIMS || (ndims > 0 && !global_shape)) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: %d dimensions, 0 to %d are possible", name,
                        ndims, BELLOWS_MAX_DIMS);
  }
  if (layout != BELLOWS_REPLICATED && layout != BELLOWS_SHARDED) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: %d is not a layout", name, layout);
  }
  wire::Array a;
  a.dtype = static_cast<std::uint32_t>(dtype);
  a.ndims = static_cast<std::uint32_t>(ndims);
  a.layout = static_cast<std::uint32_t>(layout);
  for (int i = 0; i < ndims; ++i) a.shape[i] = global_shape[i];
  a.first = layout == BELLOWS_SHARDED ? first_row : 0;
  a.count = layout == BELLOWS_SHARDED ? rows : ndims > 0 ? global_shape[0] : 1;
  int rc = check_array(b, name, a, data);
  if (rc != BELLOWS_OK) return rc;
  Registered* r = b->count < wire::kMostArrays ? slot(b, name, length) : nullptr;
  if (!r) return b->error.set(BELLOWS_ERR_MEMORY, "array %s: no memory for one more array", name);
  r->array = a;
  r->data = data;
  b->layout_sent = false;
  return BELLOWS_OK;
}

int bellows_restore(bellows_t* b, uint64_t* step) {
  int rc = check_connected(b);
  if (rc == BELLOWS_OK && !step) {
    rc = b->error.set(BELLOWS_ERR_INVALID, "bellows_restore needs a place for the step");
  }
  if (rc == BELLOWS_OK) rc = send_layout(b);
  if (rc == BELLOWS_OK) rc = call(b, wire::Op::restore, 0, 0, wire::Op::restored);
  if (rc != BELLOWS_OK) return rc;
  if (b->answer.head.value == 0) return BELLOWS_NO_CHECKPOINT;
  Mapping data;
  if (b->count > 0 &&
      !data.map(b->answer.fd.get(), lseek(b->answer.fd.get(), 0, SEEK_END), PROT_READ)) {
    return b->error.set(BELLOWS_ERR_MEMORY, "cannot map the restored arrays: %s", strerror(errno));
  }
  rc = copy_arrays(b, data, Copy::from_buffer);
  if (rc == BELLOWS_OK) *step = b->answer.head.step;
  return rc;
}

int bellows_save(bellows_t* b, uint64_t step) {
  int rc = check_connected(b);
  if (rc == BELLOWS_OK && step == wire::kNoStep) {
    rc = b->error.set(BELLOWS_ERR_INVALID, "a step is smaller than 2^64 - 1");
  }
  if (rc == BELLOWS_OK) rc = send_layout(b);
  if (rc == BELLOWS_OK) rc = call(b, wire::Op::save_begin, step, 0, wire::Op::buffer);
  if (rc != BELLOWS_OK) return rc;
  if (b->answer.fd.get() >= 0 &&
      !b->buffer.map(b->answer.fd.get(), b->answer.head.value, PROT_READ | PROT_WRITE)) {
    // Without its part the other ranks' step can't be committed: leaving tells them so.
    int failure = errno;
    b->socket.reset(-1);
    return b->error.set(BELLOWS_ERR_MEMORY, "cannot map the snapshot buffer: %s",
                        strerror(failure));
  }
  rc = copy_arrays(b, b->buffer, Copy::into_buffer);
  return rc == BELLOWS_OK ? call(b, wire::Op::save_ready, step, 0, wire::Op::saved) : rc;
}

int bellows_should_stop(bellows_t* b, uint64_t step) {
  if (!b || b->socket.get() < 0) return check_connected(b);
  wire::Control* page = b->page();
  page->step.store(step);
  if (step < page->gate.load()) return 0;
  b->error.text[0] = 0;
  return wait_at_gate(b, step);
}

int bellows_finalize(bellows_t* b, int finished) {
  if (!b) return BELLOWS_OK;
  int rc = BELLOWS_OK;
  if (b->socket.get() >= 0) rc = call(b, wire::Op::bye, 0, finished != 0, wire::Op::goodbye);
  b->~bellows_handle();
  free(b);
  return rc;
}

int bellows_rank(const bellows_t* b) { return b ? b->place.rank : BELLOWS_ERR_INVALID; }

int bellows_world(const bellows_t* b) { return b ? b->place.world : BELLOWS_ERR_INVALID; }

const char* bellows_error(const bellows_t* b) { return b ? b->error.text : ""; }

const char* bellows_strerror(int code) {
  switch (code) {
    case BELLOWS_OK:
      return "success";
    case BELLOWS_NO_CHECKPOINT:
      return "there is no checkpoint yet";
    case BELLOWS_ERR_INVALID:
      return "an argument is wrong, or the ranks disagree";
    case BELLOWS_ERR_MISMATCH:
      return "the stored array has another type or shape";
    case BELLOWS_ERR_AGENT:
      return "the checkpoint agent cannot be started or has gone";
    case BELLOWS_ERR_IO:
      return "reading or writing failed";
    case BELLOWS_ERR_CORRUPT:
      return "stored data does not match its digest";
    case BELLOWS_ERR_BUSY:
      return "another program holds the checkpoint directory or this rank";
    case BELLOWS_ERR_FENCED:
      return "a newer attempt owns the checkpoint directory";
    case BELLOWS_ERR_MEMORY:
      return "out of memory";
    default:
      return "unknown result";
  }
}

const char* bellows_version(void) { return BELLOWS_VERSION; }

}  // extern "C"
