// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/text.h"
#include "modelstore/daemon/failure_of.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/wire/model_wire.h"

namespace bellows {

/// Cuts what is too long.
template <std::size_t kBytes>
void put(char (&field)[kBytes], std::uint32_t& length, std::string_view text) {
  length = static_cast<std::uint32_t>(std::min(text.size(), kBytes - 1));
  std::memcpy(field, text.data(), length);
}

inline modelwire::Place place_of(ModelBook::State state) {
  if (state == ModelBook::State::absent) return modelwire::Place::absent;
  return state == ModelBook::State::resident ? modelwire::Place::memory : modelwire::Place::loading;
}

/// What a line for administrators and one for a job have in common.
template <typename Line>
void put_state(Line& line, const ModelRegistry& registry, const MemoryTier& tier, ModelId id) {
  const ModelBook& book = tier.book();
  const BookEntry entry = book.entry(id);
  line.place = place_of(book.state(id));
  line.bytes = entry.bytes;
  if (const auto progress = tier.progress_of(id)) line.read_bytes = progress->done;
  line.read_bytes = std::min(line.read_bytes, line.bytes);
  if (const auto& digest = registry.get(id)->digest) {
    line.flags |= Line::kHasDigest;
    std::memcpy(line.digest, digest->bytes.data(), sizeof line.digest);
  }
  if (const auto& trouble = entry.trouble) {
    const std::string text = one_line(trouble->text, modelwire::kMostText);
    line.failure = failure_of(trouble->kind);
    put(line.text, line.text_length, text.empty() ? "it says nothing" : text);
  }
}

/// What a job's socket tells of a model that its tenant sees.
inline modelwire::ModelEntry entry_of(const ModelRegistry& registry, const MemoryTier& tier,
                                      ModelId id, TenantId viewer) {
  modelwire::ModelEntry entry;
  put_state(entry, registry, tier, id);
  const ModelRegistry::Registered& model = *registry.get(id);
  if (model.tenant == viewer) entry.flags |= modelwire::ModelEntry::kOwn;
  put(entry.name, entry.name_length, model.name);
  return entry;
}

}  // namespace bellows
