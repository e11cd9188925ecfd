// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>

#include <memory>
#include <string_view>

#include "common/fd.h"

namespace bellows {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

/// Owns a directory that is being read; null where it could not be opened.
using Directory = std::unique_ptr<DIR, CloseDirectory>;

/// Reads an open directory from where its descriptor stands. Null, and errno says why, if it can't;
/// an invalid `fd` leaves errno as the failed open set it.
inline Directory read_directory(Fd fd) {
  if (!fd) return nullptr;
  Directory directory(::fdopendir(fd.get()));
  if (directory) fd.release();
  return directory;
}

/// The two names that each directory has, of itself and of the one above.
constexpr bool is_dots(std::string_view name) { return name == "." || name == ".."; }

}  // namespace bellows
