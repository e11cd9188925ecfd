// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "modelstore/format/safetensors.h"

namespace bellows {

/// One of the files that a model is read from.
struct ModelFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<FileTensor> tensors;
};

/// Bytes of a file that lie together in the model's memory too.
struct ModelPiece {
  std::uint32_t file = 0;
  std::uint64_t from = 0;  ///< in the file
  std::uint64_t to = 0;    ///< in memory
  std::uint64_t bytes = 0;
};

/// How a model lies in memory: its data, then at a multiple of kModelPage the catalogue. README.md
/// says by which rules, since the model's digest covers what comes out.
struct ModelLayout {
  std::vector<ModelPiece> pieces;  ///< ascending; what lies between them is zero
  std::string catalogue;
  std::uint64_t catalogue_at = 0;
  std::uint64_t bytes = 0;  ///< of all, a multiple of kModelPage
};

inline constexpr std::uint64_t kModelPage = 4096;

/// With an index, what it names must be where it says, and what it doesn't name is no tensor of the
/// model. corrupt: index and files contradict each other, or the model is too large.
Result<ModelLayout> lay_out_model(const std::vector<ModelFile>& files,
                                  const std::optional<TensorIndex>& index);

/// Of tensors that are put together in memory: each lies by itself there, in the order of their
/// names, which becomes that of `tensors`; `offset` is set to where, and there are no pieces.
/// corrupt: a name appears twice, or the model is too large.
Result<ModelLayout> lay_out_tensors(std::vector<FileTensor>* tensors);

}  // namespace bellows
