// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/container/spec.h"
#include "common/contract.h"
#include "common/result.h"

namespace bellows::container {

/// Whether an absolute path without ".." matches one of the fnmatch patterns, in which "*" stands
/// for slashes too. An image in a registry matches, without its user, only those that begin with
/// docker:// themselves.
bool permits_image(const std::vector<std::string>& patterns, std::string_view image);

/// What a step gets: what the job's contract says, and over it, key by key, what the step's own
/// options say. The framework's mounts and variables are there whatever a step says; they come
/// first. Without a contract (null) a step gets nothing, and may say so with kHostImage.
/// denied: a sentence for the user, who may not have this image, or asks without a contract.
/// corrupt: the contract can't be read.
Result<Spec> effective_spec(const Contract* contract, const Spec& step);

}  // namespace bellows::container
