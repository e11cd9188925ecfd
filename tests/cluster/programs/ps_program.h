/* SPDX-License-Identifier: Apache-2.0 */
/* What programs that learn with bellows-ps have in common. Each is one file, which includes it
 * once. */
#ifndef PS_PROGRAM_H
#define PS_PROGRAM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "paramserver/include/bellows_ps.h"

static inline void die(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static inline void pause_for(long us) {
  const struct timespec time = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&time, NULL);
}

/* Of the environment. */
static inline uint32_t number_in(const char* name) {
  const char* const text = getenv(name);
  if (!text) die(name, "is not set");
  return (uint32_t)strtoul(text, NULL, 10);
}

static inline void die_of(const bellows_ps_t* ps, const char* what) {
  die(what, ps ? bellows_ps_error(ps) : "out of memory");
}

/* With tensors of so many elements each, all of them 0, and a rate of 1. */
static inline int try_join_with(const uint64_t* counts, size_t tensors, bellows_ps_t** ps) {
  const float* initial[8] = {NULL};
  uint64_t most = 0;
  for (size_t t = 0; t < tensors; ++t)
    if (counts[t] > most) most = counts[t];
  float* const zeroes = calloc(most, sizeof *zeroes);
  for (size_t t = 0; t < tensors; ++t) initial[t] = zeroes;
  struct bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  config.rate = 1;
  const int code = bellows_ps_join(&config, counts, initial, tensors, ps);
  free(zeroes);
  return code;
}

static inline bellows_ps_t* join_with(const uint64_t* counts, size_t tensors) {
  bellows_ps_t* ps = NULL;
  if (try_join_with(counts, tensors, &ps) != BELLOWS_PS_OK) die_of(ps, "join");
  return ps;
}

#endif
