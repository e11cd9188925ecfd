// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "image/layout/manifest.h"
#include "image/unpack/limits.h"

namespace bellows::image {

/// Makes the image in a directory of OCI's form into a tree in `root`, which is empty, and writes
/// what its configuration says there, as enroot does: /etc/environment and /etc/rc. The digests of
/// all that is read are checked.
Result<Tally> unpack_layout(const std::string& layout, const std::string& root,
                            const Limits& limits);

}  // namespace bellows::image
