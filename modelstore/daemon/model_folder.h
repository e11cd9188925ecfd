// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/result.h"
#include "modelstore/daemon/model_options.h"

namespace bellows {

struct FolderModels {
  std::vector<ModelOption> models;
  bool has_more = false;  ///< than kMostOfFolder, the first of which are here
};

inline constexpr std::size_t kMostOfFolder = 4096;

/// The models that lie in a folder, by their names: each file *.safetensors and each folder there.
/// Whether it really is one, the loader sees. They are looked for with the rights of the option's
/// user, by a process of its own, since the folder may hang. The caller must have one thread.
///
/// unavailable: the folder can't be read so, or not within `limit`; denied: this user's rights
/// can't be taken; not_found: there is no such user.
Result<FolderModels> models_in_folder(const ModelOption& folder, std::chrono::milliseconds limit);

}  // namespace bellows
