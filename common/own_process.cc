// SPDX-License-Identifier: Apache-2.0
#include "common/own_process.h"

#include <unistd.h>

#include <array>

namespace bellows {

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace bellows
