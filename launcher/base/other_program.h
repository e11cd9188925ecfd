// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace bellows {

/// For a command that is a program of its own, bellows-NAME beside this one: becomes it, and
/// returns an exit status only where that fails.
int become_program(const std::string& name, const std::vector<std::string>& arguments);

/// How such a program says an error, and the exit status that it has then.
int fail_as(const std::string& name, const Error& error);

}  // namespace bellows
