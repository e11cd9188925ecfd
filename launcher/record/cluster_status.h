// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bellows {

/// Prints which policy slurmctld has in force. Returns the exit status of `bellows`.
int show_cluster_status(bool json);

}  // namespace bellows
