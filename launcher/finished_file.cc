// SPDX-License-Identifier: Apache-2.0
#include "launcher/finished_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"

namespace bellows {

FinishedFile::FinishedFile(const std::string& checkpoint_dir, std::uint32_t job)
    : path_(fmt::format("{}/finished-{}", checkpoint_dir, job)) {}

bool FinishedFile::exists() const { return access(path_.c_str(), F_OK) == 0; }

void FinishedFile::drop_older(std::time_t submitted) const {
  struct stat info;
  if (stat(path_.c_str(), &info) == 0 && info.st_mtime < submitted) unlink(path_.c_str());
}

bool FinishedFile::leave() {
  if (exists()) return true;
  own_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL, 0600).ok();
  return own_;
}

void FinishedFile::withdraw() {
  if (own_) unlink(path_.c_str());
  own_ = false;
}

}  // namespace bellows
