// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "paramserver/include/bellows_ps.h"
#include "paramserver/wire/ps_wire.h"

namespace bellows::ps {

/// What a learner says of its rule when it joins, with so many tensors.
PsMessage join_of(const bellows_ps_config& config, std::size_t tensors);

}  // namespace bellows::ps
