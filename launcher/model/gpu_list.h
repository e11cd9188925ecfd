// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "modelstore/control/gpu_view.h"

namespace bellows {

/// Only those of this tenant's jobs; of "" all.
std::vector<GpuForModels> gpus_of(const std::vector<GpuForModels>& gpus, const std::string& tenant);

/// A table of what is on the GPUs, and a line for each GPU; "" where there are none. A job is not
/// told whose anything is.
std::string gpu_text(const std::vector<GpuForModels>& gpus, bool in_job);
nlohmann::ordered_json gpu_json(const std::vector<GpuForModels>& gpus, bool in_job);

/// Where a model of this name is, and of this tenant unless that is "".
std::vector<std::string> copy_texts(const std::vector<GpuForModels>& gpus,
                                    const std::string& tenant, const std::string& name);
nlohmann::ordered_json copies_json(const std::vector<GpuForModels>& gpus, const std::string& tenant,
                                   const std::string& name);

}  // namespace bellows
