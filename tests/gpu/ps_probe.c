/* SPDX-License-Identifier: Apache-2.0 */
/* A learner on the first GPU, by the driver's own library, as cuda_probe.c.
 *
 * ps_probe SOCKET MIB ROUNDS   trains so many MiB of weights for so many updates at a bellows-ps,
 * and compares all of them with what they have to be. Gradients are written by a stream of their
 * own, behind which they are copied. Prints for each round, as JSON, what the copies took beside
 * those to memory that the driver itself has made.
 *
 * Exits with 77 and a sentence where there is no driver or no GPU. */
#include <bellows_ps.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROBE "ps_probe"
#include "tests/gpu/probe.h"

enum { kTensors = 8 };

struct side {
  bellows_ps_t* ps;
  size_t count; /* of elements of each tensor */
  uint64_t gradients[kTensors], weights[kTensors];
  void *compute, *copies, *computed;
  float *host, *plain; /* of all tensors; the second is the driver's memory */
};

#define OK(call)                                                        \
  do {                                                                  \
    if ((call) != BELLOWS_PS_OK) end(1, "%s", bellows_ps_error(s->ps)); \
  } while (0)

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Whole numbers, of which float32 has the exact sum. */
static float gradient_at(size_t element, int round) {
  return (float)((uint32_t)element * 2654435761u >> 28) + (float)(round % 16);
}

static void begin(struct side* s, size_t bytes) {
  open_gpu();
  CHECK("cuStreamCreate", &s->compute, 1u);
  CHECK("cuStreamCreate", &s->copies, 1u);
  CHECK("cuEventCreate", &s->computed, 2u);
  CHECK("cuMemHostAlloc", (void**)&s->plain, bytes, 0u);
  s->count = bytes / kTensors / sizeof(float);
  s->host = malloc(bytes);
  if (!s->host) end(1, "out of memory");
  memset(s->host, 0, bytes);
  for (int t = 0; t < kTensors; ++t) {
    CHECK("cuMemAlloc_v2", &s->gradients[t], bytes / kTensors);
    CHECK("cuMemAlloc_v2", &s->weights[t], bytes / kTensors);
  }
}

static void join(struct side* s, const char* socket) {
  struct bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  uint64_t counts[kTensors];
  const float* initial[kTensors];
  config.socket = socket;
  config.rate = 1;
  for (int t = 0; t < kTensors; ++t) {
    counts[t] = s->count;
    initial[t] = s->host + (size_t)t * s->count;
  }
  OK(bellows_ps_join(&config, counts, initial, kTensors, &s->ps));
}

/* Asks for a gradient in one stream, and for its copies behind that in another. */
static void push(struct side* s, int round) {
  const size_t bytes = s->count * sizeof(float);
  for (size_t i = 0; i < kTensors * s->count; ++i) s->host[i] = gradient_at(i, round);
  OK(bellows_ps_begin(s->ps));
  for (int t = kTensors; t-- > 0;) {
    CHECK("cuMemcpyHtoDAsync_v2", s->gradients[t], s->host + (size_t)t * s->count, bytes,
          s->compute);
    CHECK("cuEventRecord", s->computed, s->compute);
    CHECK("cuStreamWaitEvent", s->copies, s->computed, 0u);
    OK(bellows_ps_gradient_from_device(s->ps, (size_t)t, (void*)(uintptr_t)s->gradients[t],
                                       s->copies));
  }
  OK(bellows_ps_push(s->ps, 1));
  OK(bellows_ps_drain(s->ps));
}

/* The same bytes once more, alone: as Bellows copies them, and to memory of the driver's. */
static void compare_copies(struct side* s, int gradients) {
  const size_t bytes = s->count * sizeof(float);
  const double first = now_s();
  if (gradients) OK(bellows_ps_begin(s->ps));
  for (int t = 0; t < kTensors; ++t) {
    void* const gradient = (void*)(uintptr_t)s->gradients[t];
    void* const weights = (void*)(uintptr_t)s->weights[t];
    if (gradients)
      OK(bellows_ps_gradient_from_device(s->ps, (size_t)t, gradient, s->copies));
    else
      OK(bellows_ps_weights_to_device(s->ps, (size_t)t, weights, s->copies));
  }
  CHECK("cuStreamSynchronize", s->copies);
  const double second = now_s();
  for (int t = 0; t < kTensors; ++t)
    if (gradients)
      CHECK("cuMemcpyDtoHAsync_v2", s->plain + (size_t)t * s->count, s->gradients[t], bytes,
            s->copies);
    else
      CHECK("cuMemcpyHtoDAsync_v2", s->gradients[t], s->plain + (size_t)t * s->count, bytes,
            s->copies);
  CHECK("cuStreamSynchronize", s->copies);
  const double third = now_s();
  printf("{\"kind\": \"%s\", \"bytes\": %zu, \"ours_s\": %.9f, \"against_s\": [%.9f]}\n",
         gradients ? "gpu_gradient" : "gpu_weights", kTensors * bytes, second - first,
         third - second);
}

static void check_weights(struct side* s, int rounds) {
  const size_t bytes = s->count * sizeof(float);
  float more = 0;
  for (int round = 0; round < rounds; ++round) more += gradient_at(0, round) - gradient_at(0, 0);
  for (int t = 0; t < kTensors; ++t) {
    CHECK("cuMemcpyDtoH_v2", s->host, s->weights[t], bytes);
    for (size_t i = 0; i < s->count; ++i) {
      const float wanted = -(float)rounds * gradient_at((size_t)t * s->count + i, 0) - more;
      if (s->host[i] != wanted)
        end(1, "weight %zu of tensor %d is %g on the GPU and has to be %g", i, t,
            (double)s->host[i], (double)wanted);
    }
  }
}

int main(int argc, char** argv) {
  struct side side = {0}, *s = &side;
  const size_t bytes = argc == 4 ? strtoull(argv[2], NULL, 10) << 20 : 0;
  const int rounds = argc == 4 ? atoi(argv[3]) : 0;
  if (bytes == 0 || rounds < 1) end(2, "wrong usage");
  begin(s, bytes);
  join(s, argv[1]);
  for (int round = 0; round < rounds; ++round) {
    push(s, round);
    OK(bellows_ps_pull(s->ps));
    compare_copies(s, 0);
    check_weights(s, round + 1);
    compare_copies(s, 1);
  }
  if (*bellows_ps_unpinned(s->ps)) fprintf(stderr, "ps_probe: %s\n", bellows_ps_unpinned(s->ps));
  OK(bellows_ps_leave(s->ps));
  return 0;
}
