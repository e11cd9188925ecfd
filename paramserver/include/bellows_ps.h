/* SPDX-License-Identifier: Apache-2.0 */
/* libbellows_ps: learners of one node that share their parameters by way of bellows-ps.
 *
 *     struct bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
 *     config.rule = BELLOWS_PS_SGD;
 *     config.rate = 0.01;
 *     if (bellows_ps_join(&config, counts, initial, tensors, &ps) != BELLOWS_PS_OK) ...
 *     for (...) {
 *       bellows_ps_pull(ps);                     weights(i) are the newest, until the next pull
 *       bellows_ps_begin(ps);                    gradient(i) may be written to
 *       compute(bellows_ps_weights(ps, i), bellows_ps_gradient(ps, i));
 *       bellows_ps_push(ps, 1);
 *     }
 *     bellows_ps_leave(ps);
 *
 * Weights are read and gradients are written where they lie: nothing is copied. Each gradient that
 * was pushed is applied once, also when this program or bellows-ps is killed. A learner waits for
 * bellows-ps only, never for another learner, unless that runs with --mode=sync or bounded.
 *
 * Functions that return an int give BELLOWS_PS_OK (0) or a negative BELLOWS_PS_ERR_ code;
 * bellows_ps_error then holds one sentence. A handle is used by one thread at a time.
 */
#ifndef BELLOWS_PS_H
#define BELLOWS_PS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

typedef struct bellows_ps bellows_ps_t;

enum bellows_ps_result {
  BELLOWS_PS_OK = 0,
  BELLOWS_PS_ERR_INVALID = -1,     /* an argument is wrong, or other learners have another model */
  BELLOWS_PS_ERR_UNAVAILABLE = -2, /* there is no bellows-ps, or it has ended for good */
  BELLOWS_PS_ERR_FULL = -3,        /* there are as many learners as it takes */
  BELLOWS_PS_ERR_MEMORY = -4,      /* out of memory */
  BELLOWS_PS_ERR_TIMEOUT = -5,     /* longer than wait_ms */
  BELLOWS_PS_ERR_DEVICE = -6       /* CUDA refuses or fails; the sentence has its error */
};

/* As torch.optim has them. */
enum bellows_ps_rule {
  BELLOWS_PS_SGD = 0,
  BELLOWS_PS_MOMENTUM = 1,
  BELLOWS_PS_ADAGRAD = 2,
  BELLOWS_PS_ADAM = 3,
  BELLOWS_PS_RMSPROP = 4
};

enum bellows_ps_type { BELLOWS_PS_F32 = 0, BELLOWS_PS_BF16 = 1, BELLOWS_PS_F16 = 2 };

/* How the rates change with the number of updates n, of which the first is 1. */
enum bellows_ps_schedule {
  BELLOWS_PS_CONSTANT = 0,
  BELLOWS_PS_STEP = 1,  /* rate * factor^floor(n / period), as torch's StepLR */
  BELLOWS_PS_COSINE = 2 /* half a wave from rate to lowest in `period` updates, as torch's
                           CosineAnnealingLR; lowest from then on */
};

/* Tensors with a rate and weight decay of their own. */
struct bellows_ps_group {
  double rate;
  double weight_decay;
};

/* Begin with BELLOWS_PS_CONFIG_INIT, then set what differs. All learners give the same rule and
 * terms. */
struct bellows_ps_config {
  size_t size;           /* sizeof(struct bellows_ps_config) */
  const char* socket;    /* NULL: BELLOWS_PS_SOCKET of the environment */
  int32_t wait_ms;       /* how long one call may wait for bellows-ps; -1: for ever */
  int32_t rule;          /* enum bellows_ps_rule */
  int32_t gradient_type; /* enum bellows_ps_type */
  int32_t nesterov;      /* 1: Nesterov's momentum */
  int32_t decoupled;     /* 1: weight decay as AdamW has it */
  double rate;
  double beta1; /* momentum; Adam's first */
  double beta2; /* Adam's second; RMSprop's alpha */
  double epsilon;
  double weight_decay;
  double clip_value;    /* each element of a gradient lies between this and its negative; 0: any */
  double initial_state; /* Adagrad's initial sum of squares */

  int32_t schedule;                     /* enum bellows_ps_schedule */
  uint32_t groups;                      /* 0: all tensors have the rate and weight decay above */
  const struct bellows_ps_group* group; /* so many */
  const uint32_t* group_of;             /* of each tensor; NULL: 0 */
  uint64_t warm_up;                     /* updates in which the rates rise from 0, in a line */
  uint64_t period;                      /* of the schedule, in updates after that */
  double factor;                        /* of a step */
  double lowest;                        /* rate of a cosine */
  double clip_norm; /* bellows_ps_push multiplies the gradient so that its Euclidean norm over all
                       tensors is at most this, as torch's clip_grad_norm_; 0: any */

  const uint64_t* width; /* of each tensor: 0; or the elements of a row, if its gradients have some
                            rows only, which bellows_ps_gradient_rows names. Such a tensor has no
                            weight decay. NULL: 0 for all */
};

#define BELLOWS_PS_CONFIG_INIT                                                                    \
  {                                                                                               \
    sizeof(struct bellows_ps_config), NULL, 60000, BELLOWS_PS_SGD, BELLOWS_PS_F32, 0, 0, 0.01, 0, \
        0, 1e-8, 0, 0, 0, BELLOWS_PS_CONSTANT, 0, NULL, NULL, 0, 1, 1, 0, 0, NULL                 \
  }

/* Joins the learners, with tensors of so many float32 elements each. The first learner's `initial`
 * (one pointer for each tensor) are the weights to begin with; those of others are not read. On
 * failure *out is NULL (no memory) or a handle that is good only for bellows_ps_error and
 * bellows_ps_leave. */
int bellows_ps_join(const struct bellows_ps_config* config, const uint64_t* counts,
                    const float* const* initial, size_t tensors, bellows_ps_t** out);

/* This learner's number, from 0 on; unique among those that take part. */
uint32_t bellows_ps_learner(const bellows_ps_t* ps);

/* Makes the newest weights those that bellows_ps_weights gives. What it gave before may change from
 * now on. */
int bellows_ps_pull(bellows_ps_t* ps);
/* A tensor's weights; NULL before the first pull. Reading is all that is possible. */
const float* bellows_ps_weights(const bellows_ps_t* ps, size_t tensor);
/* How many updates the weights have had: of the part of the parameters that has had the most. */
uint64_t bellows_ps_updates(const bellows_ps_t* ps);

/* Makes room for the next gradient: waits until the one before the last is applied. */
int bellows_ps_begin(bellows_ps_t* ps);
/* Where the gradient of a tensor belongs, of elements of gradient_type; all of it has to be
 * written, since anything may be there. NULL before bellows_ps_begin. */
void* bellows_ps_gradient(const bellows_ps_t* ps, size_t tensor);
/* Names the rows that the gradient of a tensor with a width has: `count` numbers below the tensor's
 * rows, which ascend, each once. They are copied. Their elements, count * width, are then all of
 * its gradient, one row after another. After bellows_ps_begin it has none. */
int bellows_ps_gradient_rows(bellows_ps_t* ps, size_t tensor, const uint64_t* rows, size_t count);
/* The gradient is complete; it is multiplied with `scale` when it is applied. With --mode=sync all
 * learners give the same scale, and the mean is applied. */
int bellows_ps_push(bellows_ps_t* ps, float scale);
/* Waits until all that was pushed is applied. */
int bellows_ps_drain(bellows_ps_t* ps);

/* Learners on NVIDIA's GPUs. These ask for copies between a device's memory and that of bellows-ps,
 * in the order of `stream` (a cudaStream_t or CUstream; NULL is the default stream of the current
 * context), and do not wait for them. The program must have loaded libcuda.so.1, as its first call
 * of CUDA does. The first copies page-lock (pin) the memory that they use: that of both gradients,
 * and of weights each buffer when it is copied the first time. */

/* A tensor's gradient, of elements of gradient_type, from a device to where it belongs; of one with
 * a width, the rows that were named before. `from` stays as it is until the copy is complete.
 * bellows_ps_push waits for the copies of its gradient, however long the device takes. After an
 * error it refuses this gradient until bellows_ps_begin was called. */
int bellows_ps_gradient_from_device(bellows_ps_t* ps, size_t tensor, const void* from,
                                    void* stream);
/* A tensor's weights, of float32, to a device. bellows_ps_pull and bellows_ps_leave wait for it. */
int bellows_ps_weights_to_device(bellows_ps_t* ps, size_t tensor, void* to, void* stream);
/* Why copies are slower than they could be: one sentence, where CUDA refused to page-lock memory;
 * "" otherwise. */
const char* bellows_ps_unpinned(const bellows_ps_t* ps);

/* The sentence of the last failure; "" if there was none. */
const char* bellows_ps_error(const bellows_ps_t* ps);

/* Leaves, once all that was pushed is applied, and frees the handle; NULL does nothing. */
int bellows_ps_leave(bellows_ps_t* ps);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
