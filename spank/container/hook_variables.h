// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/container/spec.h"
#include "spank/container/image_variables.h"

namespace bellows::container {

/// The first host of a list of Slurm's, "n[01-04,7],m1"; empty: it is none.
std::string first_host(std::string_view list);

/// What pyxis and enroot's hooks 50-slurm-pytorch and 50-slurm-pmi set in a task's environment: for
/// an image that says PYTORCH_VERSION, where its processes find one another; for a step with PMIx,
/// which of its modules the server uses. `image`: what image_variables() said.
Variables hook_variables(const Spec& spec, const Variables& image, const VariableLookup& lookup);

}  // namespace bellows::container
