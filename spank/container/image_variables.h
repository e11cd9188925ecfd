// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/container/spec.h"

namespace bellows::container {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Whether one of them has that name.
bool says(const Variables& variables, std::string_view name);
using VariableLookup = std::function<std::optional<std::string>(const char* name)>;

/// The variables of an /etc/environment, NAME=VALUE on each line, as enroot's images have it; the
/// value is taken as it stands, but for quotes around the whole. Other lines are skipped.
Variables parse_environment(std::string_view text);

/// What the step's environment loses in a container, as pyxis has it: an image rarely has the
/// host's languages. Not where `spec.env` names the variable.
std::vector<std::string> dropped_variables(const Spec& spec);

/// Whether the job's value of a variable stands against the image's: `spec.env` names it, and the
/// job has one.
bool keeps(const Spec& spec, std::string_view name, const VariableLookup& lookup);

/// What the text of an /etc/environment sets in a program's environment: not what the job keeps,
/// nor what is Slurm's or Bellows'.
Variables image_settings(std::string_view text, const Spec& spec, const VariableLookup& lookup);

/// What to set in the environment of a program in the container that the caller is in: what the
/// image says, and the search paths for the host's driver.
Variables image_variables(const Spec& spec, const VariableLookup& lookup);

}  // namespace bellows::container
