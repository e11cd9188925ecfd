/* SPDX-License-Identifier: Apache-2.0 */
/* libbellows: checkpoints of a data-parallel program that restart at any number of ranks.
 *
 * Every rank: bellows_init; bellows_register for each array; bellows_restore; then the loop
 *
 *     for (; step < last; step++) {
 *       int stop = bellows_should_stop(b, step);
 *       if (stop || step % 100 == 0) bellows_save(b, step);
 *       if (stop) { bellows_finalize(b, 0); return 0; }
 *       train_one_step();
 *     }
 *     bellows_finalize(b, 1);
 *
 * The arrays, the options and the steps at which should_stop and save are called must be the same
 * on every rank; which rows of a sharded array a rank holds is its own choice, as long as the ranks
 * together hold every row once. A handle is used by one thread at a time. Functions that return an
 * int give BELLOWS_OK (0) or a positive outcome, or a negative BELLOWS_ERR_ code; bellows_error
 * then holds one sentence that says what was wrong and where.
 */
#ifndef BELLOWS_H
#define BELLOWS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define BELLOWS_VERSION "0.1.0"

/* The largest number of dimensions of an array. */
#define BELLOWS_MAX_DIMS 8
/* The longest name of an array, in bytes. */
#define BELLOWS_MAX_NAME 255

typedef struct bellows_handle bellows_t;

enum bellows_result {
  BELLOWS_OK = 0,
  BELLOWS_NO_CHECKPOINT = 1, /* restore: the directory holds no step, begin at the start */

  BELLOWS_ERR_INVALID = -1,  /* an argument is wrong, or the ranks disagree */
  BELLOWS_ERR_MISMATCH = -2, /* the stored array has another type or shape */
  BELLOWS_ERR_AGENT = -3, /* the agent cannot be started, or has gone: save what you can and exit */
  BELLOWS_ERR_IO = -4,    /* reading or writing failed (disk full, ...); training may continue */
  BELLOWS_ERR_CORRUPT = -5, /* stored data does not match its digest */
  BELLOWS_ERR_BUSY = -6,    /* another program holds the directory or this rank */
  BELLOWS_ERR_FENCED = -7,  /* a newer attempt of this job owns the directory: exit */
  BELLOWS_ERR_MEMORY = -8   /* out of memory */
};

enum bellows_dtype {
  BELLOWS_F16 = 1,
  BELLOWS_BF16 = 2,
  BELLOWS_F32 = 3,
  BELLOWS_F64 = 4,
  BELLOWS_I8 = 5,
  BELLOWS_I16 = 6,
  BELLOWS_I32 = 7,
  BELLOWS_I64 = 8,
  BELLOWS_U8 = 9,
  BELLOWS_U16 = 10,
  BELLOWS_U32 = 11,
  BELLOWS_U64 = 12,
  BELLOWS_BOOL = 13, /* one byte, 0 or 1 */
  BELLOWS_C64 = 14,  /* two f32: real, imaginary */
  BELLOWS_C128 = 15, /* two f64 */
  BELLOWS_BYTES = 16 /* one byte without a meaning */
};

enum bellows_layout {
  BELLOWS_REPLICATED = 0, /* every rank holds the whole array, with equal values */
  BELLOWS_SHARDED = 1,    /* this rank holds `count` indices of `axis`, from `first` on */
  BELLOWS_PER_RANK = 2, /* each rank has an array of its own, with a shape of its own; restore gives
                           rank r what rank r had. A rank that was not there, or had another type
                           or shape, keeps what it registered. */
  BELLOWS_VALUE = 3     /* the same on every rank, and at most 4096 bytes: stored as an attribute */
};

/* One array. Begin with BELLOWS_ARRAY_INIT, then set what differs. */
struct bellows_array {
  size_t size; /* sizeof(struct bellows_array) */
  const char* name;
  int32_t dtype;
  int32_t ndims;
  const uint64_t* shape; /* of the whole array; read inside bellows_register_array only */
  int32_t layout;
  int32_t axis;          /* sharded: which axis is shared out */
  uint64_t first, count; /* sharded: this rank's part of the axis; count may be 0 */
  void* data;            /* this rank's part in C order */
};

#define BELLOWS_ARRAY_INIT \
  { sizeof(struct bellows_array), NULL, 0, 0, NULL, BELLOWS_REPLICATED, 0, 0, 0, NULL }

/* Begin with BELLOWS_CONFIG_INIT, then set what differs. */
struct bellows_config {
  size_t size;     /* sizeof(struct bellows_config): lets the library know which fields you have */
  const char* dir; /* NULL: BELLOWS_CHECKPOINT_DIR, else ./bellows-checkpoints. Ignored inside a
                      Bellows job, where the launcher has chosen it. */
  int32_t rank;    /* -1: from the environment (see libbellows(3)) */
  int32_t world;   /* -1: from the environment */
  int32_t keep;    /* committed steps to keep; 0: 3. Ignored inside a Bellows job. */
  uint64_t keep_every; /* besides, every step divisible by this; 0: none. Ignored inside a job. */
};

#define BELLOWS_CONFIG_INIT \
  { sizeof(struct bellows_config), NULL, -1, -1, 0, 0 }

/* Connects to this node's agent; outside a job starts one. config may be NULL. On failure *out is
 * either NULL (no memory) or a handle that is good only for bellows_error and bellows_finalize. */
int bellows_init(const struct bellows_config* config, bellows_t** out);

/* Names an array that save stores and restore fills. data stays the caller's, and is read or
 * written only inside bellows_save, bellows_save_async and bellows_restore; it is NULL only when
 * this rank holds nothing of the array. Registering a name again replaces it. BELLOWS_ERR_MEMORY:
 * there is too little memory for copies of the arrays; this one is then not registered. */
int bellows_register_array(bellows_t* b, const struct bellows_array* array);

/* The short form: a sharded array is shared out along its first axis. */
int bellows_register(bellows_t* b, const char* name, int dtype, int ndims,
                     const uint64_t* global_shape, int layout, uint64_t first_row, uint64_t rows,
                     void* data);

/* Forgets an array: later saves do not hold it. */
int bellows_unregister(bellows_t* b, const char* name);

/* The bytes of memory that the agent needs to copy what is registered (two copies of what this rank
 * stores), and what it may use for this rank. Either may be NULL. */
int bellows_memory(bellows_t* b, uint64_t* needed, uint64_t* available);

/* Fills all registered arrays from the newest committed step that verifies, the same on every rank,
 * and sets *step to it. BELLOWS_NO_CHECKPOINT leaves arrays and *step as they are;
 * BELLOWS_ERR_CORRUPT: there are steps, but none is good. After an error the arrays' contents are
 * undefined. */
int bellows_restore(bellows_t* b, uint64_t* step);

/* Stores all registered arrays as `step`, which is larger than any step this handle has saved or is
 * saving; the last one alone may be saved again. Every rank calls it; it returns when the step is
 * committed and durable, or failed on every rank. A failed save leaves earlier steps as they were.
 * Ranks that use MPI meet inside it (MPI_Barrier) before they call this or bellows_should_stop:
 * see "Waiting and MPI" in libbellows(3). */
int bellows_save(bellows_t* b, uint64_t step);

/* As bellows_save, but returns once the arrays are copied: they may change at once, and if this
 * process dies, the step is stored nevertheless. When two saves are in flight already, waits until
 * the older one is stored. The result is that of an earlier save: see bellows_wait. */
int bellows_save_async(bellows_t* b, uint64_t step);

/* Waits until no save is in flight.
 * A save that fails after bellows_save_async has returned is the result of a later call, once: of
 * bellows_save, bellows_save_async, bellows_wait or bellows_finalize. bellows_error_step then gives
 * its step, and the call has nevertheless done what it was asked to do, unless a further call says
 * otherwise. Ranks may so learn of one failure at different steps without saving different steps.
 */
int bellows_wait(bellows_t* b);

/* The newest step that this rank knows to be committed, restored or saved; never waits.
 * BELLOWS_NO_CHECKPOINT leaves *step as it is. */
int bellows_saved_step(bellows_t* b, uint64_t* step);

/* Publishes the step this rank has come to and asks whether to stop: 0 continue; 1 save this step,
 * finalize and exit with status 0; negative: error. Costs a store and a load unless a stop is being
 * decided; then it waits until every rank's answer is the same. Steps never go backwards. */
int bellows_should_stop(bellows_t* b, uint64_t step);

/* Asks without waiting, at the cost of a system call, whether a stop is being decided: 1, and *step
 * is the least step at which bellows_should_stop takes part in that; 0: none is. For a program of
 * one rank that may come to no further step by itself, as a server does while it is asked for
 * nothing: it can stop at any time, if it counts that step as its next. BELLOWS_ERR_AGENT: its
 * agent has ended. */
int bellows_stop_ahead(bellows_t* b, uint64_t* step);

/* The number of samples in a step over all ranks, the same on every rank and until this program
 * ends: the batch that the job was last ordered to use (bellows resize --batch), else `own`, with
 * which the program would train if nobody had ordered anything. Sets *batch. BELLOWS_ERR_INVALID:
 * the batch is not in the range of the job (sbatch --batch-range), or 0. */
int bellows_batch(bellows_t* b, uint64_t own, uint64_t* batch);

/* Says how noisy the gradient is: `samples` is its noise scale, the batch at which noise and
 * gradient are equally large (McCandlish et al., arXiv:1812.06162), 0 or more and possibly
 * infinite. With it bellowsd finds how large a batch pays off on how many GPUs. Costs a store; may
 * be called at every step and from any rank. BELLOWS_ERR_INVALID: a negative number, or none. */
int bellows_noise_scale(bellows_t* b, double samples);

/* The order in which an epoch uses its samples: fills out with the samples at the positions first
 * .. first + count - 1, each below `samples`. Over all positions each sample comes once. The same
 * arguments give the same order in every process, on every machine and in every version, so a rank
 * computes the part that it trains on, and a job that continues with another number of ranks or
 * another batch neither repeats nor skips a sample. Takes no handle. */
int bellows_permutation(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t first,
                        uint64_t count, uint64_t* out);

/* Waits for saves in flight, leaves the agent and frees the handle. finished = 1: training is
 * complete. NULL is allowed. The result may be that of a save: call bellows_wait before, for its
 * sentence. */
int bellows_finalize(bellows_t* b, int finished);

/* This rank and the number of ranks, as init found them. */
int bellows_rank(const bellows_t* b);
int bellows_world(const bellows_t* b);

/* The sentence of the last failed call on this handle, or "". Valid until the next call. */
const char* bellows_error(const bellows_t* b);

/* Whether that sentence is about a save in flight, of bellows_save_async: 1 and its step in *step;
 * or about the call itself: 0. Valid until the next call. BELLOWS_ERR_INVALID: a pointer is NULL.
 */
int bellows_error_step(const bellows_t* b, uint64_t* step);

/* What a code means, in general. Never NULL. */
const char* bellows_strerror(int code);

/* The version of the library that runs, which may be newer than BELLOWS_VERSION. */
const char* bellows_version(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
