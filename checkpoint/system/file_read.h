// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// What an error of reading a file of a step means. corrupt: it isn't there, or is not a plain
/// file, or is far too long. Else the error itself, which says nothing about the step.
Error unreadable(const Error& error, const std::string& path);

/// Opens a shard for reading. corrupt: it is missing, no plain file or not of `size` bytes.
Result<Fd> open_shard(const std::string& path, std::uint64_t size);

}  // namespace bellows
