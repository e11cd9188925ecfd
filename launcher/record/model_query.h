// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/contract.h"
#include "launcher/record/model_progress.h"
#include "slurm/interface.h"

namespace bellows {

/// Asks the nodes of a running job, by a step. Empty: they load none of its models, or do not say
/// in time.
std::vector<NodeModels> ask_model_progress(const SlurmJob& job, const Contract& contract);

}  // namespace bellows
