/* SPDX-License-Identifier: Apache-2.0 */
/* What probes that use the driver's own library have in common. Each is one file, which includes it
 * once and says its name before that, as PROBE. */
#ifndef PROBE_H
#define PROBE_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { kNone = 77 };

typedef int Call();
static void* library;

static void end(int status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, PROBE ": ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  exit(status);
}

static Call* function(const char* name) {
  Call* found = (Call*)dlsym(library, name);
  if (!found) end(1, "the driver has no %s", name);
  return found;
}

#define CHECK(name, ...)                                            \
  do {                                                              \
    int code = function(name)(__VA_ARGS__);                         \
    if (code) end(1, "%s gives the driver's error %d", name, code); \
  } while (0)

/* A context on the first GPU. */
static void open_gpu(void) {
  int count = 0, device = 0;
  void* context = NULL;
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) end(kNone, "%s", dlerror());
  if (function("cuInit")(0u) != 0) end(kNone, "the driver has no GPU for this process");
  CHECK("cuDeviceGetCount", &count);
  if (count == 0) end(kNone, "the driver has no GPU for this process");
  CHECK("cuDeviceGet", &device, 0);
  CHECK("cuDevicePrimaryCtxRetain", &context, device);
  CHECK("cuCtxPushCurrent_v2", context);
}

#endif
