// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/include/bellows.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "checkpoint/client/announce.h"
#include "checkpoint/client/arrays.h"
#include "checkpoint/client/handle.h"
#include "checkpoint/client/restore.h"
#include "checkpoint/client/start.h"

namespace client = bellows::client;
namespace wire = bellows::wire;

namespace {

// The agent drops an undecided gate after a minute; this is for an agent that is stopped or hangs.
constexpr int kGateLimitMs = 120000;
constexpr int kGateCheckMs = 100;

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
    if (client::hung_up(b->socket.get())) return client::lost(b, EPIPE);
    wait_change(page, seen);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - begin.tv_sec) * 1000 > kGateLimitMs) return 0;
  }
}

/// Whether there is an agent that reads what this process says of its training.
bool says(const bellows_t* b) { return b->socket.get() >= 0 && !b->is_forked(); }

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
  rc = client::join_agent(&b->place, &b->socket, &b->control, &b->memory, &b->error);
  if (rc != BELLOWS_OK) b->socket.reset(-1);
  if (rc == BELLOWS_OK && b->place.in_job)
    client::survive_announcements(b->page(), b->socket.get());
  return rc;
}

int bellows_register_array(bellows_t* b, const struct bellows_array* array) {
  if (!b) return BELLOWS_ERR_INVALID;
  b->error.clear();
  bellows_array known = BELLOWS_ARRAY_INIT;
  if (!array || array->size < sizeof(size_t)) {
    return b->error.set(BELLOWS_ERR_INVALID, "an array begins with BELLOWS_ARRAY_INIT");
  }
  memcpy(&known, array, array->size < sizeof known ? array->size : sizeof known);
  return client::register_array(b, known);
}

int bellows_register(bellows_t* b, const char* name, int dtype, int ndims,
                     const uint64_t* global_shape, int layout, uint64_t first_row, uint64_t rows,
                     void* data) {
  bellows_array array = BELLOWS_ARRAY_INIT;
  array.name = name;
  array.dtype = dtype;
  array.ndims = ndims;
  array.shape = global_shape;
  array.layout = layout;
  array.first = first_row;
  array.count = rows;
  array.data = data;
  return bellows_register_array(b, &array);
}

int bellows_unregister(bellows_t* b, const char* name) {
  if (!b) return BELLOWS_ERR_INVALID;
  b->error.clear();
  return client::unregister_array(b, name);
}

int bellows_memory(bellows_t* b, uint64_t* needed, uint64_t* available) {
  int rc = client::check_connected(b);
  if (rc != BELLOWS_OK) return rc;
  if (needed) *needed = client::buffer_bytes(b);
  if (available) *available = b->memory;
  return BELLOWS_OK;
}

int bellows_restore(bellows_t* b, uint64_t* step) {
  int rc = client::check_connected(b);
  if (rc == BELLOWS_OK && !step) {
    rc = b->error.set(BELLOWS_ERR_INVALID, "bellows_restore needs a pointer for the step");
  }
  // What is in flight is committed for all ranks or for none; before that, one could be given it
  // and another the step before.
  if (rc == BELLOWS_OK) rc = client::await_all(b);
  if (rc == BELLOWS_OK) rc = client::send_layout(b);
  if (rc == BELLOWS_OK) rc = client::restore(b, step);
  if (rc < 0) return rc;
  const int reserved = client::reserve_buffer(b);
  return reserved == BELLOWS_OK ? rc : reserved;
}

int bellows_save(bellows_t* b, uint64_t step) {
  int rc = client::check_connected(b);
  if (rc == BELLOWS_OK) rc = client::begin_save(b, step, true);
  if (rc == BELLOWS_OK) rc = client::await_save(b, step);
  return rc == BELLOWS_OK ? client::give_failure(b, step) : rc;
}

int bellows_save_async(bellows_t* b, uint64_t step) {
  int rc = client::check_connected(b);
  if (rc == BELLOWS_OK) rc = client::begin_save(b, step, false);
  if (rc == BELLOWS_OK) rc = client::take_news(b);
  return rc == BELLOWS_OK ? client::give_failure(b, wire::kNoStep) : rc;
}

int bellows_wait(bellows_t* b) {
  int rc = client::check_connected(b);
  if (rc == BELLOWS_OK) rc = client::await_all(b);
  return rc == BELLOWS_OK ? client::give_failure(b, wire::kNoStep) : rc;
}

int bellows_saved_step(bellows_t* b, uint64_t* step) {
  int rc = client::check_connected(b);
  if (rc == BELLOWS_OK && !step) {
    rc = b->error.set(BELLOWS_ERR_INVALID, "bellows_saved_step needs a pointer for the step");
  }
  if (rc == BELLOWS_OK) rc = client::take_news(b);
  if (rc != BELLOWS_OK) return rc;
  if (b->saves.newest_known == wire::kNoStep) return BELLOWS_NO_CHECKPOINT;
  *step = b->saves.newest_known;
  return BELLOWS_OK;
}

int bellows_should_stop(bellows_t* b, uint64_t step) {
  if (!b || b->socket.get() < 0 || b->is_forked()) return client::check_connected(b);
  wire::Control* page = b->page();
  page->step.store(step);
  if (step < page->gate.load()) return 0;
  b->error.clear();
  return wait_at_gate(b, step);
}

int bellows_stop_ahead(bellows_t* b, uint64_t* step) {
  int rc = client::check_connected(b);
  if (rc == BELLOWS_OK && !step) {
    rc = b->error.set(BELLOWS_ERR_INVALID, "bellows_stop_ahead needs a pointer for the step");
  }
  if (rc == BELLOWS_OK) rc = client::take_news(b);
  if (rc == BELLOWS_OK && client::hung_up(b->socket.get())) rc = client::lost(b, EPIPE);
  if (rc != BELLOWS_OK) return rc;
  const std::uint64_t gate = b->page()->gate.load();
  if (gate == wire::kNoStep) return 0;
  *step = gate;
  return 1;
}

int bellows_batch(bellows_t* b, uint64_t own, uint64_t* batch) {
  if (!b) return BELLOWS_ERR_INVALID;
  b->error.clear();
  if (!batch) {
    return b->error.set(BELLOWS_ERR_INVALID, "bellows_batch needs a pointer for the batch");
  }
  const int rc = client::find_batch(own, batch, &b->error);
  if (rc == BELLOWS_OK && says(b)) b->page()->batch.store(*batch);
  return rc;
}

int bellows_noise_scale(bellows_t* b, double samples) {
  if (!b) return BELLOWS_ERR_INVALID;
  b->error.clear();
  if (!(samples >= 0)) {
    return b->error.set(BELLOWS_ERR_INVALID, "a gradient's noise scale is 0 or more, not %g",
                        samples);
  }
  // In whole samples; 0 is for a program that says nothing.
  const double most = static_cast<double>(wire::kMostSamples);
  const double whole = samples < 1 ? 1 : samples < most ? samples : most;
  if (says(b)) b->page()->noise_scale.store(static_cast<std::uint64_t>(whole));
  return BELLOWS_OK;
}

int bellows_finalize(bellows_t* b, int finished) {
  if (!b) return BELLOWS_OK;
  int rc = BELLOWS_OK;
  const bool leaves = !b->is_forked();
  if (leaves && b->socket.get() >= 0) rc = client::await_all(b);
  if (leaves && b->socket.get() >= 0)
    rc = client::call(b, wire::Op::bye, 0, finished != 0, wire::Op::goodbye);
  if (leaves && rc == BELLOWS_OK) rc = client::give_failure(b, wire::kNoStep);
  if (b->place.in_job) client::obey_announcements(b->page());
  b->~bellows_handle();
  free(b);
  return rc;
}

int bellows_rank(const bellows_t* b) { return b ? b->place.rank : BELLOWS_ERR_INVALID; }

int bellows_world(const bellows_t* b) { return b ? b->place.world : BELLOWS_ERR_INVALID; }

const char* bellows_error(const bellows_t* b) { return b ? b->error.text : ""; }

int bellows_error_step(const bellows_t* b, uint64_t* step) {
  if (!b || !step) return BELLOWS_ERR_INVALID;
  if (b->error.step == wire::kNoStep) return 0;
  *step = b->error.step;
  return 1;
}

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
      return "the checkpoint agent cannot be started or has ended";
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
