/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C, as strict as C compilers are about headers. */
#include "tests/unit/modelstore/from_c.h"

#include <string.h>

#include "modelstore/include/bellows_model.h"

int read_from_c(const char* socket, const char* name, const char* wanted) {
  struct bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  struct bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  bellows_model_t* model;
  int same = 0;
  config.socket = socket;
  if (bellows_model_open(name, &config, &model) == BELLOWS_MODEL_OK &&
      bellows_model_find(model, "w", &tensor) == BELLOWS_MODEL_OK)
    same = tensor.bytes == strlen(wanted) && memcmp(tensor.data, wanted, tensor.bytes) == 0;
  bellows_model_close(model);
  return same;
}

int refuses_nonsense(const char* socket) {
  struct bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  struct bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  bellows_model_t* model = NULL;
  int refused = bellows_model_open("m", NULL, NULL) == BELLOWS_MODEL_ERR_INVALID;
  config.socket = socket;
  refused &= bellows_model_open(NULL, &config, &model) == BELLOWS_MODEL_ERR_INVALID;
  refused &= *bellows_model_error(model) != 0 && bellows_model_count(model) == 0;
  refused &= bellows_model_tensor(model, 0, &tensor) == BELLOWS_MODEL_ERR_INVALID;
  bellows_model_close(model);
  config.size = 1;
  refused &= bellows_model_open("m", &config, &model) == BELLOWS_MODEL_ERR_INVALID;
  bellows_model_close(model);
  refused &= bellows_model_tensor(NULL, 0, &tensor) == BELLOWS_MODEL_ERR_INVALID;
  refused &= bellows_model_find(NULL, "w", &tensor) == BELLOWS_MODEL_ERR_INVALID;
  bellows_model_close(NULL);
  return refused;
}
