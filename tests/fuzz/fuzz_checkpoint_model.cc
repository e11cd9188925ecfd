// SPDX-License-Identifier: Apache-2.0
/// The indexes of a step, separated by zeros, as its owner could leave them. What is refused is so
/// with a sentence; a step that passes has a catalogue that the library takes, with every tensor at
/// a place of its own, and no read writes anywhere but in the tensors.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/digest.h"
#include "modelstore/loader/checkpoint_model.h"

namespace {

using namespace bellows;

constexpr std::uint64_t kMostMemory = 64 << 20;

void require(bool holds) {
  if (!holds) std::abort();
}

void refused(const Error& error) {
  require(error.kind == ErrorKind::corrupt && !error.text.empty());
}

std::vector<std::string> texts_of(std::string_view bytes) {
  std::vector<std::string> texts(1);
  for (const char c : bytes) {
    if (c == '\0' && texts.size() < 8)
      texts.emplace_back();
    else
      texts.back() += c;
  }
  return texts;
}

/// A manifest to which the indexes belong, if they are any.
Manifest manifest_of(const std::vector<std::string>& texts) {
  Manifest manifest;
  manifest.world = static_cast<std::uint32_t>(texts.size());
  for (std::uint32_t rank = 0; rank < manifest.world; ++rank) {
    const auto index = ShardIndex::parse(texts[rank]);
    if (rank == 0 && index) manifest.step = index->step;
    manifest.shards.push_back({rank, shard_name(rank, manifest.world), index ? index->size : 0,
                               index_name(rank, manifest.world), texts[rank].size(),
                               digest_of(texts[rank])});
  }
  return manifest;
}

/// Reads shards of ones: where nothing is put, the memory stays as it was.
void check_fill(const CheckpointModel& model, const ModelLayout& layout,
                const catalogue::View& view) {
  std::vector<unsigned char> memory(layout.bytes);
  const ReadFile ones = [](unsigned char* to, std::uint64_t bytes, std::uint64_t) {
    std::memset(to, 1, bytes);
    return Status();
  };
  const auto filled =
      model.fill(std::vector<ReadFile>(model.shards().size(), ones), memory.data(), {});
  if (!filled) refused(filled.error());
  std::vector<unsigned char> left = memory;
  for (std::uint32_t i = 0; i < view.count(); ++i) {
    const auto begin = left.begin() + static_cast<std::ptrdiff_t>(view.record(i).offset);
    const auto end = begin + static_cast<std::ptrdiff_t>(view.record(i).bytes);
    if (filled) require(std::all_of(begin, end, [](unsigned char c) { return c == 1; }));
    std::fill(begin, end, static_cast<unsigned char>(0));
  }
  require(std::all_of(left.begin(), left.end(), [](unsigned char c) { return c == 0; }));
}

void check_layout(const ModelLayout& layout, const catalogue::View& view) {
  require(layout.pieces.empty() && layout.catalogue_at % kModelPage == 0);
  require(layout.catalogue_at + layout.catalogue.size() <= layout.bytes);
  require(view.count() > 0 && view.data_bytes() <= layout.catalogue_at);
  std::uint64_t end = 0;
  for (std::uint32_t i = 0; i < view.count(); ++i) {
    require(view.record(i).offset >= end && view.record(i).offset % 64 == 0);
    end = view.record(i).offset + view.record(i).bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto texts = texts_of({reinterpret_cast<const char*>(data), size});
  auto model = CheckpointModel::parse_manifest("/step", manifest_of(texts).to_string());
  require(model.ok());
  for (const std::string& text : texts) require(model->add_index(text).ok());
  const auto layout = model->read_indexes([] {});
  if (!layout) {
    refused(layout.error());
    return 0;
  }
  catalogue::View view;
  require(!view.open(layout->catalogue.data(), layout->catalogue.size()));
  check_layout(*layout, view);
  if (layout->bytes <= kMostMemory) check_fill(*model, *layout, view);
  return 0;
}
