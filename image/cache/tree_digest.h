// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace bellows::image {

/// The digest of all that is in a directory: names, rights, contents of files, and where links
/// lead.
Result<std::string> tree_digest(const std::string& root);

}  // namespace bellows::image
