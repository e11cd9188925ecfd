/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a model by libbellows_model, as many times at once as it is told to.
 *
 * usage: model_open SOCKET NAME [TIMES [FILE]]
 *
 * Prints its digest, or the error and exits with 1. The tensor "w" of it goes to FILE. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bellows_model.h"

static int open_one(const char* socket, const char* name, const char* file) {
  struct bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  struct bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  bellows_model_t* model = NULL;
  FILE* out;
  int right;

  config.socket = socket;
  config.wait_ms = 60000;
  if (bellows_model_open(name, &config, &model) != BELLOWS_MODEL_OK) {
    printf("%s\n", bellows_model_error(model));
    return 1;
  }
  printf("%s\n", bellows_model_digest(model));
  if (!file) return 0;
  out = fopen(file, "w");
  right = out && bellows_model_find(model, "w", &tensor) == BELLOWS_MODEL_OK &&
          fwrite(tensor.data, 1, tensor.bytes, out) == tensor.bytes;
  return out && fclose(out) == 0 && right ? 0 : 1;
}

int main(int argc, char** argv) {
  const int times = argc > 3 ? atoi(argv[3]) : 1;
  int i, status, failed = 0;

  if (argc < 3) return 2;
  if (times == 1) return open_one(argv[1], argv[2], argc > 4 ? argv[4] : NULL);
  for (i = 0; i < times; ++i) {
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) exit(open_one(argv[1], argv[2], NULL));
  }
  for (i = 0; i < times; ++i) failed += wait(&status) < 0 || status != 0;
  return failed ? 1 : 0;
}
