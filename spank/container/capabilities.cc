// SPDX-License-Identifier: Apache-2.0
#include "spank/container/capabilities.h"

#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <utility>

#include "common/fd.h"

namespace bellows::container {
namespace {

constexpr int kNeeded[] = {CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_DAC_OVERRIDE, CAP_CHOWN};

/// Of root in a container: what mounts, unpacks packages and changes names. A network it has none
/// to set up, so no CAP_NET_ADMIN.
constexpr int kOfRoot[] = {CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FOWNER,   CAP_FSETID,
                           CAP_KILL,    CAP_SETGID,       CAP_SETUID,   CAP_SETPCAP,
                           CAP_SETFCAP, CAP_SYS_CHROOT,   CAP_SYS_ADMIN};

struct Sets {
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> words{};

  static std::uint32_t bit(int capability) { return std::uint32_t{1} << (capability % 32); }
  __user_cap_data_struct& of(int capability) {
    return words[static_cast<std::size_t>(capability / 32)];
  }
};

Result<Sets> get() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  Sets sets;
  if (::syscall(SYS_capget, &header, sets.words.data()) != 0)
    return errno_error("read", "the process's capabilities");
  return sets;
}

Status set(const Sets& sets) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  if (::syscall(SYS_capset, &header, sets.words.data()) != 0)
    return errno_error("set", "the process's capabilities");
  return {};
}

Status bound_to(std::span<const int> kept) {
  for (int capability = 0; capability < 64; capability++) {
    if (std::find(kept.begin(), kept.end(), capability) != kept.end()) continue;
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0) continue;
    if (errno == EINVAL) break;  // this kernel has no more of them
    return errno_error("limit", "the bounding set of capabilities");
  }
  return {};
}

/// What comes next is the user's program.
Status keep_for_program(std::span<const int> kept, bool no_new_privs) {
  if (no_new_privs && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return errno_error("set", "no_new_privs");
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return errno_error("clear", "the ambient capabilities");
  Sets sets;
  for (const int capability : kept) {
    sets.of(capability).permitted |= Sets::bit(capability);
    sets.of(capability).effective |= Sets::bit(capability);
  }
  if (auto status = set(sets); !status) return status;
  if (::prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0) return errno_error("clear", "PR_SET_KEEPCAPS");
  return {};
}

}  // namespace

Status empty_bounding_set() { return bound_to({}); }

Status limit_bounding_set() { return bound_to(kOfRoot); }

Status begin_session_keyring() {
  // Where the kernel has no keys, or a seccomp filter forbids them, the task can't use any either.
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0 || errno == ENOSYS ||
      errno == EPERM)
    return {};
  return errno_error("begin", "a keyring for the task's session");
}

Status keep_for_later(bool close) {
  if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
    return errno_error("keep", "the capabilities across the change of user");
  return close ? empty_bounding_set() : Status();
}

Status keep_only_needed(bool network) {
  // The kernel sees to that at a change of user, unless fs.suid_dumpable says otherwise.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    return errno_error("close to debuggers", "the process");
  auto sets = get();
  if (!sets) return sets.error();
  Sets kept;
  for (const int capability : kNeeded) {
    const auto bit = Sets::bit(capability);
    kept.of(capability).permitted |= sets->of(capability).permitted & bit;
  }
  if (network) {
    const auto bit = Sets::bit(CAP_NET_ADMIN);
    kept.of(CAP_NET_ADMIN).permitted |= sets->of(CAP_NET_ADMIN).permitted & bit;
  }
  return set(kept);
}

Status drop_all(bool no_new_privs) { return keep_for_program({}, no_new_privs); }

Status keep_for_root(bool no_new_privs) { return keep_for_program(kOfRoot, no_new_privs); }

Result<Raised> Raised::raise(int capability) {
  auto sets = get();
  if (!sets) return sets.error();
  const auto bit = Sets::bit(capability);
  if ((sets->of(capability).effective & bit) != 0) return Raised(-1);
  sets->of(capability).effective |= bit;
  if (auto status = set(*sets); !status) return status.error();
  return Raised(capability);
}

Raised::Raised(Raised&& other) noexcept : capability_(std::exchange(other.capability_, -1)) {}

Raised::~Raised() {
  if (capability_ < 0) return;
  auto sets = get();
  if (!sets) return;
  sets->of(capability_).effective &= ~Sets::bit(capability_);
  (void)set(*sets);
}

}  // namespace bellows::container
