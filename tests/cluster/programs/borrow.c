/* SPDX-License-Identifier: Apache-2.0 */
/* Borrows models and says what it was lent: borrow [--gpu LIBRARY DEVICE] [--hold FILE] MODEL...
 * With a driver's library it opens them on that GPU, where this program can read what the test's
 * driver has. */
#include <bellows_model.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, LONGEST_HOLD = 300 };

/* Until there is a file of this name. */
static void hold(const char* until) {
  const struct timespec pause = {0, 20000000};
  const time_t end = time(NULL) + LONGEST_HOLD;
  while (access(until, F_OK) != 0 && time(NULL) < end) nanosleep(&pause, NULL);
}

static int borrow(const char* name, int device, bellows_model_t** model) {
  struct bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  struct bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  config.wait_ms = 30000;
  config.flags = device < 0 ? 0 : BELLOWS_MODEL_ON_GPU;
  config.device = device;
  const int rc = bellows_model_open(name, &config, model);
  if (rc != BELLOWS_MODEL_OK) {
    printf("%s: refused: %s\n", name, bellows_model_error(*model));
    return 1;
  }
  if (bellows_model_tensor(*model, 0, &tensor) != BELLOWS_MODEL_OK) return 1;
  unsigned long sum = 0;
  for (uint64_t i = 0; i < tensor.bytes; ++i) sum += ((const unsigned char*)tensor.data)[i];
  printf("%s: %s %lu\n", name, tensor.name, sum);
  return 0;
}

int main(int argc, char** argv) {
  bellows_model_t* models[MOST] = {NULL};
  const char* until = NULL;
  int failed = 0, first = 1, device = -1;
  if (argc > first + 2 && strcmp(argv[first], "--gpu") == 0) {
    if (!dlopen(argv[first + 1], RTLD_NOW | RTLD_GLOBAL)) {
      printf("%s\n", dlerror());
      return 1;
    }
    device = atoi(argv[first + 2]);
    first += 3;
  }
  if (argc > first + 1 && strcmp(argv[first], "--hold") == 0) {
    until = argv[first + 1];
    first += 2;
  }
  for (int i = first; i < argc && i - first < MOST; ++i)
    failed |= borrow(argv[i], device, &models[i - first]);
  fflush(stdout);
  if (until) hold(until);
  for (int i = 0; i < MOST; ++i) bellows_model_close(models[i]);
  return failed;
}
