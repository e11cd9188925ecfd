// SPDX-License-Identifier: Apache-2.0
#include "spank/container/task.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <tuple>

#include "common/container/spec_text.h"
#include "spank/container/base_view.h"
#include "spank/container/capabilities.h"
#include "spank/container/container_name.h"
#include "spank/container/driver_files.h"
#include "spank/container/fake_root.h"
#include "spank/container/fence.h"
#include "spank/container/mount_api.h"
#include "spank/container/mount_namespace.h"
#include "spank/container/own_mounts.h"
#include "spank/container/pmix_files.h"
#include "spank/container/rootfs.h"
#include "spank/container/save_file.h"
#include "spank/container/user_mounts.h"
#include "spank/container/working_directory.h"

namespace bellows::container {
namespace {

constexpr int kRoot = O_PATH | O_DIRECTORY;

bool is_device(int dev, const std::string& name) {
  struct stat info {};
  return ::fstatat(dev, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(info.st_mode);
}

/// A directory that the view lacks is not a reason to fail: Slurm goes to /tmp too.
Status go_to(const std::string& directory) {
  if (!directory.empty() && ::chdir(directory.c_str()) == 0) return {};
  return ::chdir("/tmp") == 0 || ::chdir("/") == 0 ? Status() : errno_error("go to", directory);
}

/// Not every node need have it; its file system may be one that does not answer.
std::string if_there(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0 ? path : "";
}

std::string note_name(const std::string& name) { return name + ":note"; }
/// Of the container's own mounts.
std::string own_name(const std::string& name) { return name + ":own"; }

std::string size_text(const TaskRequest& wanted) {
  return wanted.spec.tmp_mib ? fmt::format("{}M", *wanted.spec.tmp_mib) : "the site's";
}

}  // namespace

Result<TaskEntry> TaskEntry::open(const std::string& run_dir, std::uint32_t job, JobOwner owner,
                                  const Spec& spec, const Site& site, pid_t stepd) {
  auto views = JobViews::open(run_dir, job);
  if (!views) return views.error();
  auto host = own_namespace();
  if (!host) return host.error();
  if (auto status = begin_session_keyring(); !status.ok()) return status.error();
  TaskEntry entry(*std::move(views), *std::move(host), job, stepd);
  if (outlasts_job(spec, site, job)) {
    auto users = lasting::make_users(site.lasting.directory, owner.uid, owner.gid);
    if (!users) return users.error();
    entry.lasting_ = *std::move(users);
  }
  if (const auto step = step_meant(spec, job)) {
    auto joined = container_of_step(entry.views_, job, *step);
    if (!joined) return joined.error();
    entry.joined_ = *std::move(joined);
  }
  if (has_user_namespace(spec, site)) {
    const std::string name =
        entry.joined_.empty() ? container_name(spec, site, stepd) : entry.joined_;
    auto user = find_or_make_user(entry.views_, name, owner, is_fake_root(spec, site));
    if (!user) return user.error();
    entry.user_ = *std::move(user);
    const auto capable = users_have_namespaces("");
    if (!capable) return capable.error();
    entry.capable_ = entry.user_.root && *capable;
  }
  // A container has no use for programs that gain capabilities; on the host, sudo and ping do.
  if (auto status = keep_for_later(wants_container(spec)); !status.ok()) return status.error();
  return entry;
}

Result<Fd> TaskEntry::open_place(const char* name) const {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  return views_.open_place(name);
}

/// Not sooner: it must be as closed to the user's other processes as this one.
Status TaskEntry::watch(const Site& site, Phases& phases) {
  auto watchdog = Watchdog::start(site.phase_seconds);
  if (!watchdog) return watchdog.error();
  watchdog_.emplace(*std::move(watchdog));
  phases.watch([this](const char* phase) { watchdog_->begin(phase); });
  return {};
}

/// A phase that limits its own time, and can say more than a watchdog could.
void TaskEntry::begin_patiently(const char* phase, std::uint32_t seconds, Phases& phases) {
  phases.begin(phase);
  watchdog_->begin(phase, seconds + 1);
}

Status TaskEntry::look_at_gpus(const TaskRequest& wanted, const Site& site, Phases& phases) {
  phases.begin("checking the fence around GPUs");
  const auto nodes = find_gpu_nodes("/");
  if (!nodes) return nodes.error();
  if (site.require_fence)
    if (auto status = check_fence(*nodes, wanted.gpus); !status.ok()) return status;
  gpus_ = plan_view(*nodes);
  for (const std::string& name : gpus_.shown)
    phases.note(fmt::format("/dev/{} is the task's", name));
  for (const std::string& name : gpus_.hidden) phases.note(fmt::format("/dev/{} is hidden", name));
  return {};
}

Status TaskEntry::build_base(const TaskRequest& wanted, const Site& site, Phases& phases) {
  const std::uint64_t tmp_mib = wanted.spec.tmp_mib.value_or(site.tmp_mib);
  const auto told = [](std::uint64_t mib) {
    return mib == 0 ? "half of the memory" : fmt::format("{} MiB", mib);
  };
  phases.note(fmt::format("tmpfs on /tmp and /var/tmp ({} together)", told(tmp_mib)));
  phases.note(fmt::format("tmpfs on /dev/shm ({})", told(site.shm_mib)));
  for (const std::string& kept : site.tmp_keep) phases.note(fmt::format("{0} on {0}", kept));
  return build_base_view(tmp_mib, site.shm_mib, site.tmp_keep);
}

Status TaskEntry::cover_host_proc() const {
  const auto proc = open_file("/proc", kRoot);
  return proc ? cover_driver_proc(proc->get(), gpus_.minors) : Status(proc.error());
}

/// In a namespace just left from the job's view of the host.
Status TaskEntry::build_container(const TaskRequest& wanted, const Site& site, Phases& phases) {
  RootfsInputs inputs;
  inputs.account = wanted.account;
  inputs.home = wanted.home;
  inputs.console = wanted.console;
  inputs.imported = imported_;
  phases.begin("finding the driver's files");
  const auto host = open_file("/", kRoot);
  const auto driver = open_place("driver");
  const auto scratch = open_place("root");
  for (const auto* fd : {&host, &driver, &scratch})
    if (!*fd) return fd->error();
  inputs.scratch = scratch->get();
  if (auto status = cover_host_proc(); !status.ok()) return status;
  std::vector<OwnFile> own_files = wanted.own;
  std::erase_if(own_files, [](const OwnFile& file) { return if_there(file.source).empty(); });
  auto plan = plan_driver_files(host->get(), own_files, this_machine());
  if (!plan) return plan.error();
  for (const std::string& note : plan->notes) phases.note(note);
  auto files = open_driver_files(*plan, host->get(), driver->get());
  if (!files) return files.error();
  inputs.mounts = *std::move(files);
  // The batch script lies in slurmd's spool directory, which a container does not have.
  const auto& [socket, socket_target] = wanted.model_socket;
  for (const auto& [path, target, read_only] : {std::tuple(wanted.script, wanted.script, true),
                                                {wanted.run_dir, wanted.run_dir, false},
                                                {if_there(socket), socket_target, false}})
    if (auto status = add_bind(path, target, read_only, inputs.mounts); !status.ok()) return status;
  const auto dev = open_file("/dev", kRoot);
  if (!dev) return dev.error();
  auto nodes = clone_nodes(dev->get(), gpus_.shown);
  if (!nodes) return nodes.error();
  inputs.devices = *std::move(nodes);
  // A plain job's other processes are on the host, and so is what they put into /tmp for it.
  if (wanted.plain_job)
    inputs.at_sources = [this](const auto& open) { return do_in(host_.get(), open); };
  inputs.mount_own = [&](const Image& image) -> Result<Fd> {
    const auto served = served_for(wanted, site);
    const auto name = served_name(image, served);
    if (!name) return name.error();
    served_ = *name;
    return mount_served(image, served);
  };
  inputs.kept = kept_.get();
  inputs.layer = layer_.get();
  const auto built = build_rootfs(wanted.spec, site, inputs, phases);
  if (!built) return built.error();
  own_ = built->own;
  state_.layered = built->layered;
  return {};
}

ServedFor TaskEntry::served_for(const TaskRequest& wanted, const Site& site) const {
  return {views_, host_.get(), servers_, wanted.step, site};
}

/// The job's temporary space has the size that its first task on the node wanted.
Status TaskEntry::check_size(const TaskRequest& wanted) {
  if (!wanted.spec.tmp_mib) return {};
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  const auto note = views_.read_note(note_name(kBase));
  if (!note) return note.error();
  if (*note != size_text(wanted))
    remarks_.emplace_back(
        "the job's /tmp on this node is there already; --container-tmp is ignored");
  return {};
}

/// Each keeps mounts, and a squashfs image's a loop device too, until the job ends.
Status TaskEntry::check_number(const std::string& name, const Site& site) const {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  const auto names = views_.names();
  if (!names) return names.error();
  const auto others = std::count_if(names->begin(), names->end(), [&name](const auto& other) {
    return other != kBase && other != name && other.find(':') == std::string::npos;
  });
  if (others < site.max_containers) return {};
  return Error{ErrorKind::denied,
               fmt::format("the job has {} containers on this node already, the maximum "
                           "(max_containers in plugstack.conf); enter one of them, by its name or "
                           "with the options that it was made with",
                           others)};
}

/// In the host's mount namespace. What makes the container found comes last.
Status TaskEntry::keep(const std::string& name, const TaskRequest& wanted, int made) {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  if (name == kBase) {
    const Status status = views_.write_note(note_name(name), size_text(wanted));
    return status.ok() ? views_.pin(name, made) : status;
  }
  Status status = pin_own(views_, name, wanted.spec);
  if (status.ok() && !served_.empty()) status = note_image(name, served_, views_);
  if (status.ok()) status = views_.write_note(own_name(name), own_text(own_));
  if (status.ok() && !wanted.spec.name.empty()) {
    status = keep_state(name);
    // Those who are in one that was made before stay there.
    if (status.ok()) status = views_.unpin(name);
  }
  return status.ok() ? views_.pin(name, made) : status;
}

/// From the host's namespace and back to it, but for what a container has of its own.
Status TaskEntry::build(const std::string& name, const TaskRequest& wanted, const Site& site,
                        Phases& phases) {
  const bool base = name == kBase;
  if (user_.fd && !base)
    if (auto settled = settle_user_locked(views_, name, user_); !settled.ok()) return settled;
  Status status = base ? Status() : join(base_.get());
  if (status.ok()) status = leave_namespace();
  const Fd nobody;
  if (status.ok() && !base) status = leave_for_own(wanted.spec, user_.root ? user_.fd : nobody);
  if (!status.ok()) return status;
  auto made = own_namespace();
  if (!made) return made.error();
  phases.begin("making the job's temporary space");
  status = base ? build_base(wanted, site, phases) : build_container(wanted, site, phases);
  if (!status.ok()) return status;
  phases.begin("keeping the view");
  if (status = join(host_.get()); !status.ok()) return status;
  return keep(name, wanted, made->get());
}

Status TaskEntry::look(const std::string& name, const TaskRequest& wanted, const Site& site,
                       Fd& found) const {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  auto ns = views_.find(name);
  if (!ns) return ns.error();
  found = *std::move(ns);
  return found ? drop_dead(name, served_for(wanted, site), found) : Status();
}

Status TaskEntry::find_or_build(const std::string& name, const TaskRequest& wanted,
                                const Site& site, Phases& phases, Fd& found) {
  const auto check = [&] { return found && name == kBase ? check_size(wanted) : Status(); };
  phases.begin("looking for the job's view");
  if (auto status = look(name, wanted, site, found); !status.ok() || found)
    return status.ok() ? check() : status;
  const std::uint32_t wait = wait_seconds(site);
  begin_patiently("waiting for another task that builds", wait, phases);
  auto lock = views_.lock(std::chrono::seconds(wait));
  if (!lock) return lock.error();
  if (auto status = look(name, wanted, site, found); !status.ok() || found)
    return status.ok() ? check() : status;
  if (name != kBase)
    if (auto status = check_number(name, site); !status.ok()) return status;
  const Status status = build(name, wanted, site, phases);
  return status.ok() ? look(name, wanted, site, found) : status;
}

Status TaskEntry::enter_host_view(const TaskRequest& wanted) {
  PmixFiles session = PmixFiles::session(wanted.pmix_session, wanted.pmix_shares_session);
  if (auto status = session.open(); !status.ok()) return status;
  if (auto status = join(base_.get()); !status.ok()) return status;
  if (session || !gpus_.hidden.empty())
    if (auto status = leave_namespace(); !status.ok()) return status;
  if (auto status = session.place(); !status.ok()) return status;
  if (!gpus_.hidden.empty()) {
    const auto dev = open_file("/dev", kRoot);
    const auto dead = open_place("dead");
    for (const auto* fd : {&dev, &dead})
      if (!*fd) return fd->error();
    if (auto status = hide_nodes(dev->get(), gpus_.hidden, dead->get()); !status.ok())
      return status;
    if (auto status = cover_host_proc(); !status.ok()) return status;
  }
  return go_to(wanted.cwd);
}

/// From the container and back to it: the kernel clones only what is mounted where the caller is.
Result<std::vector<Device>> TaskEntry::clone_from_host(const std::vector<std::string>& names,
                                                       const Fd& container) const {
  if (auto status = join(host_.get()); !status.ok()) return status.error();
  const auto dev = open_file("/dev", kRoot);
  if (!dev) return dev.error();
  auto clones = clone_nodes(dev->get(), names);
  if (auto status = join(container.get()); !status.ok()) return status.error();
  return clones;
}

/// Numbers of mounts do not hold in a copy of their namespace, and the host's /proc is mounted in
/// more than one place: the working directory is what the kernel takes along to the same mount.
Result<Fd> TaskEntry::leave_in_proc(const Fd& root) const {
  const auto proc = open_own(root.get(), "/proc", own_.proc);
  if (!proc) return proc.error();
  if (::fchdir(proc->get()) != 0) return errno_error("go to", "/proc");
  if (auto status = leave_namespace(); !status.ok()) return status.error();
  return open_file(".", kRoot);
}

/// Another step of the job, with other GPUs of its own, may have built the container. What this
/// task lacks is added, and what is not its own taken away, for this task alone.
Status TaskEntry::correct_devices(const Fd& container) {
  if (gpus_.shown.empty() && gpus_.hidden.empty()) return {};
  const auto shared = open_file("/", kRoot);
  if (!shared) return shared.error();
  const auto dev = open_own(shared->get(), "/dev", own_.dev);
  if (!dev) return dev.error();
  std::vector<std::string> lacking;
  std::copy_if(gpus_.shown.begin(), gpus_.shown.end(), std::back_inserter(lacking),
               [&dev](const auto& name) { return !is_device(dev->get(), name); });
  const bool shows = std::any_of(gpus_.hidden.begin(), gpus_.hidden.end(),
                                 [&dev](const auto& name) { return is_device(dev->get(), name); });
  if (lacking.empty() && !shows) return {};
  const auto added = lacking.empty() ? Result<std::vector<Device>>(std::vector<Device>())
                                     : clone_from_host(lacking, container);
  if (!added) return added.error();
  const auto proc = leave_in_proc(*shared);
  if (!proc) return proc.error();
  const auto root = open_file("/", kRoot);
  if (!root) return root.error();
  const auto own = open_same(root->get(), "/dev", dev->get());
  if (!own) return own.error();
  for (const std::string& name : gpus_.hidden)
    while (is_device(own->get(), name))  // the user may have mounted it upon itself
      if (auto status = unmount_in(own->get(), name); !status.ok()) return status;
  if (auto status = cover_driver_proc(proc->get(), gpus_.minors); !status.ok()) return status;
  if (lacking.empty()) return {};
  if (auto status = set_writable(own->get(), "/dev"); !status.ok()) return status;
  for (const Device& device : *added)
    if (auto status = add_device(own->get(), device.name, device.mount.get()); !status.ok())
      return status;
  return set_read_only(own->get(), "/dev");
}

/// From the host's mount namespace, where their names are.
Status TaskEntry::join_others(const std::string& name, const TaskRequest& wanted, const Site& site,
                              Phases& phases) {
  std::vector<OwnNamespace> own;
  {
    const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
    if (!as_root) return as_root.error();
    auto found = find_own(views_, name, wanted.spec);
    if (!found) return found.error();
    own = *std::move(found);
    const auto note = views_.read_note(own_name(name));
    if (!note) return note.error();
    const auto mounts = parse_own(*note);
    if (!mounts) return mounts.error();
    own_ = *mounts;
  }
  if (capable_ && !wanted.spec.name.empty()) {
    const auto vacant = joined_.empty() ? is_vacant(name) : Result<bool>(false);
    if (!vacant) return vacant.error();
    joins_ = !*vacant;
  }
  if (user_.fd) {
    const std::uint32_t wait = wait_seconds(site);
    begin_patiently("joining the container's user namespace", wait, phases);
    if (auto status = settle_user(views_, name, user_, wait); !status.ok()) return status;
  }
  return join_own(own);
}

Status TaskEntry::find_container(const std::string& name, const TaskRequest& wanted,
                                 const Site& site, Phases& phases, Fd& found) {
  if (!joined_.empty()) return find_of_step(name, wanted, site, phases, found);
  Status status = import_image(name, wanted, phases);
  if (!status.ok()) return status;
  if (!wanted.spec.name.empty()) return find_named(name, wanted, site, phases, found);
  status = find_or_build(name, wanted, site, phases, found);
  return status.ok() ? note_step(views_, name, stepd_, wanted.step) : status;
}

Status TaskEntry::enter_container(const TaskRequest& wanted, const Site& site, Phases& phases) {
  Fd container;
  PmixFiles pmix(wanted.pmix_dir);
  PmixFiles session = PmixFiles::session(wanted.pmix_session, wanted.pmix_shares_session);
  const std::string name =
      joined_.empty() ? container_name(wanted.spec, site, stepd_, wanted.home) : joined_;
  Status status = find_container(name, wanted, site, phases, container);
  if (!status.ok()) return status;
  phases.begin("joining the container's namespaces");
  if (status = join_others(name, wanted, site, phases); !status.ok()) return status;
  phases.begin("joining the container");
  if (status = pmix.open(); !status.ok()) return status;
  if (status = session.open(); !status.ok()) return status;
  if (status = join(container.get()); !status.ok()) return status;
  if (status = correct_devices(container); !status.ok()) return status;
  if (pmix || session)
    if (status = leave_namespace(); !status.ok()) return status;
  if (status = session.place(); !status.ok()) return status;
  if (status = pmix.place(); !status.ok()) return status;
  if (pmix) pmix_moved_ = {pmix.from(), pmix.to()};
  const auto root = open_file("/", kRoot);
  if (!root) return root.error();
  phases.begin("going to the working directory");
  const auto remark = enter_working_directory(root->get(), wanted.spec);
  if (!remark) return remark.error();
  if (!remark->empty()) remarks_.push_back(*remark);
  return {};
}

/// As a task of the job that has no container would find the node.
Status TaskEntry::run_task_prolog(const TaskRequest& wanted) {
  auto said = run_prolog(wanted.prolog, [&] {
    const Status status = wanted.plain_job ? go_to(wanted.cwd) : enter_host_view(wanted);
    return status.ok() ? drop_all(false) : status;
  });
  if (!said) return said.error();
  prolog_said_ = *std::move(said);
  return {};
}

/// Before hours of work come to nothing.
Status TaskEntry::check_saving(const TaskRequest& wanted, const Site& site, Phases& phases) const {
  if (wanted.spec.save.empty()) return {};
  phases.begin("looking at the file to be saved");
  const auto check = [&] { return check_save({wanted.spec.save, site.mksquashfs, "", 1}); };
  return wanted.plain_job ? check() : do_in(base_.get(), check);
}

Status TaskEntry::enter(const TaskRequest& wanted, const Site& site, Phases& phases) {
  phases.begin("taking up the capabilities");
  Status status = keep_only_needed(wanted.spec.unshare_net);
  if (status.ok()) status = watch(site, phases);
  if (!status.ok()) return status;
  {
    // Neither of them opens a file that the user could not open.
    const auto mounts = Raised::raise(CAP_SYS_ADMIN);
    if (!mounts) return mounts.error();
    const auto roots = Raised::raise(CAP_SYS_CHROOT);
    if (!roots) return roots.error();
    if (status = look_at_gpus(wanted, site, phases); !status.ok()) return status;
    if (status = find_or_build(kBase, wanted, site, phases, base_); !status.ok()) return status;
    if (!wanted.prolog.path.empty()) {
      begin_patiently("running TaskProlog", wanted.prolog.seconds, phases);
      if (status = run_task_prolog(wanted); !status.ok()) return status;
    }
    if (status = check_saving(wanted, site, phases); !status.ok()) return status;
    phases.begin("joining the job's view");
    status = wants_container(wanted.spec) ? enter_container(wanted, site, phases)
                                          : enter_host_view(wanted);
    if (!status.ok()) return status;
  }
  phases.begin("giving up the capabilities");
  const bool no_new_privs = site.no_new_privs && wants_container(wanted.spec);
  status = user_.fd ? enter_user_namespace(user_.fd, capable_, joins_, no_new_privs)
                    : drop_all(no_new_privs);
  phases.end();
  return status;
}

}  // namespace bellows::container
