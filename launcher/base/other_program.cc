// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/other_program.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "launcher/base/exit_status.h"
#include "launcher/base/job_paths.h"

namespace bellows {

int become_program(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string file = "bellows-" + name;
  const std::string beside = std::filesystem::path(own_program()).parent_path() / file;
  const std::string program = access(beside.c_str(), X_OK) == 0 ? beside : file;
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execvp(program.c_str(), words.data());
  fmt::print(stderr, "bellows {}: can't run {}: {}; is Bellows installed as a whole?\n", name,
             program, std::strerror(errno));
  return kFailed;
}

int fail_as(const std::string& name, const Error& error) {
  fmt::print(stderr, "bellows {}: {}\n", name, error.text);
  switch (error.kind) {
    case ErrorKind::unavailable:
      return kUnreachable;
    case ErrorKind::denied:
    case ErrorKind::busy:
      return kRefused;
    default:
      return kFailed;
  }
}

}  // namespace bellows
