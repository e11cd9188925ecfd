// SPDX-License-Identifier: Apache-2.0
#include "spank/container/own_namespaces.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "spank/container/capabilities.h"
#include "spank/container/idmap.h"

namespace bellows::container {
namespace {

struct Kind {
  const char* word;
  const char* title;
  int flag;
  bool Spec::*wanted;
};
constexpr Kind kKinds[] = {{"net", "network", CLONE_NEWNET, &Spec::unshare_net},
                           {"ipc", "IPC", CLONE_NEWIPC, &Spec::unshare_ipc},
                           {"uts", "UTS", CLONE_NEWUTS, &Spec::unshare_uts}};

std::string pin_name(const std::string& name, const char* kind) {
  return fmt::format("{}:{}", name, kind);
}

std::string user_name(const std::string& name, bool root) {
  return pin_name(name, root ? "user" : "self");
}

Status raise_loopback() {
  const auto admin = Raised::raise(CAP_NET_ADMIN);
  if (!admin) return admin.error();
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (!socket || ::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0)
    return errno_error("look at", "the container's loopback device");
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    return errno_error("start", "the container's loopback device");
  return {};
}

Result<Fd> find_pinned(const JobViews& views, const std::string& name) {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  return views.find(name);
}

}  // namespace

Status leave_for_own(const Spec& spec, const Fd& root_of) {
  int flags = 0;
  for (const Kind& kind : kKinds)
    if (spec.*kind.wanted && !(root_of && kind.flag == CLONE_NEWUTS)) flags |= kind.flag;
  if (flags != 0 && ::unshare(flags) != 0)
    return errno_error("make", "the namespaces of --container-unshare");
  if (root_of && spec.unshare_uts) {
    const auto name = host_name_in(root_of);
    if (!name) return name.error();
    if (::setns(name->get(), CLONE_NEWUTS) != 0) return errno_error("join", "the host name's own");
  }
  return spec.unshare_net ? raise_loopback() : Status();
}

Status pin_own(const JobViews& views, const std::string& name, const Spec& spec) {
  for (const Kind& kind : kKinds) {
    const std::string pinned = pin_name(name, kind.word);
    if (auto status = views.unpin(pinned); !status.ok()) return status;
    if (!(spec.*kind.wanted)) continue;
    const auto ns = open_file(fmt::format("/proc/self/ns/{}", kind.word), O_RDONLY);
    if (!ns) return ns.error();
    if (auto status = views.pin(pinned, ns->get()); !status.ok()) return status;
  }
  return {};
}

Result<std::vector<OwnNamespace>> find_own(const JobViews& views, const std::string& name,
                                           const Spec& spec) {
  std::vector<OwnNamespace> found;
  for (const Kind& kind : kKinds) {
    // Without a name only those that want the same come to the same container.
    if (spec.name.empty() && !(spec.*kind.wanted)) continue;
    auto ns = views.find(pin_name(name, kind.word));
    if (!ns) return ns.error();
    if (*ns)
      found.push_back({kind.flag, *std::move(ns)});
    else if (spec.*kind.wanted)
      return Error{ErrorKind::denied,
                   fmt::format("the container {} is not in a separate {} namespace, since it was "
                               "created without --container-unshare={}; join it without that "
                               "option, or use another name",
                               spec.name, kind.title, kind.word)};
  }
  return found;
}

Result<UserSpace> find_or_make_user(const JobViews& views, const std::string& name, JobOwner owner,
                                    bool root) {
  auto found = views.find(user_name(name, root));
  if (found && !*found)
    found = root ? root_is(owner.uid, owner.gid) : only_is(owner.uid, owner.gid);
  if (!found) return found.error();
  return UserSpace{*std::move(found), root};
}

Status settle_user(const JobViews& views, const std::string& name, UserSpace& user,
                   std::uint32_t wait_seconds) {
  auto found = find_pinned(views, user_name(name, user.root));
  if (!found) return found.error();
  if (*found) {
    user.fd = *std::move(found);
    return {};
  }
  const auto lock = views.lock(std::chrono::seconds(wait_seconds));
  if (!lock) return lock.error();
  return settle_user_locked(views, name, user);
}

Status settle_user_locked(const JobViews& views, const std::string& name, UserSpace& user) {
  const std::string pinned = user_name(name, user.root);
  auto found = find_pinned(views, pinned);
  if (!found) return found.error();
  if (*found) {
    user.fd = *std::move(found);
    return {};
  }
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  return as_root ? views.pin(pinned, user.fd.get()) : Status(as_root.error());
}

Status join_own(const std::vector<OwnNamespace>& namespaces) {
  for (const OwnNamespace& ns : namespaces)
    if (::setns(ns.fd.get(), ns.kind) != 0)
      return errno_error("join", "the container's namespaces");
  return {};
}

}  // namespace bellows::container
