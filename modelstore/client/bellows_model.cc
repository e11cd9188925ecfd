// SPDX-License-Identifier: Apache-2.0
#include "modelstore/include/bellows_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>

#include "modelstore/client/model_handle.h"

namespace client = bellows::modelclient;
namespace modelwire = bellows::modelwire;

int bellows_model::fail(int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, sizeof error, format, arguments);
  va_end(arguments);
  return code;
}

namespace {

bellows_model* make_handle() {
  void* memory = malloc(sizeof(bellows_model));
  return memory ? new (memory) bellows_model : nullptr;
}

/// What the caller's version of the library knew, and the defaults of the rest.
int read_config(bellows_model* model, const bellows_model_config* given,
                bellows_model_config* config) {
  if (!given) return BELLOWS_MODEL_OK;
  if (given->size < sizeof(size_t))
    return model->fail(BELLOWS_MODEL_ERR_INVALID,
                       "config.size is %zu: begin with BELLOWS_MODEL_CONFIG_INIT", given->size);
  memcpy(config, given, given->size < sizeof *config ? given->size : sizeof *config);
  constexpr unsigned kFlags = BELLOWS_MODEL_WRITABLE | BELLOWS_MODEL_ON_GPU;
  if (config->flags & ~kFlags)
    return model->fail(BELLOWS_MODEL_ERR_INVALID,
                       "config.flags is %x, of which this library knows only %x", config->flags,
                       kFlags);
  if (config->flags == kFlags)
    return model->fail(BELLOWS_MODEL_ERR_INVALID, "a model on a GPU can only be read");
  return BELLOWS_MODEL_OK;
}

/// Where the model is to be opened: the request's.
int find_gpu(bellows_model* model, const bellows_model_config& config, std::uint64_t* gpu) {
  if (!(config.flags & BELLOWS_MODEL_ON_GPU)) return BELLOWS_MODEL_OK;
  return model->gpu.find(model, config.device, gpu);
}

void fill(const bellows_model_t* model, std::uint32_t index, bellows_tensor* out) {
  const auto& record = model->view.record(index);
  bellows_tensor tensor = BELLOWS_TENSOR_INIT;
  tensor.size = out->size;
  tensor.name = model->view.name(index);
  tensor.dtype = static_cast<std::int32_t>(record.type);
  tensor.ndims = static_cast<std::int32_t>(record.dims);
  tensor.shape = record.shape;
  tensor.bytes = record.bytes;
  tensor.data = model->gpu.is_mapped()
                    ? reinterpret_cast<const void*>(model->gpu.memory() + record.offset)
                    : model->memory.data() + record.offset;
  memcpy(out, &tensor, out->size < sizeof tensor ? out->size : sizeof tensor);
}

/// What the program has closed, and its GPU may read still. Without a lock, which a fork could
/// leave locked for ever.
std::atomic<bellows_model*> kept{nullptr};

void end(bellows_model* model) {
  if (!model->gpu.reset()) {
    model->next_kept = kept.load();
    while (!kept.compare_exchange_weak(model->next_kept, model)) {
    }
    return;
  }
  // The memory goes before the reference to it.
  model->memory.reset();
  model->~bellows_model();
  free(model);
}

bool can_fill(const bellows_model_t* model, const bellows_tensor* tensor) {
  return model && tensor && tensor->size >= sizeof(size_t);
}

}  // namespace

extern "C" {

int bellows_model_open(const char* name, const struct bellows_model_config* given,
                       bellows_model_t** out) {
  if (!out) return BELLOWS_MODEL_ERR_INVALID;
  bellows_model* model = *out = make_handle();
  if (!model) return BELLOWS_MODEL_ERR_MEMORY;
  bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  int rc = read_config(model, given, &config);
  std::uint64_t gpu = modelwire::kNoGpu;
  client::Received received;
  if (rc == BELLOWS_MODEL_OK) rc = find_gpu(model, config, &gpu);
  if (rc == BELLOWS_MODEL_OK)
    rc = client::ask(model, modelwire::Op::open, name, config, gpu, &received);
  if (rc == BELLOWS_MODEL_OK)
    rc = gpu == modelwire::kNoGpu ? client::take_memory(model, received, config.flags)
                                  : client::take_gpu_memory(model, received);
  if (rc == BELLOWS_MODEL_OK) return rc;
  (void)model->gpu.reset();
  model->socket.reset(-1);
  model->memory.reset();
  model->view = {};
  return rc;
}

int bellows_model_prefetch(const char* name, const struct bellows_model_config* given,
                           bellows_model_t** failed) {
  if (failed) *failed = nullptr;
  bellows_model* model = make_handle();
  if (!model) return BELLOWS_MODEL_ERR_MEMORY;
  bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
  int rc = read_config(model, given, &config);
  std::uint64_t gpu = modelwire::kNoGpu;
  client::Received received;
  if (rc == BELLOWS_MODEL_OK) rc = find_gpu(model, config, &gpu);
  if (rc == BELLOWS_MODEL_OK)
    rc = client::ask(model, modelwire::Op::prefetch, name, config, gpu, &received);
  model->socket.reset(-1);
  if (rc != BELLOWS_MODEL_OK && failed) {
    *failed = model;
  } else {
    bellows_model_close(model);
  }
  return rc;
}

uint64_t bellows_model_count(const bellows_model_t* model) {
  return model ? model->view.count() : 0;
}

int bellows_model_tensor(const bellows_model_t* model, uint64_t index,
                         struct bellows_tensor* tensor) {
  if (!can_fill(model, tensor) || index >= model->view.count()) return BELLOWS_MODEL_ERR_INVALID;
  fill(model, static_cast<std::uint32_t>(index), tensor);
  return BELLOWS_MODEL_OK;
}

int bellows_model_find(const bellows_model_t* model, const char* name,
                       struct bellows_tensor* tensor) {
  if (!can_fill(model, tensor) || !name) return BELLOWS_MODEL_ERR_INVALID;
  const std::uint32_t index = model->view.find(name, strlen(name));
  if (index == model->view.count()) return BELLOWS_MODEL_ERR_NOT_FOUND;
  fill(model, index, tensor);
  return BELLOWS_MODEL_OK;
}

const char* bellows_model_digest(const bellows_model_t* model) {
  return model ? model->digest : "";
}

const char* bellows_model_error(const bellows_model_t* model) {
  return model ? model->error : "out of memory";
}

void bellows_model_close(bellows_model_t* model) {
  if (!model) return;
  bellows_model* before = kept.exchange(nullptr);
  end(model);
  while (before) {
    bellows_model* next = before->next_kept;
    end(before);
    before = next;
  }
}

}  // extern "C"
