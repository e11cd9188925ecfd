// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/helper_process.h"

#include <sys/socket.h>

#include <string>
#include <utility>

namespace bellows {

Result<HelperProcess> start_helper(ChildOptions options, const char* name) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return errno_error("make", std::string("a socket for ") + name);
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  options.in_fd = theirs.get();
  auto child = Child::start(options);
  if (!child) return child.error();
  return HelperProcess{std::move(*child), std::move(ours), std::move(theirs)};
}

}  // namespace bellows
