// SPDX-License-Identifier: Apache-2.0
#include "modelstore/control/gpu_view.h"

#include <utility>

#include "modelstore/control/packet_question.h"

namespace bellows {
namespace {

std::string address_of(std::uint64_t gpu) {
  char text[modelwire::kGpuText];
  modelwire::write_gpu(gpu, text);
  return text;
}

template <typename Line>
ModelOnGpu model_of(const Line& line) {
  ModelOnGpu model;
  model.name.assign(line.name, line.name_length);
  model.state = line.state;
  model.bytes = line.bytes;
  model.copied_bytes = line.copied_bytes;
  model.references = line.references;
  model.waiting = line.waiting;
  if (line.failure != modelwire::Failure::none)
    model.trouble = Error{kind_of(line.failure), std::string(line.text, line.text_length)};
  return model;
}

/// A model's line names the GPU of the line before, and tells of it what is true by then.
template <typename Line>
Status take(std::vector<GpuForModels>& gpus, const Line& line, const std::string& job,
            const std::string& tenant, ModelOnGpu model) {
  const std::string address = address_of(line.gpu);
  if (line.state == modelwire::OnGpu::none)
    gpus.push_back({job, tenant, address, 0, 0, 0, {}});
  else if (gpus.empty() || gpus.back().job != job || gpus.back().address != address)
    return store_nonsense("it tells of a model on a GPU that there is not");
  gpus.back().budget = line.budget;
  gpus.back().used = line.used;
  gpus.back().evicting = line.evicting;
  if (line.state != modelwire::OnGpu::none) gpus.back().models.push_back(std::move(model));
  return {};
}

}  // namespace

Status take_line(std::vector<GpuForModels>& gpus, const modelwire::GpuEntry& line) {
  return take(gpus, line, "", "", model_of(line));
}

Status take_line(std::vector<GpuForModels>& gpus, const modelwire::GpuLine& line) {
  ModelOnGpu model = model_of(line);
  model.tenant.assign(line.tenant, line.tenant_length);
  return take(gpus, line, {line.job, line.job_length}, {line.job_tenant, line.job_tenant_length},
              std::move(model));
}

}  // namespace bellows
