// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/container/spec.h"
#include "common/fd.h"
#include "common/result.h"

/// Images: squashfs files, which the kernel mounts only from the administrator's directories
/// (a crafted one attacks the kernel), while others have a server of their user's
/// (squashfs_server.h); and directories of any user's, which are bound.
namespace bellows::container {

/// An image that its user may use. A resource.
struct Image {
  std::string path;
  Fd fd;  ///< O_PATH: what was checked is what is mounted
  bool squashfs = false;
  bool shared = false;  ///< what a container writes does not go into it
  bool own = false;  ///< a squashfs file that is none of the administrator's: never for the kernel
};

/// With the caller's rights, so without capabilities: the job's user must be able to read it. A
/// link from elsewhere to a file in `site.image_dirs` is that file.
/// Refused: a squashfs file outside of `site.image_dirs` if the site allows no server for it; one
/// that a name in them reaches by a link that leads out, or by a mount; one in a FUSE file system;
/// one with a directory around it that is not owned by root or the owner of the one in
/// `image_dirs`, or that others may write; one that is not owned by root or the directory's owner,
/// or that the user or everybody may write; what is not a squashfs or is truncated; a directory
/// with other file systems mounted in it, since without them it would show what they hide.
Result<Image> open_image(const std::string& path, const Site& site);

/// The root directory of an image out of a registry, likewise. Others start from it too.
/// denied: it is no directory.
Result<Image> open_imported_image(const std::string& path);

/// Whether it may turn out to be such a squashfs file, by its name alone.
bool may_be_own(const std::string& path, const Site& site);

/// O_RDONLY of what was checked, with the caller's rights.
Result<Fd> read_image(const Image& image);

/// Detached, nosuid and nodev; read-only unless it is a directory and `writable`. Not for a
/// squashfs file that is `own`. Any other
/// gets a loop device, which goes when the mount does, or with this process before there is one.
/// Needs CAP_SYS_ADMIN; raises CAP_DAC_OVERRIDE to open the loop devices, which are root's.
Result<Fd> mount_image(const Image& image, bool writable);

}  // namespace bellows::container
