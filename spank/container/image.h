// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/container/spec.h"
#include "common/fd.h"
#include "common/result.h"

/// Images: squashfs files, which the kernel mounts only from the administrator's directories
/// (a crafted one attacks the kernel), and directories of any user's, which are bound.
namespace bellows::container {

/// An image that its user may use. A resource.
struct Image {
  std::string path;
  Fd fd;  ///< O_PATH: what was checked is what is mounted
  bool squashfs = false;
  bool shared = false;  ///< what a container writes does not go into it
};

/// With the caller's rights, so without capabilities: the job's user must be able to read it.
/// Refused: a squashfs file outside of `site.image_dirs`, also by a link that leads out of them or
/// by a mount in them; one in a FUSE file system; one with a directory around it that is not owned
/// by root or the owner of the one in `image_dirs`, or that others may write; one that is not owned
/// by root or the directory's owner, or that the user or everybody may write; what is not a
/// squashfs or is truncated; a directory with other file systems mounted in it, since without them
/// it would show what they hide.
Result<Image> open_image(const std::string& path, const Site& site);

/// The root directory of an image out of a registry, likewise. Others start from it too.
/// denied: it is no directory.
Result<Image> open_imported_image(const std::string& path);

/// Detached, nosuid and nodev; read-only unless it is a directory and `writable`. A squashfs file
/// gets a loop device, which goes when the mount does, or with this process before there is one.
/// Needs CAP_SYS_ADMIN; raises CAP_DAC_OVERRIDE to open the loop devices, which are root's.
Result<Fd> mount_image(const Image& image, bool writable);

}  // namespace bellows::container
