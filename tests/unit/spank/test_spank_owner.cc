// SPDX-License-Identifier: Apache-2.0
// What asks slurmctld with the rights of a job's owner.
#include <criterion/criterion.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>

#include "common/fd.h"
#include "spank/owner.h"

using namespace bellows;
using namespace bellows::spank;
using namespace std::chrono_literals;

namespace {

constexpr container::JobOwner kOwner{20001, 20101};

TestSuite(owner, .timeout = 60);

/// What of root's is left, as bits.
int rights_left() {
  int faults = 0;
  std::array<uid_t, 3> uids{};
  std::array<gid_t, 3> gids{};
  ::getresuid(&uids[0], &uids[1], &uids[2]);
  ::getresgid(&gids[0], &gids[1], &gids[2]);
  for (const uid_t uid : uids)
    if (uid != kOwner.uid) faults |= 1;
  for (const gid_t gid : gids)
    if (gid != kOwner.gid) faults |= 2;
  if (::getgroups(0, nullptr) != 0) faults |= 4;
  const auto status = read_file("/proc/thread-self/status", 65536);
  for (const char* set : {"CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapAmb:\t"})
    if (!status || status->find(std::string(set) + "0000000000000000\n") == std::string::npos)
      faults |= 8;
  if (::setuid(0) == 0) faults |= 16;
  return faults;
}

/// Whether another process of the same user may look into this one.
int may_be_traced() {
  const pid_t subject = ::getpid();
  const pid_t tracer = ::fork();
  if (tracer == 0) {
    if (::ptrace(PTRACE_SEIZE, subject, nullptr, nullptr) == 0) ::_exit(1);
    ::_exit(errno == EPERM ? 0 : 2);
  }
  int status = 0;
  ::waitpid(tracer, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

void no_child_is_left() {
  cr_expect(::waitpid(-1, nullptr, WNOHANG) == -1);
  cr_expect_eq(errno, ECHILD);
}

}  // namespace

Test(owner, has_his_own_rights_only) {
  if (::geteuid() != 0) cr_skip_test("a change of user needs root");
  const auto left = as_owner(kOwner, 30s, rights_left);
  cr_assert(left.ok());
  cr_expect_eq(*left, 0, "faults %d", *left);
  cr_expect_eq(::geteuid(), 0);
}

Test(owner, cannot_look_into_what_asks) {
  if (::geteuid() != 0) cr_skip_test("a change of user needs root");
  const auto traced = as_owner(kOwner, 30s, may_be_traced);
  cr_assert(traced.ok());
  cr_expect_eq(*traced, 0);
}

Test(owner, who_stops_or_kills_it_gets_no_answer) {
  if (::geteuid() != 0) cr_skip_test("a change of user needs root");
  for (const int signal : {SIGSTOP, SIGKILL}) {
    const auto value = as_owner(kOwner, 1s, [signal] {
      ::raise(signal);
      return 0;
    });
    cr_assert(!value.ok());
    cr_expect(value.error().kind == ErrorKind::unavailable);
    no_child_is_left();
  }
}

Test(owner, is_answered_whatever_the_jobs_processes_are_sent) {
  if (::geteuid() != 0) cr_skip_test("a change of user needs root");
  const auto value = as_owner(kOwner, 30s, [] {
    ::raise(SIGTERM);
    return 2050;
  });
  cr_assert(value.ok());
  cr_expect_eq(*value, 2050);
  no_child_is_left();
}
