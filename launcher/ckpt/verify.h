// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "checkpoint/store/store.h"
#include "common/result.h"
#include "launcher/ckpt/place.h"
#include "launcher/ckpt/progress.h"

namespace bellows {

/// Bytes of the files that a manifest lists.
std::uint64_t size_of(const Manifest& manifest);

/// Holds every byte of a step to its digest, and checks that its parts make whole arrays.
Result<Manifest> verify_shown(const StepPlace& place, ProgressBar& progress);

}  // namespace bellows
