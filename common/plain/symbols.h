// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace bellows::plain {

/// Finds functions of a shared library that this process has loaded already, by the beginning of
/// its file name ("libcudart.so"). False when it isn't loaded or lacks one of the names. Not by
/// dlopen and dlsym: those moved from libdl to libc in glibc 2.34, so a library that must load
/// with older ones too can't name them.
bool find_loaded(const char* library, const char* const* names, std::size_t count, void** found);

}  // namespace bellows::plain
