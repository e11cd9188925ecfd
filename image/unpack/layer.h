// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/fd.h"
#include "common/result.h"
#include "image/unpack/layer_stream.h"
#include "image/unpack/limits.h"

namespace bellows::image {

/// Puts a layer upon those that are in the directory already, with the rights of the caller, who
/// owns all of it: no devices, no setuid. Nothing outside of the directory is touched, whatever the
/// layer says. After an error the directory holds nothing of use.
/// corrupt: the layer's digests are not what was promised. invalid: what the layer says can't be
/// done, or exceeds the limits; a sentence.
Status apply_layer(const Fd& root, const Layer& layer, const Limits& limits, Tally& tally);

}  // namespace bellows::image
