// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "modelstore/daemon/model_registry.h"

namespace bellows {

/// A model that is there from the start.
struct ModelOption {
  std::string tenant;
  std::string name;  ///< of a folder: what its models' names begin with, or nothing
  ModelFrom from;
  std::string visible;
};

}  // namespace bellows
