/* SPDX-License-Identifier: Apache-2.0 */
/* The model store on a GPU, by the driver's own library, as cuda_probe.c.
 *
 * model_probe address            the PCI address of the first GPU
 * model_probe make FILE MIB      a model of one tensor
 * model_probe read SOCKET MODEL  opens it on the first GPU and compares all bytes; prints times as
 * JSON model_probe write SOCKET MODEL tries to write through what it was lent; prints what a holder
 * of it can still do
 *
 * Exits with 77 and a sentence where there is no driver or no GPU. */
#include <bellows_model.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROBE "model_probe"
#include "tests/gpu/probe.h"

enum { kChunk = 16 << 20 };

struct access {
  int type, id, flags;
};

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static unsigned char byte_at(uint64_t i) {
  return (unsigned char)((uint32_t)i * 2654435761u >> 13);
}

static void fill(unsigned char* chunk, uint64_t begin, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) chunk[i] = byte_at(begin + i);
}

static void make(const char* path, uint64_t bytes) {
  char header[256];
  const int text = snprintf(header + 8, sizeof header - 8,
                            "{\"w\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
                            (unsigned long long)bytes, (unsigned long long)bytes);
  const uint64_t length = (uint64_t)text;
  memcpy(header, &length, 8);
  FILE* file = fopen(path, "w");
  unsigned char* chunk = malloc(kChunk);
  if (!file || !chunk) end(1, "cannot write %s", path);
  fwrite(header, 1, 8 + (size_t)text, file);
  for (uint64_t at = 0; at < bytes; at += kChunk) {
    fill(chunk, at, kChunk);
    fwrite(chunk, 1, kChunk, file);
  }
  if (ferror(file) || fclose(file) != 0) end(1, "cannot write %s", path);
}

static double open_model(const char* socket, const char* name, struct bellows_tensor* tensor) {
  struct bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  bellows_model_t* model = NULL;
  config.socket = socket;
  config.flags = BELLOWS_MODEL_ON_GPU;
  const double before = now_ms();
  if (bellows_model_open(name, &config, &model) != BELLOWS_MODEL_OK)
    end(1, "%s", bellows_model_error(model));
  const double took = now_ms() - before;
  if (bellows_model_find(model, "w", tensor) != BELLOWS_MODEL_OK) end(1, "the model has no tensor");
  return took;
}

/* What the first kernel would read, in the time that it takes. */
static double use(uint64_t from, uint64_t bytes) {
  uint64_t own = 0;
  CHECK("cuMemAlloc_v2", &own, (size_t)bytes);
  const double before = now_ms();
  CHECK("cuMemcpyDtoD_v2", own, from, (size_t)bytes);
  CHECK("cuCtxSynchronize");
  return now_ms() - before;
}

static void read_all(const char* socket, const char* name) {
  struct bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  const double begun = now_ms();
  open_gpu();
  const double context = now_ms() - begun;
  const double first = open_model(socket, name, &tensor);
  const uint64_t memory = (uint64_t)(uintptr_t)tensor.data;
  const double used = use(memory, tensor.bytes);
  const double again = open_model(socket, name, &tensor);
  unsigned char* got = malloc(kChunk);
  unsigned char* wanted = malloc(kChunk);
  if (!got || !wanted) end(1, "out of memory");
  for (uint64_t at = 0; at < tensor.bytes; at += kChunk) {
    fill(wanted, at, kChunk);
    CHECK("cuMemcpyDtoH_v2", got, memory + at, (size_t)kChunk);
    if (memcmp(got, wanted, kChunk) != 0)
      end(1, "the GPU has other bytes at %llu", (unsigned long long)at);
  }
  printf(
      "{\"bytes\": %llu, \"context_ms\": %.3f, \"open_ms\": %.3f, \"first_use_ms\": %.3f, "
      "\"open_again_ms\": %.3f}\n",
      (unsigned long long)tensor.bytes, context, first, used, again);
}

static void write_through(const char* socket, const char* name) {
  struct bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  char byte = 1;
  open_gpu();
  open_model(socket, name, &tensor);
  const uint64_t memory = (uint64_t)(uintptr_t)tensor.data;
  const int copied = function("cuMemcpyHtoD_v2")(memory, &byte, (size_t)1);
  if (copied == 0) end(1, "a copy to the model's memory was taken");
  printf("a copy to it gives the driver's error %d", copied);
  const struct access both = {1, 0, 3};
  /* The data begin in the mapping's first page, and the catalogue ends it. */
  const uint64_t begin_at = memory / 4096 * 4096, unit = 2 << 20;
  const uint64_t whole = (memory - begin_at + tensor.bytes + 4096 + unit) / unit * unit;
  const int changed = function("cuMemSetAccess")(begin_at, (size_t)whole, &both, (size_t)1);
  printf("; to make its mapping writable gives %d\n", changed);
}

int main(int argc, char** argv) {
  char address[32] = "";
  if (argc == 2 && strcmp(argv[1], "address") == 0) {
    open_gpu();
    CHECK("cuDeviceGetPCIBusId", address, (int)sizeof address, 0);
    puts(address);
  } else if (argc == 4 && strcmp(argv[1], "make") == 0) {
    make(argv[2], strtoull(argv[3], NULL, 10) << 20);
  } else if (argc == 4 && strcmp(argv[1], "read") == 0) {
    read_all(argv[2], argv[3]);
  } else if (argc == 4 && strcmp(argv[1], "write") == 0) {
    write_through(argv[2], argv[3]);
  } else {
    end(2, "wrong usage");
  }
  return 0;
}
