// SPDX-License-Identifier: Apache-2.0
#include "spank/container/task.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "spank/container/base_view.h"
#include "spank/container/capabilities.h"
#include "spank/container/watchdog.h"

namespace bellows::container {
namespace {

constexpr const char* kBase = "base";

Status join(int ns) {
  if (::setns(ns, CLONE_NEWNS) != 0) return errno_error("join", "the job's mount namespace");
  return {};
}

Result<Fd> own_namespace() { return open_file("/proc/self/ns/mnt", O_RDONLY); }

Status leave_host() {
  if (::unshare(CLONE_NEWNS) != 0) return errno_error("make", "a mount namespace");
  return {};
}

/// A directory that is not there in the view is no reason to fail: Slurm goes to /tmp too.
Status go_to(const std::string& directory) {
  if (!directory.empty() && ::chdir(directory.c_str()) == 0) return {};
  return ::chdir("/tmp") == 0 || ::chdir("/") == 0 ? Status() : errno_error("go to", directory);
}

/// slurmstepd tells Open MPI to keep its session in a directory that it made in the host's /tmp.
void make_pmix_directory(const std::string& directory) {
  if (!directory.empty()) ::mkdir(directory.c_str(), 0700);
}

}  // namespace

Result<TaskEntry> TaskEntry::open(const std::string& run_dir, std::uint32_t job,
                                  bool in_container) {
  auto views = JobViews::open(run_dir, job);
  if (!views) return views.error();
  auto host = own_namespace();
  if (!host) return host.error();
  // A container has no use for programs that gain capabilities; on the host, sudo and ping do.
  if (auto status = keep_for_later(in_container); !status.ok()) return status.error();
  return TaskEntry(*std::move(views), *std::move(host));
}

/// In the caller's namespace, which is the host's.
Status TaskEntry::build(const std::string& name, const Wanted& wanted, const Site& site,
                        Phases& phases) {
  if (name != kBase) {
    if (auto status = join(base_.get()); !status.ok()) return status;
  }
  if (auto status = leave_host(); !status.ok()) return status;
  auto made = own_namespace();
  if (!made) return made.error();
  phases.begin("making the job's temporary space");
  Status status = build_base_view(wanted.spec.tmp_mib.value_or(site.tmp_mib), site.shm_mib);
  if (!status.ok()) return status;
  phases.begin("keeping the view");
  if (status = join(host_.get()); !status.ok()) return status;
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  return as_root ? views_.pin(name, made->get()) : Status(as_root.error());
}

Status TaskEntry::find_or_build(const std::string& name, const Wanted& wanted, const Site& site,
                                Phases& phases, Fd& found) {
  const auto look = [&]() -> Status {
    const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
    if (!as_root) return as_root.error();
    auto ns = views_.find(name);
    if (!ns) return ns.error();
    found = *std::move(ns);
    return {};
  };
  if (auto status = look(); !status.ok() || found) return status;
  phases.begin("waiting for another task that builds");
  auto lock = views_.lock(std::chrono::seconds(site.phase_seconds));
  if (!lock) return lock.error();
  if (auto status = look(); !status.ok() || found) return status;
  if (auto status = build(name, wanted, site, phases); !status.ok()) return status;
  return look();
}

Status TaskEntry::enter(const Wanted& wanted, const Site& site, Phases& phases) {
  phases.begin("looking for the job's view");
  Status status = keep_only_needed();
  if (!status.ok()) return status;
  // Neither of them opens a file that the user could not open.
  const auto mounts = Raised::raise(CAP_SYS_ADMIN);
  if (!mounts) return mounts.error();
  const auto roots = Raised::raise(CAP_SYS_CHROOT);
  if (!roots) return roots.error();
  status = find_or_build(kBase, wanted, site, phases, base_);
  if (!status.ok()) return status;
  phases.begin("joining");
  if (status = join(base_.get()); !status.ok()) return status;
  make_pmix_directory(wanted.pmix_dir);
  if (status = go_to(wanted.cwd); !status.ok()) return status;
  status = drop_all(site.no_new_privs);
  phases.end();
  return status;
}

}  // namespace bellows::container
