/* SPDX-License-Identifier: Apache-2.0 */
/* libbellows_model: models that this node holds once, for all programs that may see them.
 *
 *     bellows_model_t* model;
 *     if (bellows_model_open("resnet-50", NULL, &model) != BELLOWS_MODEL_OK) {
 *       fprintf(stderr, "%s\n", bellows_model_error(model));
 *       ...
 *     }
 *     struct bellows_tensor weight = BELLOWS_TENSOR_INIT;
 *     bellows_model_find(model, "fc.weight", &weight);
 *     use(weight.data);
 *     bellows_model_close(model);
 *
 * The memory of a model is shared by all who have it open, and nobody can write to it: not the
 * programs, and not those who lend it. It stays as it is until bellows_model_close, also when a
 * newer model gets the name, and when the daemon is restarted.
 *
 * Functions that return an int give BELLOWS_MODEL_OK (0) or a negative BELLOWS_MODEL_ERR_ code.
 * Several threads may use one model at a time, but for bellows_model_close.
 */
#ifndef BELLOWS_MODEL_H
#define BELLOWS_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The largest number of dimensions of a tensor. */
#define BELLOWS_MODEL_MAX_DIMS 8

typedef struct bellows_model bellows_model_t;

enum bellows_model_result {
  BELLOWS_MODEL_OK = 0,
  BELLOWS_MODEL_ERR_INVALID = -1,     /* an argument is wrong */
  BELLOWS_MODEL_ERR_NOT_FOUND = -2,   /* there is no such model, or none that this job may see */
  BELLOWS_MODEL_ERR_NO_ROOM = -3,     /* the node or the GPU has no memory for it, or none now */
  BELLOWS_MODEL_ERR_CORRUPT = -4,     /* the stored model is damaged, or no model */
  BELLOWS_MODEL_ERR_UNAVAILABLE = -5, /* the model store, or what it reads from, does not work */
  BELLOWS_MODEL_ERR_MEMORY = -6,      /* this program is out of memory */
  BELLOWS_MODEL_ERR_CANCELLED = -7    /* `progress` wanted no more */
};

/* Those up to 14 have the numbers of enum bellows_dtype. */
enum bellows_model_dtype {
  BELLOWS_MODEL_F16 = 1,
  BELLOWS_MODEL_BF16 = 2,
  BELLOWS_MODEL_F32 = 3,
  BELLOWS_MODEL_F64 = 4,
  BELLOWS_MODEL_I8 = 5,
  BELLOWS_MODEL_I16 = 6,
  BELLOWS_MODEL_I32 = 7,
  BELLOWS_MODEL_I64 = 8,
  BELLOWS_MODEL_U8 = 9,
  BELLOWS_MODEL_U16 = 10,
  BELLOWS_MODEL_U32 = 11,
  BELLOWS_MODEL_U64 = 12,
  BELLOWS_MODEL_BOOL = 13, /* one byte, 0 or 1 */
  BELLOWS_MODEL_C64 = 14,  /* two f32: real, imaginary */
  BELLOWS_MODEL_F8_E4M3 = 32,
  BELLOWS_MODEL_F8_E5M2 = 33,
  BELLOWS_MODEL_F8_E8M0 = 34,
  BELLOWS_MODEL_F6_E2M3 = 35, /* elements of less than a byte are packed */
  BELLOWS_MODEL_F6_E3M2 = 36,
  BELLOWS_MODEL_F4 = 37
};

/* One tensor. Begin with BELLOWS_TENSOR_INIT. What it points to is the model's. */
struct bellows_tensor {
  size_t size; /* sizeof(struct bellows_tensor): lets the library know which fields you have */
  const char* name;
  int32_t dtype;
  int32_t ndims;
  const uint64_t* shape;
  uint64_t bytes;
  const void* data; /* in C order, little-endian, at a multiple of its element's size; on a GPU a
                       pointer of CUDA's, which only the GPU can follow */
};

#define BELLOWS_TENSOR_INIT \
  { sizeof(struct bellows_tensor), NULL, 0, 0, NULL, 0, NULL }

/* For bellows_model_config.flags: what the program writes to the model's memory is its own, in
 * copies of the pages that it writes to; it shares the others still. Cast `data` for it. A model
 * that is in huge pages can't be opened so. */
#define BELLOWS_MODEL_WRITABLE 1u
/* The model is opened in the memory of GPU config.device, in this program's primary context of
 * CUDA's. The program must have loaded libcuda.so.1, as its first call of CUDA does, and its job
 * must have asked for models on its GPUs (sbatch --model-on=gpu). All programs of the job share
 * one copy, which this one maps to be read only; bellows_model_close waits for what it has the GPU
 * do. */
#define BELLOWS_MODEL_ON_GPU 2u

/* Begin with BELLOWS_MODEL_CONFIG_INIT, then set what differs. */
struct bellows_model_config {
  size_t size;        /* sizeof(struct bellows_model_config) */
  const char* socket; /* NULL: BELLOWS_MODEL_SOCKET, else /run/bellows/models.sock */
  int32_t wait_ms;    /* how long a model may take to load; 0: ten minutes, -1: no limit */
  int32_t unused;     /* padding of older versions: it may have anything */
  /* Is called a few times a second while a model is loaded, with the bytes that are read and the
   * bytes that there are, 0 when these are not known yet; not at all when there is nothing to wait
   * for. Gives 0 to wait on; else opening it fails. NULL: nobody wants to know. */
  int (*progress)(void* argument, uint64_t done, uint64_t total);
  void* argument;
  uint32_t flags; /* BELLOWS_MODEL_WRITABLE or BELLOWS_MODEL_ON_GPU, or 0 */
  int32_t device; /* with BELLOWS_MODEL_ON_GPU: which GPU, by CUDA's number in this program */
};

#define BELLOWS_MODEL_CONFIG_INIT \
  { sizeof(struct bellows_model_config), NULL, 0, 0, NULL, NULL, 0, 0 }

/* Opens a model by its name, by its digest: "sha256:" and 64 hexadecimal digits, or by a file that
 * it is read from: "file:" and an absolute path. The last finds it only where this program may read
 * the file, which was not changed since the model was loaded. Waits while it is loaded. config may
 * be NULL. On failure *model is NULL (no memory) or good only for bellows_model_error and
 * bellows_model_close. */
int bellows_model_open(const char* name, const struct bellows_model_config* config,
                       bellows_model_t** model);

/* Has a model loaded, without waiting for it. `failed` may be NULL; it is set to NULL, or on
 * failure as bellows_model_open sets its model. */
int bellows_model_prefetch(const char* name, const struct bellows_model_config* config,
                           bellows_model_t** failed);

uint64_t bellows_model_count(const bellows_model_t* model);

/* Tensors are in the order of their names' bytes. BELLOWS_MODEL_ERR_INVALID: there are fewer. */
int bellows_model_tensor(const bellows_model_t* model, uint64_t index,
                         struct bellows_tensor* tensor);

/* BELLOWS_MODEL_ERR_NOT_FOUND: the model has no tensor of this name. */
int bellows_model_find(const bellows_model_t* model, const char* name,
                       struct bellows_tensor* tensor);

/* 64 hexadecimal digits, which are those of the same model everywhere. */
const char* bellows_model_digest(const bellows_model_t* model);

/* Why opening it failed, in a sentence. Also of NULL. */
const char* bellows_model_error(const bellows_model_t* model);

/* Gives the memory back: nothing of the model may be used after that. NULL is nothing. */
void bellows_model_close(bellows_model_t* model);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
