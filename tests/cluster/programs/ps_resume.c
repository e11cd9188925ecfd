// SPDX-License-Identifier: Apache-2.0
/* A learner of bellows-ps that goes on from whatever the weights have: each gradient is 1 in an
 * element of its own, so that a weight says how often that one was applied.
 *
 *     ps_resume COUNT PAUSE_US FILE
 *
 * All learners of a job together push COUNT gradients, each its share, and end when all are
 * applied. While FILE does not exist the last one is kept back. Whatever may become of the job, no
 * weight is ever below -1.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cluster/programs/ps_program.h"

enum { kTensors = 3, kWaitSeconds = 200 };

static bellows_ps_t* join(uint64_t count) {
  const uint64_t counts[kTensors] = {count, count, count};
  return join_with(counts, kTensors);
}

/* How many gradients the weights have; each at most once, in all tensors alike. */
static uint64_t applied(bellows_ps_t* ps, uint64_t count, int whole) {
  uint64_t sum = 0;
  if (bellows_ps_pull(ps) != BELLOWS_PS_OK) die("pull", bellows_ps_error(ps));
  for (uint64_t i = 0; i < count; ++i) {
    const float weight = bellows_ps_weights(ps, 0)[i];
    if (weight != 0.0F && weight != -1.0F) die("ledger", "a gradient was applied twice");
    /* Shards are pulled one after another, so only at rest they agree. */
    for (int t = 1; whole && t < kTensors; ++t)
      if (bellows_ps_weights(ps, t)[i] != weight) die("ledger", "tensors have other gradients");
    sum += weight == -1.0F;
  }
  return sum;
}

static void push(bellows_ps_t* ps, uint64_t count, uint64_t number) {
  if (bellows_ps_begin(ps) != BELLOWS_PS_OK) die("begin", bellows_ps_error(ps));
  for (int t = 0; t < kTensors; ++t) {
    float* const gradient = bellows_ps_gradient(ps, t);
    memset(gradient, 0, count * sizeof *gradient);
    gradient[number] = 1;
  }
  if (bellows_ps_push(ps, 1) != BELLOWS_PS_OK || bellows_ps_drain(ps) != BELLOWS_PS_OK)
    die("push", bellows_ps_error(ps));
}

static void wait_for(const char* file) {
  for (int i = 0; access(file, F_OK) != 0; ++i) {
    if (i > kWaitSeconds * 50) die(file, "does not come");
    pause_for(20000);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const uint64_t count = strtoul(argv[1], NULL, 10);
  const long pause_us = strtol(argv[2], NULL, 10);
  const uint32_t learner = number_in("BELLOWS_PS_LEARNER"),
                 learners = number_in("BELLOWS_PS_LEARNERS");
  bellows_ps_t* const ps = join(count);
  printf("learner %u of %u begins with %llu\n", learner, learners,
         (unsigned long long)applied(ps, count, 0));
  fflush(stdout);
  float* const had = malloc(count * sizeof *had);
  memcpy(had, bellows_ps_weights(ps, 0), count * sizeof *had);
  for (uint64_t i = learner; i < count; i += learners) {
    if (had[i] != 0.0F) continue;
    if (i + learners >= count) wait_for(argv[3]);
    push(ps, count, i);
    pause_for(pause_us);
  }
  for (int i = 0; learner == 0 && applied(ps, count, 0) < count; ++i) {
    if (i > kWaitSeconds * 50) die("ledger", "gradients of others do not come");
    pause_for(20000);
  }
  if (learner == 0)
    printf("ledger exact: %llu gradients, %u learners at the end\n",
           (unsigned long long)applied(ps, count, 1), learners);
  return bellows_ps_leave(ps) == BELLOWS_PS_OK ? 0 : 1;
}
