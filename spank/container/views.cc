// SPDX-License-Identifier: Apache-2.0
#include "spank/container/views.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <vector>

#include "common/directory.h"
#include "common/text.h"
#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr long kNsfsMagic = 0x6e736673;
constexpr std::chrono::seconds kRemovalLimit{10};
constexpr std::chrono::seconds kDeniedLimit{2};

std::string views_path(const std::string& run_dir) { return run_dir + "/views"; }

/// A job's two directories: of its views, and of what else is kept for it.
struct Places {
  Places(const std::string& run_dir, std::uint32_t job)
      : name(std::to_string(job)),
        path(fmt::format("{}/{}", views_path(run_dir), job)),
        kept(fmt::format("{}/{}", run_dir, job)) {}

  std::string name;
  std::string path;
  std::string kept;
};

/// Whether `fd` is where a file system is mounted.
bool is_mount_root(int fd) {
  struct statx info {};
  return ::statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &info) == 0 &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

Result<Fd> open_directory(int parent, const char* name, const std::string& path) {
  Fd fd(::openat(parent, name, kDirectory));
  if (!fd) return errno_error("open", path);
  return fd;
}

Status make_directory(int parent, const char* name, const std::string& path) {
  if (::mkdirat(parent, name, 0700) != 0 && errno != EEXIST) return errno_error("mkdir", path);
  return {};
}

Status flock_within(int fd, int operation, std::chrono::milliseconds limit,
                    const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::chrono::microseconds pause{100};
  while (::flock(fd, operation | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return errno_error("lock", path);
    if (std::chrono::steady_clock::now() >= deadline)
      return Error{ErrorKind::unavailable,
                   fmt::format("{}: still locked after {} ms", path, limit.count())};
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(5));
  }
  return {};
}

Status mount_views(int below, const std::string& path) {
  auto tmpfs = new_filesystem("tmpfs", {{"mode", "0700"}, {"size", "4m"}}, {});
  if (!tmpfs) return tmpfs.error();
  return attach(tmpfs->get(), below, path);
}

/// Whoever else could write here would choose what root mounts and removes.
Result<Fd> open_roots(int parent, const char* name, const std::string& path) {
  auto directory = open_directory(parent, name, path);
  if (!directory) return directory;
  const auto status = check_owner(directory->get(), 0, path);
  return status.ok() ? std::move(directory) : Result<Fd>(status.error());
}

/// RUN_DIR/views, mounted or not yet.
Result<Fd> open_views_in(int run, const std::string& path) {
  auto views = open_roots(run, "views", path);
  if (!views || !is_mount_root(views->get())) return views;
  struct statfs system {};
  if (::fstatfs(views->get(), &system) != 0) return errno_error("look at", path);
  if (system.f_type != TMPFS_MAGIC)
    return Error{ErrorKind::denied, path + ": what is mounted there is not a tmpfs; unmount it"};
  return views;
}

/// RUN_DIR/views, mounted. Two that come first together are told apart by a lock on what is below
/// the mount: any user may lock RUN_DIR itself.
Result<Fd> open_views(const std::string& run_dir) {
  const std::string path = views_path(run_dir);
  if (::mkdir(run_dir.c_str(), 0755) != 0 && errno != EEXIST) return errno_error("mkdir", run_dir);
  const auto run = open_roots(AT_FDCWD, run_dir.c_str(), run_dir);
  if (!run) return run.error();
  if (auto status = make_directory(run->get(), "views", path); !status.ok()) return status.error();
  auto views = open_views_in(run->get(), path);
  if (!views || is_mount_root(views->get())) return views;
  const Fd below = *std::move(views);
  if (auto status = flock_within(below.get(), LOCK_EX, kRemovalLimit, path); !status.ok())
    return status.error();
  views = open_views_in(run->get(), path);
  if (!views || is_mount_root(views->get())) return views;
  if (auto status = mount_views(views->get(), path); !status.ok()) return status.error();
  return open_views_in(run->get(), path);
}

Status make_file(int parent, const char* name, mode_t mode, const std::string& path) {
  const Fd fd(::openat(parent, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode));
  return fd ? Status() : errno_error("create", path);
}

/// Whatever is mounted under a name of JOB/ns, however often; then the name.
Status remove_name(int ns, const char* name) {
  if (auto status = unmount_all(ns, name); !status.ok()) return status;
  if (::unlinkat(ns, name, 0) != 0 && errno != ENOENT) return errno_error("remove", name);
  return {};
}

/// The user's directory, with everything that the user may have mounted in it. The view of each job
/// that began while it was mounted has it too: the kernel unmounts wherever its mount point is,
/// when that is removed.
Status unmount_user(const std::string& kept) {
  const auto directory = open_directory(AT_FDCWD, kept.c_str(), kept);
  if (!directory) return {};
  if (auto status = unmount_all(directory->get(), "user"); !status.ok()) return status;
  // What lies under it goes with the job's contract.
  if (::unlinkat(directory->get(), "user", AT_REMOVEDIR) == 0 || errno == ENOENT ||
      errno == ENOTDIR || errno == ENOTEMPTY)
    return {};
  return errno_error("remove", kept + "/user");
}

Status mount_user(const std::string& kept, JobOwner owner) {
  const std::string path = kept + "/user";
  const auto parent = open_directory(AT_FDCWD, kept.c_str(), path);
  if (!parent) {
    struct stat info {};
    const bool plain = ::lstat(kept.c_str(), &info) == 0 && S_ISREG(info.st_mode);
    return plain ? Status() : Status(parent.error());
  }
  // It goes with each job, also one that comes back to the node.
  if (auto status = make_directory(parent->get(), "user", path); !status.ok()) return status;
  const auto directory = open_directory(parent->get(), "user", path);
  if (!directory) return directory.error();
  auto tmpfs = new_filesystem("tmpfs",
                              {{"mode", "0700"},
                               {"uid", std::to_string(owner.uid)},
                               {"gid", std::to_string(owner.gid)},
                               {"size", "16m"},
                               {"nr_inodes", "4096"}},
                              {});
  return tmpfs ? attach(tmpfs->get(), directory->get(), path) : Status(tmpfs.error());
}

/// Unpins and removes everything but `alive`, which the caller has locked.
Status remove_views(int job_dir, const std::string& path) {
  if (Fd ns(::openat(job_dir, "ns", kDirectory)); ns) {
    const Directory dir = read_directory(Fd(::fcntl(ns.get(), F_DUPFD_CLOEXEC, 0)));
    if (!dir) return errno_error("read", path + "/ns");
    while (const dirent* entry = ::readdir(dir.get())) {
      if (entry->d_name[0] == '.') continue;
      if (auto status = remove_name(ns.get(), entry->d_name); !status.ok()) return status;
    }
  }
  for (const char* name : {"ns", "root", "driver"})
    if (::unlinkat(job_dir, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
      return errno_error("remove", fmt::format("{}/{}", path, name));
  for (const char* name : {"lock", "dead"})
    if (::unlinkat(job_dir, name, 0) != 0 && errno != ENOENT)
      return errno_error("remove", fmt::format("{}/{}", path, name));
  return {};
}

/// With `alive` locked: nobody can be starting in it, since that needs the lock.
Status remove_job(int views, const Places& places, int job_dir) {
  if (auto status = unmount_user(places.kept); !status.ok()) return status;
  if (auto status = remove_views(job_dir, places.path); !status.ok()) return status;
  if (::unlinkat(job_dir, "alive", 0) != 0 && errno != ENOENT)
    return errno_error("remove", places.path);
  // Whoever comes now, since `alive` has lost its name, makes a new one.
  if (::unlinkat(views, places.name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT &&
      errno != ENOTEMPTY)
    return errno_error("remove", places.path);
  return {};
}

/// For the first lease, with `alive` locked.
Status begin_job(const Places& places, int job_dir, JobOwner owner) {
  if (auto status = unmount_user(places.kept); !status.ok()) return status;
  if (auto status = remove_views(job_dir, places.path); !status.ok()) return status;
  return mount_user(places.kept, owner);
}

/// A file that was removed while its opener waited for the lock on it protects nothing.
bool still_named(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
}

/// One try: an invalid descriptor means that the directory went away meanwhile.
Result<Fd> try_lease(int views, const Places& places, JobOwner owner) {
  const std::string& name = places.name;
  const std::string& path = places.path;
  if (auto status = make_directory(views, name.c_str(), path); !status.ok()) return status.error();
  auto directory = open_directory(views, name.c_str(), path);
  if (!directory)
    return directory.error().kind == ErrorKind::not_found ? Result<Fd>(Fd()) : std::move(directory);
  Fd alive(::openat(directory->get(), "alive", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!alive) {
    if (errno == ENOENT) return Fd();
    auto error = errno_error("open", path + "/alive");
    // Without `alive` nobody can hold a lease that would remove the directory; another process that
    // tries now creates it again.
    ::unlinkat(views, name.c_str(), AT_REMOVEDIR);
    return error;
  }
  if (::flock(alive.get(), LOCK_EX | LOCK_NB) == 0 && still_named(alive.get())) {
    if (auto status = begin_job(places, directory->get(), owner); !status.ok()) {
      (void)remove_job(views, places, directory->get());
      return status.error();
    }
  }
  if (auto status = flock_within(alive.get(), LOCK_SH, kRemovalLimit, path); !status.ok())
    return status.error();
  return still_named(alive.get()) ? std::move(alive) : Fd();
}

/// Unless a slurmstepd of the job lives, or somebody has removed it. `alive` stays locked.
Status remove_if_last(int views, const Places& places, int alive,
                      const std::function<void()>& last) {
  if (::flock(alive, LOCK_EX | LOCK_NB) != 0 || !still_named(alive)) return {};
  if (last) last();
  const auto directory = open_directory(views, places.name.c_str(), places.path);
  return directory ? remove_job(views, places, directory->get()) : Status(directory.error());
}

/// Never by way of a lease: whoever begins beside it would take that for a slurmstepd that lives,
/// and find nothing made ready.
Status collect_job(int views, const Places& places, const std::function<void()>& last) {
  auto directory = open_directory(views, places.name.c_str(), places.path);
  if (!directory)
    return directory.error().kind == ErrorKind::not_found ? Status() : Status(directory.error());
  const Fd alive(::openat(directory->get(), "alive", O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!alive) {
    if (errno != ENOENT) return errno_error("open", places.path + "/alive");
    // Somebody is about to create it, or died before doing so.
    ::unlinkat(views, places.name.c_str(), AT_REMOVEDIR);
    return {};
  }
  return remove_if_last(views, places, alive.get(), last);
}

}  // namespace

Result<Lease> Lease::take(const std::string& run_dir, std::uint32_t job, JobOwner owner) {
  auto views = open_views(run_dir);
  if (!views) return views.error();
  const Places places(run_dir, job);
  for (int round = 0; round < 100; ++round) {
    auto alive = try_lease(views->get(), places, owner);
    if (!alive) return alive.error();
    if (*alive) return Lease(run_dir, job, *std::move(alive));
  }
  return Error{ErrorKind::unavailable, fmt::format("{}: somebody keeps removing it", places.path)};
}

Status Lease::try_leave(const std::function<void()>& last) {
  auto views = open_views(run_dir_);
  if (!views) return views.error();
  return remove_if_last(views->get(), Places(run_dir_, job_), alive_.get(), last);
}

Status Lease::leave(const std::function<void()>& last) {
  const auto deadline = std::chrono::steady_clock::now() + kDeniedLimit;
  Status status = try_leave(last);
  while (!status.ok() && status.error().kind == ErrorKind::denied &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    status = try_leave(last);
  }
  alive_.reset();
  return status;
}

Status collect_views(const std::string& run_dir,
                     const std::function<void(std::uint32_t job)>& last) {
  auto views = open_views(run_dir);
  if (!views) return views.error();
  const Directory dir = read_directory(Fd(::fcntl(views->get(), F_DUPFD_CLOEXEC, 0)));
  if (!dir) return errno_error("read", views_path(run_dir));
  std::vector<std::uint32_t> jobs;
  while (const dirent* entry = ::readdir(dir.get()))
    if (const auto job = parse_uint(entry->d_name); job && *job <= UINT32_MAX)
      jobs.push_back(static_cast<std::uint32_t>(*job));
  Status first;
  for (const std::uint32_t job : jobs) {
    const Status status = collect_job(views->get(), Places(run_dir, job), [&] {
      if (last) last(job);
    });
    if (first.ok()) first = status;
  }
  return first;
}

Result<JobViews> JobViews::open(const std::string& run_dir, std::uint32_t job) {
  const std::string path = fmt::format("{}/{}", views_path(run_dir), job);
  auto directory = open_directory(AT_FDCWD, path.c_str(), path);
  if (!directory) return directory.error();
  const int at = directory->get();
  Status status = make_directory(at, "ns", path);
  if (status.ok()) status = make_directory(at, "root", path);
  if (status.ok()) status = make_directory(at, "driver", path);
  if (status.ok()) status = make_file(at, "dead", 0000, path);
  if (!status.ok()) return status.error();
  JobViews job_views;
  job_views.path_ = path;
  job_views.lock_ = Fd(::openat(at, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  job_views.ns_ = Fd(::openat(at, "ns", kDirectory));
  if (!job_views.lock_ || !job_views.ns_) return errno_error("open", path);
  return job_views;
}

Result<Fd> JobViews::open_place(const char* name) const {
  return open_file(fmt::format("{}/{}", path_, name), O_PATH | O_NOFOLLOW);
}

Lock::~Lock() {
  if (fd_ >= 0) ::flock(fd_, LOCK_UN);
}

Result<Lock> JobViews::lock(std::chrono::milliseconds limit) const {
  const auto status = flock_within(lock_.get(), LOCK_EX, limit, "this job's containers here");
  if (!status.ok())
    return Error{status.error().kind, status.error().text +
                                          " by another task of the job that is building one; start "
                                          "the step again when that task has finished"};
  return Lock(lock_.get());
}

Result<Fd> JobViews::find(const std::string& name) const {
  Fd fd(::openat(ns_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return errno == ENOENT ? Result<Fd>(Fd()) : errno_error("open the namespace", name);
  struct statfs info {};
  if (::fstatfs(fd.get(), &info) != 0) return errno_error("stat the namespace", name);
  // The bare file: its maker died before the mount.
  if (info.f_type != kNsfsMagic) return Fd();
  return fd;
}

Status JobViews::pin(const std::string& name, int ns) const {
  if (auto status = make_file(ns_.get(), name.c_str(), 0600, name); !status.ok()) return status;
  const Fd target(::openat(ns_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!target) return errno_error("open the namespace's name", name);
  const Fd mount(::open_tree(ns, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!mount) return errno_error("pin the namespace", name);
  if (::move_mount(mount.get(), "", target.get(), "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0)
    return {};
  // The rule that keeps namespaces from holding each other: only an older one may pin a younger.
  if (errno == ELOOP)
    return Error{ErrorKind::unavailable,
                 "this kernel considers the namespace older than slurmd's own, and so won't keep "
                 "it; run slurmd in the machine's first mount namespace (no PrivateTmp= or "
                 "Protect...= in its unit), and without job_container/tmpfs and namespace/tmpfs"};
  return errno_error("pin the namespace", name);
}

Status JobViews::unpin(const std::string& name) const {
  return remove_name(ns_.get(), name.c_str());
}

Result<std::vector<std::string>> JobViews::names() const {
  // A descriptor of its own: the others' place in the directory is theirs.
  const Directory dir = read_directory(Fd(::openat(ns_.get(), ".", kDirectory)));
  if (!dir) return errno_error("read", path_ + "/ns");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  return names;
}

Status JobViews::write_note(const std::string& name, const std::string& text) const {
  if (::unlinkat(ns_.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return errno_error("remove the note", name);
  // A reader finds all of it or nothing.
  if (::symlinkat(text.c_str(), ns_.get(), name.c_str()) != 0)
    return errno_error("write the note", name);
  return {};
}

Result<std::string> JobViews::read_note(const std::string& name) const {
  std::array<char, 4096> text{};
  const ssize_t n = ::readlinkat(ns_.get(), name.c_str(), text.data(), text.size());
  if (n < 0 && errno != ENOENT) return errno_error("read the note", name);
  return n < 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(n));
}

Status JobViews::keep_note(const std::string& name, const std::string& text) const {
  const auto kept = [&] {
    const auto found = read_note(name);
    return found && *found == text;
  };
  if (kept()) return {};
  const Status status = write_note(name, text);
  return kept() ? Status() : status;
}

}  // namespace bellows::container
