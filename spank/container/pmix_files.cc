// SPDX-License-Identifier: Apache-2.0
#include "spank/container/pmix_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

/// Whether slurmstepd made it. A user may name any directory in the variables, and the job's view
/// of the host is not joined yet: what that view covers must not show through here.
Result<bool> is_own(int directory) {
  struct stat info {};
  if (::fstat(directory, &info) != 0) return errno_error("look at", "PMIx's directory");
  if (info.st_uid != ::getuid() || (info.st_mode & 0777) != 0700) return false;
  const auto covered = has_mounts_below(directory);
  return covered ? Result<bool>(!*covered) : covered;
}

}  // namespace

PmixFiles PmixFiles::session(const std::string& directory, bool shared) {
  PmixFiles files(shared ? directory : "");
  if (files) files.name_.erase(0, 1);
  files.session_ = directory;
  return files;
}

PmixFiles::PmixFiles(std::string directory) : from_(std::move(directory)) {
  while (from_.size() > 1 && from_.back() == '/') from_.pop_back();
  const std::string base = from_.substr(from_.rfind('/') + 1);
  name_ = "." + base;
  if (base.empty() || base == "." || base == "..") from_.clear();
}

Status PmixFiles::open() {
  if (from_.empty()) return {};
  const auto directory = open_source(from_);
  const auto own = directory ? is_own(directory->get()) : Result<bool>(false);
  if (!own) return own.error();
  if (!*own) {
    from_.clear();
    return {};
  }
  auto mount = clone_mount(directory->get(), from_, false, {});
  if (!mount) return mount.error();
  mount_ = *std::move(mount);
  return {};
}

Status PmixFiles::place() const {
  if (from_.empty()) {
    if (!session_.empty()) ::mkdir(session_.c_str(), 0700);
    return {};
  }
  const auto root = open_file("/", O_PATH | O_DIRECTORY);
  if (!root) return root.error();
  const auto tmp = open_in_root(root->get(), "/tmp", O_PATH | O_DIRECTORY);
  if (!tmp) return tmp.error();
  if (::mkdirat(tmp->get(), name_.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error("mkdir", to());
  const Fd target(
      ::openat(tmp->get(), name_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return target ? attach(mount_.get(), target.get(), to()) : errno_error("open", to());
}

}  // namespace bellows::container
