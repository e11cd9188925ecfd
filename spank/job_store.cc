// SPDX-License-Identifier: Apache-2.0
#include "spank/job_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "common/directory.h"
#include "common/resolved.h"
#include "common/text.h"
#include "spank/container/mount_api.h"

namespace bellows::spank {
namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr const char* kContract = "contract";
constexpr const char* kPlan = "launcher.plan";
constexpr const char* kRescues = "rescues";
constexpr const char* kUser = "user";
/// In the contract's file only: whose job it is.
constexpr const char* kUidKey = "uid";
constexpr const char* kMarker = "launcher.active";
constexpr int kDeepest = 64;

bool is_gone(int parent, const char* name) {
  return ::unlinkat(parent, name, 0) == 0 || errno == ENOENT;
}

/// Removes `name` and what is below it. Every level is opened without following links or entering
/// mounts, so nothing that its owner swaps in meanwhile leads elsewhere, nor to a server that
/// doesn't answer. False: something is left.
bool remove_tree(int parent, const char* name, std::size_t& budget, int depth) {
  if (budget == 0 || depth > kDeepest) return false;
  --budget;
  if (is_gone(parent, name)) return true;
  // Any user may have mounted something, as with fusermount.
  if (container::unmount_all(parent, name).ok() && is_gone(parent, name)) return true;
  auto directory = open_child(parent, name);
  if (!directory) return false;
  const Directory dir = read_directory(std::move(*directory));
  if (!dir) return false;
  bool clean = true;
  while (const dirent* entry = ::readdir(dir.get())) {
    if (is_dots(entry->d_name)) continue;
    clean = remove_tree(::dirfd(dir.get()), entry->d_name, budget, depth + 1) && clean;
    if (budget == 0) break;
  }
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0 && clean;
}

}  // namespace

std::string JobStore::job_dir(std::uint32_t job) const {
  return fmt::format("{}/{}", run_dir_, job);
}

std::string JobStore::user_dir(std::uint32_t job) const {
  return fmt::format("{}/{}", job_dir(job), kUser);
}

Result<Fd> JobStore::open_run_dir(bool create) const {
  if (create && ::mkdir(run_dir_.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error("mkdir", run_dir_);
  Fd fd(::open(run_dir_.c_str(), kDirectory));
  if (!fd) return errno_error("open", run_dir_);
  if (auto status = check_owner(fd.get(), owner_, run_dir_); !status.ok()) return status.error();
  return fd;
}

Result<Fd> JobStore::open_job_dir(std::uint32_t job, bool create) const {
  auto base = open_run_dir(create);
  if (!base) return base;
  const std::string name = std::to_string(job);
  if (create && ::mkdirat(base->get(), name.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error("mkdir", job_dir(job));
  Fd fd(::openat(base->get(), name.c_str(), kDirectory));
  if (!fd) return errno_error("open", job_dir(job));
  if (auto status = check_owner(fd.get(), owner_, job_dir(job)); !status.ok())
    return status.error();
  // The daemon's umask may have taken away what users need to reach user/.
  if (create && ::fchmod(fd.get(), 0755) != 0) return errno_error("chmod", job_dir(job));
  return fd;
}

Result<Fd> JobStore::open_user_dir(std::uint32_t job, uid_t uid) const {
  auto directory = open_job_dir(job, false);
  if (!directory) return directory;
  Fd fd(::openat(directory->get(), kUser, kDirectory));
  if (!fd) return errno_error("open", user_dir(job));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_error("stat", user_dir(job));
  if (info.st_uid != uid)
    return Error{ErrorKind::denied, fmt::format("{}: owned by user {}, the job by user {}",
                                                user_dir(job), info.st_uid, uid)};
  return fd;
}

/// What is mounted on it is the user's, and what lies under that mount must be root's: the user
/// could fill all of RUN_DIR's file system there.
Status JobStore::prepare_user_dir(int job_fd, std::uint32_t job) const {
  struct statx info {};
  if (::statx(job_fd, kUser, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_UID, &info) == 0 &&
      (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0 &&
      (!S_ISDIR(info.stx_mode) || info.stx_uid != owner_)) {
    std::size_t budget = 10000;
    if (!remove_tree(job_fd, kUser, budget, 0)) return errno_error("remove", user_dir(job));
  }
  if (::mkdirat(job_fd, kUser, 0700) != 0 && errno != EEXIST)
    return errno_error("mkdir", user_dir(job));
  return {};
}

Status JobStore::store(std::uint32_t job, uid_t uid, const Contract& contract) const {
  Contract kept = contract;
  kept.extra.emplace_back(kUidKey, std::to_string(uid));
  if (kept.is_plain()) return store_plain(job, kept);
  auto directory = open_job_dir(job, true);
  if (!directory) return directory.error();
  if (auto status = prepare_user_dir(directory->get(), job); !status.ok()) return status;
  return replace_file(fmt::format("{}/{}", job_dir(job), kContract), kept.to_string() + "\n", 0644);
}

/// Plain jobs may be many and short: a file is made and forgotten at less cost than a directory.
Status JobStore::store_plain(std::uint32_t job, const Contract& contract) const {
  const auto base = open_run_dir(true);
  if (!base) return base.error();
  return replace_file(job_dir(job), contract.to_string() + "\n", 0644);
}

Status JobStore::store_none(std::uint32_t job) const {
  auto base = open_run_dir(true);
  if (!base) return base.error();
  const std::string name = std::to_string(job);
  struct stat info {};
  if (::mknodat(base->get(), name.c_str(), S_IFREG | 0444, 0) == 0) return {};
  if (errno != EEXIST) return errno_error("create", job_dir(job));
  // A note of a run before; else what is there must go first.
  if (::fstatat(base->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(info.st_mode) ||
      ::utimensat(base->get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_error("create", job_dir(job));
  return {};
}

Result<std::optional<Contract>> JobStore::load(std::uint32_t job, uid_t uid) const {
  auto base = open_run_dir(false);
  if (!base) return base.error();
  struct stat info {};
  if (::fstatat(base->get(), std::to_string(job).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_error("look at", job_dir(job));
  if (S_ISREG(info.st_mode) && info.st_size == 0) return std::optional<Contract>();
  if (S_ISREG(info.st_mode)) {
    const Fd fd(::openat(base->get(), std::to_string(job).c_str(),
                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd) return errno_error("open", job_dir(job));
    auto contract = read_contract(job_dir(job), fd.get(), uid);
    if (!contract || (*contract)->is_plain()) return contract;
    return Error{ErrorKind::corrupt, job_dir(job) + " has a contract that belongs in a directory"};
  }
  auto directory = open_job_dir(job, false);
  if (!directory) return directory.error();
  const std::string path = fmt::format("{}/{}", job_dir(job), kContract);
  Fd fd(::openat(directory->get(), kContract, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    // store() was interrupted, for example by a full file system.
    if (errno == ENOENT) return Error{ErrorKind::corrupt, path + " is missing"};
    return errno_error("open", path);
  }
  return read_contract(path, fd.get(), uid);
}

Result<std::optional<Contract>> JobStore::read_contract(const std::string& path, int fd,
                                                        uid_t uid) const {
  if (auto status = check_owner(fd, owner_, path); !status.ok()) return status.error();
  auto text = read_file(path, Contract::kMostBytes + 1);
  if (!text) return text.error();
  auto contract = Contract::parse(*text);
  if (!contract)
    return Error{contract.error().kind, fmt::format("{}: {}", path, contract.error().text)};
  if (contract->extra_value(kUidKey) != std::to_string(uid))
    return Error{ErrorKind::denied, fmt::format("{}: not from a job of user {}", path, uid)};
  std::erase_if(contract->extra, [](const auto& entry) { return entry.first == kUidKey; });
  return std::optional<Contract>(*std::move(contract));
}

Status JobStore::remove(std::uint32_t job, std::size_t budget) const {
  auto base = open_run_dir(false);
  if (!base) {
    if (base.error().kind == ErrorKind::not_found) return {};
    return base.error();
  }
  if (remove_tree(base->get(), std::to_string(job).c_str(), budget, 0)) return {};
  return Error{ErrorKind::unavailable,
               fmt::format("{}: could not be removed completely", job_dir(job))};
}

bool JobStore::launcher_active(std::uint32_t job, uid_t uid) const {
  auto user = open_user_dir(job, uid);
  if (!user) return false;
  struct stat info {};
  return ::fstatat(user->get(), kMarker, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
}

void JobStore::clear_launcher_active(std::uint32_t job, uid_t uid) const {
  auto user = open_user_dir(job, uid);
  if (!user) return;
  ::unlinkat(user->get(), kMarker, 0);
  ::unlinkat(user->get(), kPlan, 0);
}

// A link's text is read without opening anything that a user has made.
std::optional<std::uint32_t> JobStore::planned_gpus(std::uint32_t job, uid_t uid) const {
  auto user = open_user_dir(job, uid);
  if (!user) return std::nullopt;
  std::array<char, 16> text;
  const ssize_t length = ::readlinkat(user->get(), kPlan, text.data(), text.size());
  if (length <= 0 || static_cast<std::size_t>(length) == text.size()) return std::nullopt;
  const auto gpus = parse_uint(std::string_view(text.data(), static_cast<std::size_t>(length)));
  if (!gpus || *gpus > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*gpus);
}

Result<std::uint32_t> JobStore::rescues(std::uint32_t job) const {
  auto directory = open_job_dir(job, false);
  if (!directory) return directory.error();
  const std::string path = fmt::format("{}/{}", job_dir(job), kRescues);
  auto text = read_file(path, 32);
  if (!text) {
    if (text.error().kind == ErrorKind::not_found) return 0U;
    return text.error();
  }
  const auto count = parse_uint(trim(*text));
  if (!count || *count > UINT32_MAX)
    return Error{ErrorKind::corrupt, fmt::format("{}: not a number", path)};
  return static_cast<std::uint32_t>(*count);
}

Status JobStore::set_rescues(std::uint32_t job, std::uint32_t count) const {
  auto directory = open_job_dir(job, false);
  if (!directory) return directory.error();
  return replace_file(fmt::format("{}/{}", job_dir(job), kRescues), fmt::format("{}\n", count),
                      0644);
}

std::vector<std::uint32_t> JobStore::older_than(std::int64_t seconds, std::size_t most) const {
  return aged(S_IFDIR, seconds, most);
}

void JobStore::forget_none(std::int64_t seconds, std::size_t most) const {
  const auto jobs = aged(S_IFREG, seconds, most);
  const auto base = open_run_dir(false);
  if (!base) return;
  for (const std::uint32_t job : jobs) {
    const std::string name = std::to_string(job);
    // The containers of a job that lives must not lose their contract; it must not keep its place
    // before all that can go.
    if (::faccessat(base->get(), ("views/" + name).c_str(), F_OK, 0) == 0)
      ::utimensat(base->get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    else
      ::unlinkat(base->get(), name.c_str(), 0);
  }
}

std::vector<std::uint32_t> JobStore::aged(mode_t type, std::int64_t seconds,
                                          std::size_t most) const {
  auto base = open_run_dir(false);
  if (!base) return {};
  const Directory dir = read_directory(std::move(*base));
  if (!dir) return {};
  std::vector<std::pair<std::int64_t, std::uint32_t>> found;
  const std::int64_t before = static_cast<std::int64_t>(std::time(nullptr)) - seconds;
  while (const dirent* entry = ::readdir(dir.get())) {
    const auto job = parse_uint(entry->d_name);
    struct stat info {};
    if (!job || *job > UINT32_MAX ||
        ::fstatat(::dirfd(dir.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if ((info.st_mode & S_IFMT) == type && info.st_mtime < before)
      found.emplace_back(info.st_mtime, *job);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::uint32_t> jobs;
  for (const auto& [time, job] : found)
    if (jobs.size() < most) jobs.push_back(job);
  return jobs;
}

void JobStore::touch(std::uint32_t job) const {
  if (auto directory = open_job_dir(job, false); directory) ::futimens(directory->get(), nullptr);
}

}  // namespace bellows::spank
