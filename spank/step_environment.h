// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "spank/container/accounts.h"
#include "spank/host.h"

/// What slurmstepd can be asked about its step's environment and its user.
namespace bellows::spank {

/// Whole, however long it is; nothing for one that isn't set.
std::optional<std::string> environment(spank_t spank, const std::string& name);

/// One unset leaves the second of two adjacent entries of the same name, which a forger can make.
void unset_all(spank_t spank, const std::string& name);

/// Asks the name service, as root: not for a task. Empty names of a user that it does not know.
container::Account account_of(uid_t uid);

}  // namespace bellows::spank
