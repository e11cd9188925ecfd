// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/confine.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include "common/fd.h"

namespace bellows {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr unsigned kArchitecture = 0;
#endif

/// Calls of other tables, such as x32's, begin here.
constexpr unsigned kOtherTables = 0x40000000;

std::vector<unsigned> refused_calls(GivenUp what) {
  std::vector<unsigned> calls = {
      SYS_execve,
      SYS_execveat,
      SYS_process_vm_readv,
      SYS_process_vm_writev,
      SYS_bpf,
      SYS_keyctl,
      SYS_add_key,
      SYS_request_key,
      SYS_io_uring_setup,
      SYS_userfaultfd,
      SYS_perf_event_open,
      SYS_mount,
      SYS_unshare,
      SYS_setns,
      SYS_pidfd_getfd,
      SYS_open_by_handle_at,
      SYS_unlinkat,
      SYS_renameat2,
      SYS_linkat,
      SYS_symlinkat,
      SYS_mkdirat,
      SYS_fchmodat,
      SYS_fchownat,
#ifndef __SANITIZE_ADDRESS__
      // At its end, a leak checker looks at the process as a debugger does.
      SYS_ptrace,
#endif
#ifdef __x86_64__
      SYS_unlink,
      SYS_rename,
      SYS_link,
      SYS_symlink,
      SYS_mkdir,
      SYS_chmod,
      SYS_chown,
      SYS_fork,
      SYS_vfork,
#endif
  };
  if (what >= GivenUp::network) calls.insert(calls.end(), {SYS_socket, SYS_connect, SYS_bind});
  if (what >= GivenUp::files) {
    calls.insert(calls.end(), {SYS_openat, SYS_openat2, SYS_setgroups, SYS_setfsuid, SYS_setfsgid});
#ifdef __x86_64__
    calls.insert(calls.end(), {SYS_open, SYS_creat});
#endif
  }
  return calls;
}

sock_filter load_word(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

std::vector<sock_filter> filter_of(GivenUp what) {
  const sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  std::vector<sock_filter> filter = {
      load_word(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      refuse,
      load_word(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kOtherTables, 0, 1),
      refuse,
  };
  for (const unsigned call : refused_calls(what)) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(refuse);
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

}  // namespace

Status drop_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) < 0) return errno_error("drop", "capabilities");
  return {};
}

Status give_up(GivenUp what) {
  const rlimit nothing = {0, 0};
  if (setrlimit(RLIMIT_CORE, &nothing) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return errno_error("limit", "the loader");
  if (what == GivenUp::files)
    if (auto dropped = drop_capabilities(); !dropped) return dropped;
  if (kArchitecture == 0) return {};
  std::vector<sock_filter> filter = filter_of(what);
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  // A kernel without it has no filters at all.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 && errno != EINVAL)
    return errno_error("limit the system calls of", "the loader");
  return {};
}

}  // namespace bellows
