// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

/// The squashfs file that --container-save writes. All of it with the rights of the caller, who is
/// the job's user, and by names that the caller's mount namespace has.
namespace bellows::container {

/// What to write, and how. A value.
struct SaveFile {
  std::string path;         ///< absolute; a link to a file is that file
  std::string program;      ///< mksquashfs; empty: the site saves nothing
  std::string tag;          ///< told apart from what others write to the same path
  unsigned processors = 1;  ///< that the program may use
};

/// Whether there is any point in trying. A sentence says why not.
Status check_save(const SaveFile& file);

/// Writes the tree below the directory `root`, without what is mounted in it where `root` is of a
/// mount that has nothing below it, and all of it root's, as `enroot export` does. Beside the file
/// first, under a name of its own, and in its place when it is whole; after an error nothing is
/// left. Changes the working directory. Says what became of it, for people.
Result<std::string> write_save(int root, const SaveFile& file);

/// What a caller that was killed has left.
void forget_save(const SaveFile& file);

}  // namespace bellows::container
