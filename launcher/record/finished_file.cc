// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/finished_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"

namespace bellows {
namespace {

std::string path_of(const std::string& dir, const std::string& name) {
  return fmt::format("{}/finished-{}", dir, name);
}

std::optional<std::string> if_there(const std::string& path) {
  return access(path.c_str(), F_OK) == 0 ? std::optional(path) : std::nullopt;
}

}  // namespace

FinishedFile::FinishedFile(const std::string& checkpoint_dir, const RunName& run)
    : dir_(checkpoint_dir),
      path_(path_of(dir_, run.to_string())),
      of_all_runs_(path_of(dir_, std::to_string(run.job))) {}

std::optional<std::string> FinishedFile::found() const {
  auto own = if_there(path_);
  return own ? own : if_there(of_all_runs_);
}

std::optional<std::string> FinishedFile::found_of(const RunName& before) const {
  return if_there(path_of(dir_, before.to_string()));
}

void FinishedFile::drop_older(std::time_t submitted) const {
  struct stat info;
  if (stat(of_all_runs_.c_str(), &info) == 0 && info.st_mtime < submitted)
    unlink(of_all_runs_.c_str());
}

bool FinishedFile::leave() {
  if (found()) return true;
  own_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL, 0600).ok();
  return own_;
}

void FinishedFile::withdraw() {
  if (own_) unlink(path_.c_str());
  own_ = false;
}

}  // namespace bellows
