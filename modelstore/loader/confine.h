// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace bellows {

/// What a loader gives up before it parses what somebody else wrote. For good, and for all threads
/// that it starts later; there must be one.
enum class GivenUp {
  programs,  ///< to start programs, get rights by them, reach other processes, and open files for
             ///< writing or change them by their names
  network,   ///< and to make sockets
  files,     ///< and all capabilities, and to open files
};

/// All up to this. `network` and `files` are not for models that lie elsewhere: these give up
/// `programs`, and all capabilities.
Status give_up(GivenUp what);
/// Of this process, and of what it could still get.
Status drop_capabilities();

}  // namespace bellows
