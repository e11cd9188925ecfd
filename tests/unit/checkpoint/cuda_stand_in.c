/* SPDX-License-Identifier: Apache-2.0 */
/* A libcudart.so for machines without a GPU. Its device memory can't be touched by the program, and
 * its copies happen when their stream is waited for, as late as real ones may. The work of the
 * program's own stream is a store that happens when the device is waited for. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct attributes {
  int type, device;
  void *device_pointer, *host_pointer;
};

static char *device_memory, *shadow;
static size_t device_bytes;
static struct copy queue[64];
static int queued, registered, streams, fail_copies;
static unsigned char* pending_at;
static unsigned char pending_value;
static size_t pending_bytes;

/* For the test. */
void* stand_in_malloc(size_t bytes) {
  int fd = memfd_create("device", 0);
  if (ftruncate(fd, (off_t)bytes) != 0) return NULL;
  shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  device_memory = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
  device_bytes = bytes;
  close(fd);
  return device_memory;
}
unsigned char* stand_in_shadow(void) { return (unsigned char*)shadow; }
void stand_in_later(size_t bytes, unsigned char value) {
  pending_at = (unsigned char*)shadow;
  pending_bytes = bytes;
  pending_value = value;
}
int stand_in_registered(void) { return registered; }
int stand_in_streams(void) { return streams; }
void stand_in_fail(int code) { fail_copies = code; }

static void* real(const void* p) {
  const char* c = p;
  if (c >= device_memory && c < device_memory + device_bytes) return shadow + (c - device_memory);
  return (void*)p;
}

int cudaGetDevice(int* device) {
  *device = 3;
  return 0;
}
int cudaSetDevice(int device) { return device == 3 ? 0 : 101; }
int cudaDeviceSynchronize(void) {
  if (pending_at) memset(pending_at, pending_value, pending_bytes);
  pending_at = NULL;
  return 0;
}
int cudaPointerGetAttributes(struct attributes* out, const void* p) {
  memset(out, 0, sizeof *out);
  if (real(p) == p) return 1; /* as runtimes before 11 */
  out->type = 2;
  out->device = 3;
  return 0;
}
int cudaHostRegister(void* p, size_t bytes, unsigned flags) {
  (void)p, (void)bytes, (void)flags;
  ++registered;
  return 0;
}
int cudaHostUnregister(void* p) {
  (void)p;
  --registered;
  return 0;
}
int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  *stream = &streams;
  ++streams;
  return flags == 1 ? 0 : 1;
}
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  if (fail_copies) return fail_copies;
  if (kind != 4 || stream != &streams || queued == 64) return 1;
  queue[queued++] = (struct copy){real(to), real(from), bytes};
  return 0;
}
int cudaStreamSynchronize(void* stream) {
  (void)stream;
  for (int i = 0; i < queued; ++i) memcpy(queue[i].to, queue[i].from, queue[i].bytes);
  queued = 0;
  return 0;
}
int cudaStreamDestroy(void* stream) {
  (void)stream;
  --streams;
  return 0;
}
int cudaGetLastError(void) { return 0; }
const char* cudaGetErrorString(int code) {
  return code == 719 ? "unspecified launch failure" : "?";
}
