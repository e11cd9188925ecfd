// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {

/// Reads a policy. Of a default one that is not there, as on every machine but the controllers, the
/// error says where it is; `else_do` is what can be done here, the end of a sentence.
Result<Policy> read_policy(const std::string& path, const std::string& else_do);

}  // namespace bellows
