// SPDX-License-Identifier: Apache-2.0
#include "pool/wire/node_place.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace bellows::pool {

SocketFolder::SocketFolder() {
  const char* const dir = std::getenv("TMPDIR");
  path_ = std::string(dir && *dir ? dir : "/tmp") + "/bellows-pool-XXXXXX";
  if (!mkdtemp(path_.data())) path_.clear();
}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string helper_program(const std::string& name) {
  std::error_code failure;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
  const std::string beside = own.parent_path() / name;
  return !failure && access(beside.c_str(), X_OK) == 0 ? beside
                                                       : std::string(PKGLIBEXECDIR "/") + name;
}

}  // namespace bellows::pool
