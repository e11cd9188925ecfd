// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "spank/container/image.h"
#include "spank/container/job_cgroup.h"

/// The server of a squashfs file that a user wrote, which the kernel must not read as a file
/// system: squashfuse_ll, as that user. What it says to the kernel is the user's word, since the
/// user may trace it, stop it or put another in its place.
namespace bellows::container {

/// A new file system (detached, read-only, nosuid, nodev) whose server has answered. Only
/// processes with all the ids of the caller, and overlays that these made, look up anything in it.
/// If its root directory is root's, what is root's there is the caller's and what is others'
/// nobody's; where the caller may not open /dev/fuse, and otherwise, all belongs to whom the file
/// says.
///
/// The server is nobody's child. It is in `home` if there is one, and else ends with the caller's
/// step; it takes no signal but SIGKILL and SIGSTOP, so not those by which Slurm tells a job to
/// end; and it ends when the last mount of its file system is gone. The caller is the job's user,
/// with CAP_SYS_ADMIN in effect and CAP_DAC_OVERRIDE permitted, in the mount namespace in which the
/// server shall live, with no other thread in the process.
/// corrupt: the server ended; says what it said.
Result<Fd> serve_squashfs(const Image& image, const std::string& program, const JobCgroup& home);

/// Whether the server of the file system, of which `root` is the root, answers. A stopped one never
/// does: the caller waits, until a deadly signal.
bool is_served(int root);

}  // namespace bellows::container
