// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/system/file_ops.h"
#include "common/result.h"
#include "launcher/ckpt/contents.h"
#include "launcher/ckpt/progress.h"

namespace bellows {

/// A safetensors file to be: its header, and the arrays in the order of their bytes.
struct TensorFile {
  std::string head;  ///< length and JSON text, a multiple of 8 bytes
  std::vector<const StoredArray*> order;
  std::uint64_t bytes = 0;  ///< of the arrays, which follow the head without holes
};

/// Larger elements come first, so that each array lies at a multiple of its element's size. One
/// rank's own array is NAME.rank3; values are arrays like others. Arrays named in `except` are left
/// out. invalid: the format has no such type or the names collide; says which and what to do.
Result<TensorFile> lay_out_tensors(const StepContents& contents,
                                   const std::set<std::string>& except);

/// Writes the file beside its place, makes it durable and renames it. What fails or is interrupted
/// leaves `path` as it was, and nothing beside it.
Status write_tensors(FileOps& ops, const StepContents& contents, const TensorFile& file,
                     const std::string& path, ProgressBar& progress);

}  // namespace bellows
