// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/confine.h"

#include <fcntl.h>
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
#include <iterator>
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

constexpr int kWritable = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

/// By which other processes are reached. Of those that may be meant for the process itself, see
/// allow_itself.
constexpr unsigned kOfProcesses[] = {
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_pidfd_getfd,
    SYS_setpriority,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setaffinity,
    SYS_sched_setattr,
    SYS_ioprio_set,
    SYS_move_pages,
    SYS_migrate_pages,
#ifndef __SANITIZE_ADDRESS__
    // At its end, a leak checker looks at the process as a debugger does.
    SYS_ptrace,
#endif
};

/// By which folders change, or files that are named or open for reading.
constexpr unsigned kOfFolders[] = {
    SYS_truncate,  SYS_unlinkat,    SYS_renameat,     SYS_renameat2,    SYS_linkat,
    SYS_symlinkat, SYS_mkdirat,     SYS_mknodat,      SYS_fchmod,       SYS_fchmodat,
    SYS_fchown,    SYS_fchownat,    SYS_utimensat,    SYS_setxattr,     SYS_lsetxattr,
    SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_openat2,
#ifdef __x86_64__
    SYS_unlink,    SYS_rename,      SYS_link,         SYS_symlink,      SYS_mkdir,
    SYS_rmdir,     SYS_mknod,       SYS_chmod,        SYS_chown,        SYS_lchown,
    SYS_utime,     SYS_utimes,      SYS_futimesat,    SYS_creat,
#endif
};

std::vector<unsigned> refused_calls(GivenUp what) {
  std::vector<unsigned> calls = {
      SYS_execve,
      SYS_execveat,
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
      SYS_open_by_handle_at,
#ifdef __x86_64__
      SYS_fork,
      SYS_vfork,
#endif
  };
  calls.insert(calls.end(), std::begin(kOfProcesses), std::end(kOfProcesses));
  calls.insert(calls.end(), std::begin(kOfFolders), std::end(kOfFolders));
  if (what >= GivenUp::network) calls.insert(calls.end(), {SYS_socket, SYS_connect, SYS_bind});
  if (what >= GivenUp::files) {
    calls.insert(calls.end(), {SYS_openat, SYS_setgroups, SYS_setfsuid, SYS_setfsgid});
#ifdef __x86_64__
    calls.push_back(SYS_open);
#endif
  }
  return calls;
}

sock_filter load_word(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

/// Lower half: the kernel looks at no more of an int.
std::size_t argument(unsigned number) {
  return offsetof(seccomp_data, args) + number * sizeof(__u64);
}

const sock_filter kRefuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
const sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

/// For this process only, by its number or, where that means itself, 0: of kill it is the group of
/// processes, which has the daemon in it. A process that aborts signals itself.
void allow_itself(std::vector<sock_filter>& filter, unsigned call, bool by_zero) {
  const auto self = static_cast<unsigned>(getpid());
  filter.insert(filter.end(),
                {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 5), load_word(argument(0)),
                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, self, 1, 0),
                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, by_zero ? 0 : self, 0, 1), kAllow, kRefuse});
}

void allow_reading(std::vector<sock_filter>& filter, unsigned call, unsigned flags) {
  filter.insert(filter.end(),
                {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4), load_word(argument(flags)),
                 BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kWritable, 1, 0), kAllow, kRefuse});
}

std::vector<sock_filter> filter_of(GivenUp what) {
  std::vector<sock_filter> filter = {
      load_word(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      kRefuse,
      load_word(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kOtherTables, 0, 1),
      kRefuse,
  };
  for (const unsigned call : refused_calls(what)) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(kRefuse);
  }
  allow_itself(filter, SYS_kill, false);
  allow_itself(filter, SYS_tgkill, false);
  allow_itself(filter, SYS_prlimit64, true);
  allow_reading(filter, SYS_openat, 2);
#ifdef __x86_64__
  allow_reading(filter, SYS_open, 1);
#endif
  filter.push_back(kAllow);
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
