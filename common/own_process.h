// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace bellows {

/// The environment of this process, NAME=VALUE each, as ChildOptions takes it.
std::vector<std::string> own_environment();

/// The host name of this node, as others can look it up; "localhost" where it can't be read.
std::string own_host_name();

}  // namespace bellows
