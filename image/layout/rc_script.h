// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "image/layout/manifest.h"

namespace bellows::image {

/// Whether the image has a working directory that can be had: an absolute path.
bool has_workdir(const ImageConfig& config);

/// What starts programs in an image, in enroot's form.
std::string rc_text(const ImageConfig& config);

}  // namespace bellows::image
