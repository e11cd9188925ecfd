// SPDX-License-Identifier: Apache-2.0
#include "spank/container/mount_namespace.h"

#include <fcntl.h>
#include <sched.h>

namespace bellows::container {

Status join(int ns) {
  if (::setns(ns, CLONE_NEWNS) != 0) return errno_error("join", "the job's mount namespace");
  return {};
}

Status leave_namespace() {
  if (::unshare(CLONE_NEWNS) != 0) return errno_error("make", "a mount namespace");
  return {};
}

Result<Fd> own_namespace() { return open_file("/proc/self/ns/mnt", O_RDONLY); }

}  // namespace bellows::container
