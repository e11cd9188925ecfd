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

Status do_in(int ns, const std::function<Status()>& work) {
  const auto here = own_namespace();
  if (!here) return here.error();
  if (auto status = join(ns); !status.ok()) return status;
  const Status done = work();
  const Status back = join(here->get());
  return done.ok() ? back : done;
}

}  // namespace bellows::container
