// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/container/spec.h"
#include "common/contract.h"
#include "common/result.h"

/// Containers with a name that outlive their jobs.
namespace bellows::spank {

/// What a step gets that names such a container: the image from which the container was made, which
/// has to be allowed as any other that the step would name, since only the user vouches for it.
/// `spec` is what the step gets otherwise, and `asked` what it asked for. `remark`, for the user,
/// says what was ignored.
Result<container::Spec> with_lasting(const Contract& contract, const container::Spec& asked,
                                     const container::Spec& spec, const std::string& directory,
                                     uid_t uid, std::string& remark);

/// As root, at a job's end: once in a day, each user's containers go that no job has used for so
/// many days. What looks and removes is a process with that user's rights alone.
Status sweep_lasting(const std::string& directory, std::uint32_t days);

}  // namespace bellows::spank
