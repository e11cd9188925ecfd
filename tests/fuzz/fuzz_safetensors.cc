// SPDX-License-Identifier: Apache-2.0
/// A safetensors file or an index. What is refused is so with a sentence; a file that passes has
/// tensors that fill it, and a catalogue that the library takes, with every tensor at a place of
/// its own that a piece of the file comes to.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "modelstore/format/model_layout.h"

namespace {

using namespace bellows;

void require(bool holds) {
  if (!holds) std::abort();
}

void refused(const Error& error) {
  require(error.kind == ErrorKind::corrupt && !error.text.empty() && error.text.size() < 500);
  require(error.text.find('\n') == std::string::npos);
}

/// Whether a piece brings the tensor's bytes to where the catalogue has them.
bool is_brought(const ModelLayout& layout, const FileTensor& tensor, std::uint64_t at) {
  return tensor.bytes == 0 ||
         std::any_of(layout.pieces.begin(), layout.pieces.end(), [&](const ModelPiece& p) {
           return tensor.offset >= p.from && tensor.offset + tensor.bytes <= p.from + p.bytes &&
                  at == p.to + (tensor.offset - p.from);
         });
}

void check_layout(const ModelFile& file) {
  const auto layout = lay_out_model({file}, {});
  require(layout.ok());
  std::uint64_t end = 0;
  for (const ModelPiece& piece : layout->pieces) {
    require(piece.to >= end && piece.from + piece.bytes <= file.bytes);
    end = piece.to + piece.bytes;
  }
  require(end <= layout->catalogue_at && layout->catalogue_at % kModelPage == 0);
  require(layout->catalogue_at + layout->catalogue.size() <= layout->bytes);
  catalogue::View view;
  require(!view.open(layout->catalogue.data(), layout->catalogue.size()));
  require(view.count() == file.tensors.size() && view.data_bytes() <= layout->catalogue_at);
  for (const FileTensor& tensor : file.tensors) {
    const std::uint32_t i = view.find(tensor.name.data(), tensor.name.size());
    require(i < view.count() && is_brought(*layout, tensor, view.record(i).offset));
  }
}

void check_file(std::string_view bytes) {
  const auto length = header_length(bytes, bytes.size());
  if (!length) return refused(length.error());
  auto tensors = parse_header(bytes.substr(kLengthBytes, *length), bytes.size());
  if (!tensors) return refused(tensors.error());
  std::uint64_t end = kLengthBytes + *length;
  for (const FileTensor& tensor : *tensors) {
    require(tensor.offset == end && !tensor.name.empty());
    end += tensor.bytes;
  }
  require(end == bytes.size());
  check_layout({"file", bytes.size(), std::move(*tensors)});
}

void check_index(std::string_view text) {
  const auto index = parse_index(text);
  if (!index) return refused(index.error());
  require(!index->files.empty() && !index->file_of.empty());
  for (const std::string& name : index->files) require(name.find('/') == std::string::npos);
  for (const auto& [tensor, file] : index->file_of) require(file < index->files.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_file(bytes);
  // Most mutations make the length a wrong one: without it the header itself is reached.
  if (const auto tensors = parse_header(bytes, size + kLengthBytes); !tensors)
    refused(tensors.error());
  check_index(bytes);
  return 0;
}
