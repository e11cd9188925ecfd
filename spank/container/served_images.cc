// SPDX-License-Identifier: Apache-2.0
#include "spank/container/served_images.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "spank/container/capabilities.h"
#include "spank/container/mount_api.h"
#include "spank/container/mount_namespace.h"
#include "spank/container/squashfs_server.h"

namespace bellows::container {
namespace {

/// No container's name begins so.
constexpr const char* kServed = "served:";

std::string image_note(const std::string& container) { return container + ":image"; }

/// Of the namespace of a file system: its root is all of it.
Result<Fd> open_root() { return open_file("/", O_PATH | O_DIRECTORY); }

Status check_number(const ServedFor& task) {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  const auto names = task.views.names();
  if (!names) return names.error();
  const auto served = std::count_if(names->begin(), names->end(),
                                    [](const auto& name) { return name.starts_with(kServed); });
  if (served < task.site.max_containers) return {};
  return Error{ErrorKind::denied,
               fmt::format("the job has used {} squashfs files of its user's on this node already, "
                           "the maximum (max_containers in plugstack.conf); use one of them",
                           served)};
}

/// From the host's namespace into the one that it finds. Invalid: there is none that answers.
Result<Fd> find_living(const std::string& name, const ServedFor& task) {
  auto found = Result<Fd>(Fd());
  {
    const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
    if (!as_root) return as_root.error();
    found = task.views.find(name);
  }
  if (!found || !*found) return found;
  if (auto status = join(found->get()); !status.ok()) return status.error();
  const auto root = open_root();
  if (root && is_served(root->get())) return found;
  if (auto status = join(task.host); !status.ok()) return status.error();
  return Fd();
}

/// In a copy of the task's namespace: the file system becomes all of it.
Status leave_alone_with(int mount, const JobViews& views) {
  auto place = Result<Fd>(Fd());
  {
    const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
    if (!as_root) return as_root.error();
    place = views.open_place("root");
  }
  if (!place) return place.error();
  if (auto status = attach(mount, place->get(), "the place for containers"); !status.ok())
    return status;
  if (::fchdir(mount) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0)
    return errno_error("enter", "the image");
  return {};
}

/// From the host's namespace and back to it.
Status make(const std::string& name, const Image& image, int from, const ServedFor& task) {
  if (auto status = check_number(task); !status.ok()) return status;
  auto mount = serve_squashfs(image, task.site.squashfuse, task.home);
  if (!mount) return mount.error();
  if (auto status = join(from); !status.ok()) return status;
  if (auto status = leave_namespace(); !status.ok()) return status;
  const auto made = own_namespace();
  if (!made) return made.error();
  if (auto status = leave_alone_with(mount->get(), task.views); !status.ok()) return status;
  if (auto status = join(task.host); !status.ok()) return status;
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  if (auto status = task.views.unpin(name); !status.ok()) return status;
  return task.views.pin(name, made->get());
}

Result<Fd> clone_root(const std::string& path) {
  const auto root = open_root();
  if (!root) return root.error();
  MountFlags flags;
  flags.read_only = true;
  return clone_mount(root->get(), path, false, flags);
}

}  // namespace

Status note_image(const std::string& container, const std::string& served, const JobViews& views) {
  const Status status = views.unpin(container);
  return status.ok() ? views.write_note(image_note(container), served) : status;
}

Status drop_dead(const std::string& container, const ServedFor& task, Fd& found) {
  const auto served = task.views.read_note(image_note(container));
  if (!served) return served.error();
  if (served->empty()) return {};
  const auto living = find_living(*served, task);
  if (!living) return living.error();
  if (*living) return join(task.host);
  found.reset();
  return {};
}

Result<std::string> served_name(const Image& image, const ServedFor& task) {
  struct stat info {};
  if (::fstat(image.fd.get(), &info) != 0) return errno_error("look at", image.path);
  const std::string end = task.home ? "" : fmt::format("-of-{}", task.step);
  return fmt::format("{}{}-{}-{}-{}.{}{}", kServed, info.st_dev, info.st_ino, info.st_size,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec, end);
}

Result<Fd> mount_served(const Image& image, const ServedFor& task) {
  const auto name = served_name(image, task);
  if (!name) return name.error();
  const auto here = own_namespace();
  if (!here) return here.error();
  if (auto status = join(task.host); !status.ok()) return status.error();
  auto served = find_living(*name, task);
  if (served && !*served) {
    if (auto status = make(*name, image, here->get(), task); !status.ok()) return status.error();
    served = find_living(*name, task);
  }
  if (!served) return served;
  if (!*served)
    return Error{ErrorKind::unavailable,
                 image.path + ": its server was killed; start the step again"};
  auto clone = clone_root(image.path);
  if (auto status = join(here->get()); !status.ok()) return status.error();
  return clone;
}

}  // namespace bellows::container
