/* SPDX-License-Identifier: Apache-2.0 */
/* libbellows_pool: what a member of an elastic pool says of itself, and is told.
 *
 *     bellows_pool_listen(8000);
 *     bellows_pool_ready();
 *     int orders = bellows_pool_watch();
 *     for (;;) {
 *       bellows_pool_metric("queue", waiting);
 *       struct bellows_pool_order order;
 *       if (bellows_pool_next_order(orders, 1000, &order) == BELLOWS_POOL_OK && order.drain) break;
 *       ...
 *     }
 *
 * The functions speak to the agent that `bellows pool member` runs beside the program, at the
 * socket that $BELLOWS_POOL_SOCKET names. They keep nothing, so any thread and any child may call
 * them. Those that return an int give BELLOWS_POOL_OK (0) or a negative BELLOWS_POOL_ERR_ code. A
 * program that is no member of a pool gets BELLOWS_POOL_ERR_UNAVAILABLE, and may go on.
 */
#ifndef BELLOWS_POOL_H
#define BELLOWS_POOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

enum bellows_pool_result {
  BELLOWS_POOL_OK = 0,
  BELLOWS_POOL_ERR_INVALID = -1,     /* an argument is wrong */
  BELLOWS_POOL_ERR_UNAVAILABLE = -2, /* there is no agent */
  BELLOWS_POOL_ERR_TIMEOUT = -3      /* nothing came in time */
};

/* The longest name of a metric, in bytes without its end. */
#define BELLOWS_POOL_NAME_MAX 128

/* What the agent tells a program. */
struct bellows_pool_order {
  int drain;        /* 1: take no new work, end what is under way, and exit */
  unsigned seconds; /* until it is ended, when drain is 1 */
  unsigned size;    /* members that are ready, when drain is 0 */
};

/* A figure by which the pool's policy may choose its size, such as the length of a queue. The
 * newest counts until it is too old for the policy. name: letters, digits, _ : and . ; value:
 * finite. */
int bellows_pool_metric(const char* name, double value);
/* This member's wish: so many members more, or fewer if it is negative. */
int bellows_pool_vote(int change);
/* The program takes calls at this port of its node. */
int bellows_pool_listen(uint16_t port);
/* From now on it may be called. */
int bellows_pool_ready(void);

/* A descriptor by which orders come, or a negative code. It is readable when there is one, so it
 * may be polled; close() ends it. */
int bellows_pool_watch(void);
/* Waits for the next order, for so many milliseconds; -1: for ever. */
int bellows_pool_next_order(int watch, int wait_ms, struct bellows_pool_order* order);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
