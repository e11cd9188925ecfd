// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"
#include "launcher/base/size_text.h"
#include "launcher/slurm/accounts.h"

namespace bellows {

/// Local time, "2026-11-22 05:00:00"; "?" when the number is not a time.
std::string time_text(double seconds_since_1970);

/// One object or list, indented, with a newline at its end. Text that is not UTF-8 is made so.
void print_json(const nlohmann::ordered_json& value);

/// Prints "bellows ckpt WHAT: SENTENCE" on standard error; the exit status that goes with it.
int complain(const char* what, const Error& error);

}  // namespace bellows
