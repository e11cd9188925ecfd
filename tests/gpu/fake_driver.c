/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 whose one GPU is the machine's memory, for the test of the folder itself. With
 * FORGETS defined its copies lose the last byte. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy(void* to, const void* from, size_t bytes) {
#ifdef FORGETS
  --bytes;
#endif
  memcpy(to, from, bytes);
  return 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int device) {
  snprintf(name, (size_t)bytes, "no real GPU %d", device);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  (void)device;
  *context = NULL;
  return 0;
}
int cuCtxSetCurrent(void* context) { return context != NULL; }
int cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  *memory = (uint64_t)(uintptr_t)calloc(1, bytes);
  return *memory == 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return copy((void*)(uintptr_t)to, from, bytes);
}
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  return copy((void*)(uintptr_t)to, (const void*)(uintptr_t)from, bytes);
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return copy(to, (const void*)(uintptr_t)from, bytes);
}
