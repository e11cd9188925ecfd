// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/container/spec.h"
#include "common/result.h"

namespace bellows::container {

/// The text of a Spec is never longer, so that it fits a job contract with much else in it.
constexpr std::size_t kMostText = 2560;

/// A Spec as one line, `image:/i/a.sqsh,mount:/data:/data:ro,no-home`, in which what options
/// commonly say needs no percent encoding in a contract. Empty for Spec().
std::string spec_text(const Spec& spec);

/// What srun, sbatch and slurmctld wrote, in slurmctld and slurmstepd: hostile, so everything is
/// checked again. Paths must be absolute; that of the image without "..".
/// invalid: a sentence that says what is wrong.
Result<Spec> parse_spec(std::string_view text);

/// `over` where it says something, else `base`: key by key, so that its mounts replace all mounts.
Spec overlay(const Spec& base, const Spec& over);

}  // namespace bellows::container
