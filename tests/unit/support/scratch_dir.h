// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace bellows {

/// A fresh directory, removed with all in it.
class ScratchDir {
 public:
  ScratchDir() {
    char name[] = "/tmp/bellows-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace bellows
