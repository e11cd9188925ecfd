/* SPDX-License-Identifier: Apache-2.0 */
/* Copies bytes to a GPU, within it and back, by the driver's own library and nothing else, so that
 * it runs wherever the driver's files are, in a container too. Prints the number of GPUs and the
 * name of the first. Exits with 77 and a sentence where there is no driver or no GPU. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 64 << 20, kNone = 77, kNoDevice = 100 };

typedef int Call();

static void* library;

static void end(int status, const char* what, int code) {
  if (code)
    fprintf(stderr, "cuda_probe: %s: the driver's error %d\n", what, code);
  else
    fprintf(stderr, "cuda_probe: %s\n", what);
  exit(status);
}

static Call* function(const char* name) {
  /* POSIX has it that a pointer to an object holds one to a function. */
  Call* found = (Call*)dlsym(library, name);
  if (!found) end(1, name, 0);
  return found;
}

#define CHECK(name, ...)                    \
  do {                                      \
    int code = function(name)(__VA_ARGS__); \
    if (code) end(1, name, code);           \
  } while (0)

static void copy_there_and_back(void) {
  int device = 0;
  void* context = NULL;
  uint64_t first = 0, second = 0;
  unsigned char* sent = malloc(kBytes);
  unsigned char* received = calloc(1, kBytes);
  if (!sent || !received) end(1, "out of memory", 0);
  for (size_t i = 0; i < kBytes; ++i) sent[i] = (unsigned char)(i * 2654435761u >> 13);
  CHECK("cuDeviceGet", &device, 0);
  CHECK("cuDevicePrimaryCtxRetain", &context, device);
  CHECK("cuCtxSetCurrent", context);
  CHECK("cuMemAlloc_v2", &first, (size_t)kBytes);
  CHECK("cuMemAlloc_v2", &second, (size_t)kBytes);
  CHECK("cuMemcpyHtoD_v2", first, sent, (size_t)kBytes);
  CHECK("cuMemcpyDtoD_v2", second, first, (size_t)kBytes);
  CHECK("cuMemcpyDtoH_v2", received, second, (size_t)kBytes);
  if (memcmp(sent, received, kBytes) != 0) end(1, "other bytes came back from the GPU", 0);
  free(sent);
  free(received);
}

int main(void) {
  int count = 0, device = 0;
  char name[256] = "";
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) end(kNone, dlerror(), 0);
  int code = function("cuInit")(0u);
  if (code == kNoDevice) end(kNone, "the driver has no GPU for this process", 0);
  if (code) end(1, "cuInit", code);
  CHECK("cuDeviceGetCount", &count);
  if (count == 0) end(kNone, "the driver has no GPU for this process", 0);
  CHECK("cuDeviceGet", &device, 0);
  CHECK("cuDeviceGetName", name, (int)sizeof name - 1, device);
  copy_there_and_back();
  printf("%d GPU%s, %s, 64 MiB copied there and back\n", count, count == 1 ? "" : "s", name);
  return 0;
}
