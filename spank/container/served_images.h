// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/container/spec.h"
#include "common/fd.h"
#include "common/result.h"
#include "spank/container/image.h"
#include "spank/container/job_cgroup.h"
#include "spank/container/views.h"

/// A job has one server for each squashfs file of its user's, which its steps share: its file
/// system is all that there is in a mount namespace, pinned as served:FILE among the job's views.
/// With the views it goes, and the server with it.
namespace bellows::container {

/// What a task that needs such an image knows.
struct ServedFor {
  const JobViews& views;
  int host;               ///< the host's mount namespace, where the views have their names
  const JobCgroup& home;  ///< false: none, so that the server ends with its step
  std::uint32_t step;
  const Site& site;
};

/// A clone of the file's file system, detached, by a server that answers: the job's, or a new one
/// if it has none yet, or one that its user killed. By the task that holds the views' lock, in the
/// mount namespace that it left for the container and where it is again afterwards. Needs what
/// join() and JobViews::pin need; what asks the server has the user's rights alone, and may wait
/// for it until a deadly signal.
Result<Fd> mount_served(const Image& image, const ServedFor& task);

/// Whose image the container has, before it is pinned; one whose image lost its server may still
/// have the name. Needs what JobViews::pin needs.
Status note_image(const std::string& container, const std::string& served, const JobViews& views);

/// A container whose image has lost its server is as good as none: resets `found`. In the host's
/// mount namespace.
Status drop_dead(const std::string& container, const ServedFor& task, Fd& found);

/// Which file this is, as it is now: one that was written to since is another.
Result<std::string> served_name(const Image& image, const ServedFor& task);

}  // namespace bellows::container
