// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "modelstore/catalogue/catalogue.h"

namespace bellows {

/// A tensor as the header of its file has it.
struct FileTensor {
  std::string name;
  catalogue::TensorType type = catalogue::TensorType::u8;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t bytes = 0;
};

/// A safetensors file begins with the length of its header, in so many bytes.
inline constexpr std::size_t kLengthBytes = 8;

/// The length of the header from the first kLengthBytes bytes of a file of `file_bytes`. corrupt:
/// it is over 100 MB, which is the format's limit, or longer than the file.
Result<std::uint64_t> header_length(std::string_view begin, std::uint64_t file_bytes);

/// The tensors of a file, in the order in which they lie there. They fill the file behind its
/// header without holes and overlaps, no name appears twice, and every size is that of type and
/// shape. corrupt: the header is not such a header.
Result<std::vector<FileTensor>> parse_header(std::string_view header, std::uint64_t file_bytes);

/// model.safetensors.index.json: which file has which tensor.
struct TensorIndex {
  std::vector<std::string> files;  ///< plain names, in order
  std::map<std::string, std::uint32_t> file_of;
};

/// A longer index is not read.
inline constexpr std::size_t kMostIndex = 100'000'000;
inline constexpr std::size_t kMostFiles = 4096;

/// corrupt: it is not such an index. A file's name is one of the index's own folder.
Result<TensorIndex> parse_index(std::string_view text);

}  // namespace bellows
