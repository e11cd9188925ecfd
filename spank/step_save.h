// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spank/host.h"
#include "spank/save.h"

namespace bellows::spank {

/// Who saves a container of slurmstepd's step, and with what: all but the container's name, where
/// the file is named, and its path.
SaveRequest step_save(spank_t spank, const Settings& settings);

}  // namespace bellows::spank
