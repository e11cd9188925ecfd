// SPDX-License-Identifier: Apache-2.0
#include "modelstore/wire/gpu_lines.h"

#include "modelstore/wire/fixed_text.h"

namespace bellows::modelwire {
namespace {

/// What a line has to say of its model, or must not where it has none.
template <typename Line>
const char* check_model(const Line& line) {
  if (line.state > OnGpu::lent) return "it says what is unknown";
  if (line.copied_bytes > line.bytes) return "it has copied more than there is";
  if (line.failure > Failure::none || line.failure < Failure::unavailable ||
      (line.failure != Failure::none) != (line.text_length > 0))
    return "it does not say why";
  if (line.state == OnGpu::none) {
    const bool has_none = line.name_length == 0 && line.text_length == 0 &&
                          (line.bytes | line.references | line.waiting) == 0;
    return has_none ? nullptr : "it tells of a model that there is not";
  }
  if (!is_model_name(line.name, line.name_length)) return "no model can have this name";
  if ((line.state == OnGpu::lent) != (line.references > 0))
    return "it is lent to nobody, or somebody has what is not lent";
  return nullptr;
}

/// What it says of the GPU.
template <typename Line>
const char* check_gpu(const Line& line) {
  if (line.gpu > kLastGpu) return "no GPU can have this address";
  return line.evicting <= line.used ? nullptr : "it evicts more than there is";
}

}  // namespace

const char* check(const GpuEntry& entry, std::size_t size) {
  if (size != sizeof entry) return "it has the wrong size";
  if (entry.version != kVersion) return "it is of another version";
  if (entry.answer != Answer::gpu) return "it says what is unknown";
  if (!is_fixed_text(entry.name, entry.name_length) ||
      !is_fixed_text(entry.text, entry.text_length))
    return "a text is not of its length";
  if (const char* wrong = check_gpu(entry)) return wrong;
  return check_model(entry);
}

const char* check(const GpuLine& line, std::size_t size) {
  if (size != sizeof line) return "it has the wrong size";
  if (line.version != kVersion) return "it is of another version";
  if (!is_fixed_text(line.job, line.job_length) ||
      !is_fixed_text(line.job_tenant, line.job_tenant_length) ||
      !is_fixed_text(line.tenant, line.tenant_length) ||
      !is_fixed_text(line.name, line.name_length) || !is_fixed_text(line.text, line.text_length))
    return "a text is not of its length";
  if (!is_served_name(line.job, line.job_length)) return "no job can have this name";
  const bool has_model = line.state != OnGpu::none;
  if ((line.job_tenant_length > 0 && !is_plain_word(line.job_tenant, line.job_tenant_length)) ||
      (line.tenant_length > 0) != has_model ||
      (has_model && !is_plain_word(line.tenant, line.tenant_length)))
    return "no tenant can have this name";
  if (const char* wrong = check_gpu(line)) return wrong;
  return check_model(line);
}

}  // namespace bellows::modelwire
