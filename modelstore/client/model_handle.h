// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdarg.h>

#include <cstddef>

#include "common/plain/handle.h"
#include "modelstore/catalogue/catalogue.h"
#include "modelstore/client/gpu_memory.h"
#include "modelstore/include/bellows_model.h"
#include "modelstore/wire/model_wire.h"

struct bellows_model {
  char error[bellows::modelwire::kMostText + 1] = "";
  char digest[2 * bellows::modelwire::kDigestBytes + 1] = "";
  bellows::plain::Handle socket;   ///< as long as it is open, the memory is this program's
  bellows::plain::Mapping memory;  ///< of a model on a GPU: with its catalogue alone
  bellows::modelclient::GpuMemory gpu;
  bellows::catalogue::View view;
  bellows_model* next_kept = nullptr;

  /// Returns `code`, so that callers can `return model->fail(code, ...)`.
  int fail(int code, const char* format, ...) __attribute__((format(printf, 3, 4)));
};

namespace bellows::modelclient {

/// What was asked for.
struct Received {
  modelwire::ModelReply reply;
  plain::Handle memory;
  modelwire::ModelReply catalogue_reply;  ///< of a model on a GPU
  plain::Handle catalogue;
};

/// Connects, asks and waits for the answer. `gpu`: of the request. BELLOWS_MODEL_OK, or the model's
/// error says why not.
int ask(bellows_model* model, modelwire::Op op, const char* name,
        const bellows_model_config& config, std::uint64_t gpu, Received* received);

/// Maps what came with the answer. `flags`: of bellows_model_config.
int take_memory(bellows_model* model, const Received& received, std::uint32_t flags);
/// Likewise of a model on the GPU that the model has found.
int take_gpu_memory(bellows_model* model, const Received& received);

}  // namespace bellows::modelclient
