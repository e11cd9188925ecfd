// SPDX-License-Identifier: Apache-2.0
#include "spank/container/fake_root.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "common/text.h"
#include "spank/container/capabilities.h"
#include "spank/container/joined_mounts.h"

namespace bellows::container {
namespace {

/// Debian's and Ubuntu's own switches, and the values with which they forbid namespaces.
constexpr std::pair<const char*, const char*> kForbidden[] = {
    {"/proc/sys/kernel/unprivileged_userns_clone", "0"},
    {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"},
};

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr unsigned kArchitecture = 0;  // none: nothing is faked
#endif

constexpr unsigned kFaked[] = {
#ifdef SYS_chown
    SYS_chown,    SYS_lchown,
#endif
    SYS_fchown,   SYS_fchownat,  SYS_setuid,    SYS_setgid,    SYS_setreuid,
    SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups,
};

constexpr unsigned kAlsoAsk[] = {SYS_setfsuid, SYS_setfsgid};

sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

/// If the loaded word is `value`, goes on; otherwise past `count` instructions.
sock_filter skip_unless(unsigned value, unsigned char count) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count);
}

std::vector<sock_filter> faking_filter() {
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_filter succeed = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO);
  std::vector<sock_filter> filter = {load(offsetof(seccomp_data, arch)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                                     allow, load(offsetof(seccomp_data, nr))};
  for (const unsigned call : kFaked) filter.insert(filter.end(), {skip_unless(call, 1), succeed});
  // With -1 they only ask who one is.
  for (const unsigned call : kAlsoAsk)
    filter.insert(filter.end(), {skip_unless(call, 4), load(offsetof(seccomp_data, args)),
                                 skip_unless(~0U, 1), allow, succeed});
  filter.push_back(allow);
  return filter;
}

Status fake_changes_of_owner() {
  std::vector<sock_filter> filter = faking_filter();
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  // Kernels before 5.16 would otherwise run it without speculation, at the cost of every program.
  for (const unsigned long flags : {SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0UL})
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0) return {};
  return errno_error("install", "the filter that has changes of owners succeed");
}

Status join_user(const Fd& user, bool capable, bool joins) {
  const auto admin = Raised::raise(CAP_SYS_ADMIN);
  if (!admin) return admin.error();
  // It brings every capability over this namespace, in every set.
  if (::setns(user.get(), CLONE_NEWUSER) != 0)
    return errno_error("join", "the container's user namespace");
  // Joining sets this to fs.suid_dumpable: with 1 a debugger of the user's could take the
  // descriptors of the host that are still open.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return errno_error("clear", "PR_SET_DUMPABLE");
  if (capable && ::unshare(CLONE_NEWNS) != 0)
    return errno_error("copy", "the container's mounts for its root");
  if (capable && joins)
    if (auto status = take_joined_mounts(); !status.ok()) return status;
  if (auto status = fake_changes_of_owner(); !status.ok()) return status;
  return capable ? limit_bounding_set() : empty_bounding_set();
}

}  // namespace

Result<bool> users_have_namespaces(const std::string& root) {
  for (const auto& [file, forbidden] : kForbidden) {
    const auto text = read_file(root + file, 64);
    if (!text && text.error().kind != ErrorKind::not_found) return text.error();
    if (text && trim(*text) == forbidden) return false;
  }
  return true;
}

Status enter_user_namespace(const Fd& user, bool capable, bool joins, bool no_new_privs) {
  if (auto status = join_user(user, capable, joins); !status.ok()) return status;
  return capable ? keep_for_root(no_new_privs) : drop_all(no_new_privs);
}

}  // namespace bellows::container
