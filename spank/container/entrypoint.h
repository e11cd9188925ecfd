// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/container/spec.h"
#include "common/result.h"
#include "spank/container/image_variables.h"

/// An image's entrypoint, the script /etc/rc as enroot writes it: it is given a program, and ends
/// by becoming this program. As with pyxis, it runs before the task's program, in a process of its
/// own, with a program of ours that only says in which environment it was started: this is passed
/// on. So nothing that it does to its descriptors, signals or limits reaches the task's program.
namespace bellows::container {

inline constexpr const char* kEntrypoint = "/etc/rc";

/// Whether one runs before the program, in the container that the caller is in. An error if the
/// user, not only the site, wants one that the image does not have.
Result<bool> runs_entrypoint(const Spec& spec, const Site& site);

/// What it is given: `container`, which the program would get without it, and of the job's
/// variables those that the user keeps, and PATH if the container has none.
Variables entrypoint_variables(const Spec& spec, const Variables& container,
                               const VariableLookup& lookup);

/// What it writes.
enum class EntrypointOutput {
  shown,     ///< at once
  on_error,  ///< only when it starts no program
};

/// The variables with which `script` starts a program; it waits for its end, however long that
/// takes. Afterwards it may have left processes behind.
Result<Variables> run_entrypoint(const Variables& variables, EntrypointOutput output,
                                 const std::string& script = kEntrypoint);

/// What the program is given, beside the job's: what the entrypoint started a program with, but
/// what the user keeps as it was before. Not what a shell says of itself.
Variables variables_after(const Spec& spec, const Variables& before, const Variables& after,
                          const VariableLookup& lookup);

/// The text of a /proc/PID/environ.
Variables parse_process_environment(std::string_view text);

}  // namespace bellows::container
