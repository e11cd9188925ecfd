// SPDX-License-Identifier: Apache-2.0
#include "modelstore/wire/control_lines.h"

#include "modelstore/wire/fixed_text.h"

namespace bellows::modelwire {
namespace {

bool has_right_texts(const ModelLine& line) {
  return is_fixed_text(line.tenant, line.tenant_length) &&
         is_fixed_text(line.name, line.name_length) &&
         is_fixed_text(line.source, line.source_length) &&
         is_fixed_text(line.visible, line.visible_length) &&
         is_fixed_text(line.text, line.text_length);
}

bool has_digest_or_zeros(const ModelLine& line) {
  if ((line.flags & ModelLine::kHasDigest) != 0) return true;
  for (const std::uint8_t byte : line.digest)
    if (byte != 0) return false;
  return true;
}

bool is_failure(Failure failure) {
  return failure <= Failure::none && failure >= Failure::unavailable;
}

}  // namespace

const char* check(const ModelLine& line, std::size_t size) {
  if (size != sizeof line) return "it has the wrong size";
  if (line.version != kVersion) return "it is of another version";
  if (!has_right_texts(line)) return "a text is not of its length";
  if (!is_plain_word(line.tenant, line.tenant_length) ||
      !is_model_name(line.name, line.name_length))
    return "no model can have this name";
  if (!is_visible_list(line.visible, line.visible_length))
    return "it does not name tenants with commas between, or * for all";
  if (line.place > Place::memory || (line.flags & ~ModelLine::kAllFlags) != 0)
    return "it says what is unknown";
  if (line.read_bytes > line.bytes) return "it has read more than there is";
  if (!is_failure(line.failure) || (line.failure != Failure::none) != (line.text_length > 0))
    return "it does not say why";
  return has_digest_or_zeros(line) ? nullptr : "it has a digest that is none";
}

const char* check(const StoreLine& line, std::size_t size) {
  if (size != sizeof line) return "it has the wrong size";
  if (line.version != kVersion) return "it is of another version";
  if (!is_fixed_text(line.tenant, line.tenant_length)) return "a text is not of its length";
  if (line.tenant_length > 0 && !is_plain_word(line.tenant, line.tenant_length))
    return "no tenant can have this name";
  if (line.disk > Disk::silent) return "it says what is unknown";
  if (line.disk == Disk::none && (line.disk_budget | line.disk_used | line.disk_images) != 0)
    return "it tells of a disk that there is not";
  return line.evicting <= line.used && line.tenant_evicting <= line.tenant_used
             ? nullptr
             : "it evicts more than there is";
}

const char* check(const HolderLine& line, std::size_t size) {
  if (size != sizeof line) return "it has the wrong size";
  if (line.version != kVersion) return "it is of another version";
  if (!is_fixed_text(line.tenant, line.tenant_length) || !is_fixed_text(line.job, line.job_length))
    return "a text is not of its length";
  if (!is_plain_word(line.tenant, line.tenant_length)) return "no tenant can have this name";
  if (!is_served_name(line.job, line.job_length)) return "no job can have this name";
  return nullptr;
}

}  // namespace bellows::modelwire
