// SPDX-License-Identifier: Apache-2.0
#include "spank/container/pmix_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "spank/container/mount_api.h"

namespace bellows::container {

PmixFiles::PmixFiles(std::string directory) : from_(std::move(directory)) {
  while (from_.size() > 1 && from_.back() == '/') from_.pop_back();
  if (!from_.empty()) to_ = "/tmp/." + from_.substr(from_.rfind('/') + 1);
}

Status PmixFiles::open() {
  if (from_.empty()) return {};
  const auto directory = open_source(from_);
  if (!directory) return directory.error();
  auto mount = clone_mount(directory->get(), from_, false, {});
  if (!mount) return mount.error();
  mount_ = *std::move(mount);
  return {};
}

Status PmixFiles::place() const {
  if (::mkdir(to_.c_str(), 0700) != 0 && errno != EEXIST) return errno_error("mkdir", to_);
  const auto target = open_file(to_, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  return target ? attach(mount_.get(), target->get(), to_) : Status(target.error());
}

}  // namespace bellows::container
