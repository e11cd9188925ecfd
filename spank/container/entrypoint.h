// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/container/spec.h"
#include "common/result.h"
#include "spank/container/driver_files.h"

/// An image's entrypoint, the script /etc/rc as enroot writes it: it is given a program with its
/// arguments, and ends by becoming this program. Slurm lets a plugin exchange the words of a
/// command but not add any, so a script of ours stands between.
namespace bellows::container {

/// The script, and the variable that tells it which program the user wants.
inline constexpr const char* kEntrypointScript = "/usr/lib/bellows/entrypoint";
inline constexpr const char* kProgramVariable = "BELLOWS_PROGRAM";

/// The script, among the files of a new container whose maker wants it.
void add_entrypoint(const Spec& spec, const Site& site, std::vector<DriverFile>& files);

/// Whether the entrypoint runs the program, in the container that the caller is in. An error if the
/// user, not only the site, wants one that the image does not have.
Result<bool> runs_entrypoint(const Spec& spec, const Site& site);

}  // namespace bellows::container
