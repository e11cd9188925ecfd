// SPDX-License-Identifier: Apache-2.0
#include "image/command/lease_holder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace bellows::image {
namespace {

constexpr int kKept = 3;

[[noreturn]] void hold(int lease) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  // Who waits for the importer waits until its pipes close.
  if (::setsid() < 0 || ::chdir("/") != 0 || null < 0 || ::dup2(null, 0) < 0 ||
      ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0 || (lease != kKept && ::dup2(lease, kKept) < 0) ||
      ::close_range(kKept + 1, ~0U, 0) != 0)
    ::_exit(1);
  for (;;) ::pause();
}

}  // namespace

std::string lease_name(std::uint32_t job) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::string name = fmt::format("job {} on {}", job, host.data());
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

Status keep_lease(const Fd& lease) {
  const pid_t pid = ::fork();
  if (pid == 0) hold(lease.get());
  return pid > 0 ? Status() : errno_error("start", "a process that keeps the image's lease");
}

}  // namespace bellows::image
