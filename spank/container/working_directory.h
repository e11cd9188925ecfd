// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/container/spec.h"
#include "common/result.h"

namespace bellows::container {

/// The directory to which an /etc/rc goes that enroot wrote, which is the image's WORKDIR. Nothing
/// where only a shell could say: the script is read and never run.
std::optional<std::string> rc_directory(std::string_view script);

/// Makes a directory below `root`, the container's, the working directory: the one of `spec`, or
/// the image's. Where the image's can't be entered, it is the root, and a remark says so; else the
/// remark is empty.
Result<std::string> enter_working_directory(int root, const Spec& spec);

}  // namespace bellows::container
