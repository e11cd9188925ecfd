// SPDX-License-Identifier: Apache-2.0
#include "modelstore/helper/helper_main.h"

#include <csignal>
#include <exception>

namespace bellows {
namespace {

Status served(const std::string& name, const std::function<Status()>& serve) {
  try {
    return serve();
  } catch (const std::exception& error) {
    return Error{ErrorKind::unavailable, name + " ran out of something: " + error.what()};
  }
}

}  // namespace

int helper_main(const std::string& name, const std::function<Status()>& serve,
                const std::function<void(const Error&)>& report) {
  std::signal(SIGPIPE, SIG_IGN);
  const Status status = served(name, serve);
  if (status) return 0;
  report(status.error());
  return 1;
}

}  // namespace bellows
