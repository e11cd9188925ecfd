// SPDX-License-Identifier: Apache-2.0
#include "pool/wire/node_place.h"

#include <unistd.h>

#include <array>
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

std::string own_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace bellows::pool
