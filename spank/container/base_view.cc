// SPDX-License-Identifier: Apache-2.0
#include "spank/container/base_view.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/fd.h"
#include "spank/container/capabilities.h"
#include "spank/container/mount_api.h"
#include "spank/container/views.h"

namespace bellows::container {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

Result<Fd> tmpfs(std::uint64_t mib, Options options) {
  if (mib > 0) options.emplace_back("size", fmt::format("{}m", mib));
  return new_filesystem("tmpfs", options, {});
}

Status attach_at(int mount, const char* path) {
  const auto target = open_file(path, O_PATH | O_DIRECTORY);
  return target ? attach(mount, target->get(), path) : Status(target.error());
}

/// As on the host. The kernel's protection against links and files that are planted for privileged
/// programs in such a directory (fs.protected_*) does not apply to those of the directory's owner,
/// who may also rename and remove what others have in it.
Status give_to_root(int tmpfs, const char* name, const char* path) {
  const auto as_root = Raised::raise(CAP_CHOWN);
  if (!as_root) return as_root.error();
  if (::fchownat(tmpfs, name, 0, 0, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_error("make root the owner of the job's own", path);
  return {};
}

/// A directory of a tmpfs in the place of one of the host's.
Status put_part(int tmpfs, const char* name, const char* path) {
  if (::mkdirat(tmpfs, name, 0700) != 0 || ::fchmodat(tmpfs, name, 01777, 0) != 0)
    return errno_error("make the job's own", path);
  if (auto status = give_to_root(tmpfs, name, path); !status.ok()) return status;
  const Fd part(::openat(tmpfs, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!part) return errno_error("open the job's own", path);
  auto mount = clone_mount(part.get(), path, false, {});
  return mount ? attach_at(mount->get(), path) : Status(mount.error());
}

struct Kept {
  std::string path;
  Fd mount;
};

/// Anybody could make the name of one that this node lacks, in a /tmp that is everybody's.
bool is_roots(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == 0;
}

/// They are opened before anything covers them. A node need not have all of them.
Result<std::vector<Kept>> open_kept(const std::vector<std::string>& paths) {
  std::vector<Kept> kept;
  for (const std::string& path : paths) {
    if (!is_roots(path)) continue;
    const auto source = open_source(path);
    if (!source) return source.error();
    auto mount = clone_mount(source->get(), path, true, {});
    if (!mount) return mount.error();
    kept.push_back({path, *std::move(mount)});
  }
  return kept;
}

Status put_back(const std::vector<Kept>& kept) {
  const auto root = open_file("/", O_PATH | O_DIRECTORY);
  if (!root) return root.error();
  for (const Kept& directory : kept) {
    const auto target = open_target(root->get(), directory.path, true, true);
    if (!target) return target.error();
    if (auto status = attach(directory.mount.get(), target->get(), directory.path); !status.ok())
      return status;
  }
  return {};
}

}  // namespace

Status build_base_view(std::uint64_t tmp_mib, std::uint64_t shm_mib,
                       const std::vector<std::string>& kept) {
  // This must come first: anything mounted before it would be mounted on the host too.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return errno_error("make all mounts private below", "/");
  const auto opened = open_kept(kept);
  if (!opened) return opened.error();
  auto temporary = tmpfs(tmp_mib, {{"mode", "0711"}});
  if (!temporary) return temporary.error();
  // A clone can be made only of what is mounted somewhere in the namespace.
  if (auto status = attach_at(temporary->get(), "/tmp"); !status.ok()) return status;
  if (auto status = put_part(temporary->get(), "var_tmp", "/var/tmp"); !status.ok()) return status;
  if (auto status = put_part(temporary->get(), "tmp", "/tmp"); !status.ok()) return status;
  auto shm = tmpfs(shm_mib, {{"mode", "1777"}, {"uid", "0"}, {"gid", "0"}});
  if (!shm) return shm.error();
  if (auto status = attach_at(shm->get(), "/dev/shm"); !status.ok()) return status;
  return put_back(*opened);
}

Status enter_base(const std::string& run_dir, std::uint32_t job) {
  const auto views = JobViews::open(run_dir, job);
  if (!views) return views.error();
  const auto base = views->find(kBase);
  if (!base) return base.error();
  if (!*base) return Error{ErrorKind::not_found, "no task has made the job's view"};
  return ::setns(base->get(), CLONE_NEWNS) == 0 ? Status()
                                                : errno_error("join", "the job's mount namespace");
}

}  // namespace bellows::container
