// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/hdf5_file.h"
#include "checkpoint/format/manifest.h"
#include "common/result.h"
#include "modelstore/format/model_layout.h"
#include "modelstore/loader/source_file.h"

namespace bellows {

/// An HDF5 file as a model: each dataset is a tensor, named by its path without the first slash.
/// Only what lies in the file itself, of numbers, without filters but deflate, shuffle and
/// fletcher32. HDF5 is not made for hostile files: to be used when the process has given up all.
class Hdf5Model {
 public:
  /// corrupt: it is no such file; names it, and the dataset. `file` must outlive the model. From
  /// here on the process may have kMostMemory of its own.
  static Result<Hdf5Model> open(const SourceFile& file);
  static constexpr std::uint64_t kMostMemory = std::uint64_t{4} << 30;

  Result<ModelLayout> lay_out();
  /// To memory that has pages.
  Status fill(unsigned char* memory, const Progress& progress) const;

 private:
  Hdf5Model(std::string name, hdf5::Hid file) : name_(std::move(name)), file_(std::move(file)) {}
  Status fill_one(const FileTensor& tensor, unsigned char* to, const Progress& progress) const;

  std::string name_;
  hdf5::Hid file_;
  std::vector<FileTensor> tensors_;
};

}  // namespace bellows
