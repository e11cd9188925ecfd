// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace bellows {

/// What an error number of Slurm's library says: unavailable for whatever is not slurmctld's own
/// verdict. Such a request may nevertheless have been carried out.
ErrorKind slurm_error_kind(int code);

}  // namespace bellows
