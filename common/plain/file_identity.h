// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <array>

namespace bellows::plain {

/// Which file of this machine it is, and in which state: two are equal when nothing was written to
/// it between. A file's own time of change is none that a program can set.
using FileIdentity = std::array<unsigned char, 32>;

FileIdentity identity_of(const struct stat& s);

}  // namespace bellows::plain
