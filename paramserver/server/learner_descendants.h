// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bellows::ps {

/// Kills every process that has the environment of a learner with this socket, and so also what has
/// left its learner's process group, as daemons do. Not found is one that was started with an
/// environment of its own. Takes no longer than a second.
void kill_learners_of(const std::string& socket);

}  // namespace bellows::ps
