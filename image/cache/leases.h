// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

/// Who uses an image: a file for each, which the user's process locks. The lock ends with the
/// process, however that dies, and holds between nodes that share the cache. Who takes one or
/// removes has the image's lock.
namespace bellows::image {

/// A file, locked for as long as it or a copy of it is open. busy: `name` has one already.
Result<Fd> take_lease(const std::string& directory, const std::string& name);

/// The names of those that are locked.
std::vector<std::string> leases_in(const std::string& directory);

/// Removes the files that are not locked.
void remove_unlocked(const std::string& directory);

}  // namespace bellows::image
