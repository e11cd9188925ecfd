// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/spank/container_rootfs_support.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "common/fd.h"
#include "spank/container/capabilities.h"
#include "spank/container/squashfs_server.h"

namespace bellows::container {
namespace {

constexpr int kDeadline = 30'000;

[[noreturn]] void finish(int pipe, const std::string& text) {
  (void)write_all(pipe, text, "pipe");
  ::_exit(0);
}

/// What slurmstepd does around task_init.
Status become_user(const std::vector<unsigned>& more_groups) {
  std::vector<gid_t> groups = {kUser};
  groups.insert(groups.end(), more_groups.begin(), more_groups.end());
  if (auto status = keep_for_later(true); !status) return status;
  if (::setgroups(groups.size(), groups.data()) != 0 || ::setresgid(kUser, kUser, kUser) != 0 ||
      ::setresuid(kUser, kUser, kUser) != 0)
    return errno_error("become", "the user");
  return keep_only_needed();
}

std::string read_until_end(int pipe) {
  std::string text;
  char buffer[4096];
  while (true) {
    pollfd wait{pipe, POLLIN, 0};
    if (::poll(&wait, 1, kDeadline) <= 0) return "past its deadline";
    const ssize_t n = ::read(pipe, buffer, sizeof buffer);
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace

std::set<pid_t> own_children() {
  std::ifstream list("/proc/self/task/" + std::to_string(::gettid()) + "/children");
  return {std::istream_iterator<pid_t>(list), {}};
}

std::string run_as_user(const std::function<void()>& as_root,
                        const std::function<std::string()>& as_user,
                        const std::vector<unsigned>& more_groups) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const Fd from(ends[0]);
  Fd to(ends[1]);
  // The server of a squashfs file is nobody's child, and has its mount itself: as no step ends
  // here, it would stay.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto before = own_children();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      finish(to.get(), std::string("unshare: ") + std::strerror(errno));
    if (as_root) as_root();
    if (auto status = become_user(more_groups); !status) finish(to.get(), status.error().text);
    finish(to.get(), as_user());
  }
  to.reset();
  std::string text = read_until_end(from.get());
  end(child);
  for (const pid_t left : own_children())
    if (!before.contains(left)) end(left);
  return text;
}

World::World() {
  ::chmod(scratch_.path().c_str(), 0755);
  directory("ns");
  site.image_dirs = {directory("images")};
}

std::string World::directory(const std::string& name, unsigned mode) const {
  std::filesystem::create_directories(path(name));
  ::chmod(path(name).c_str(), mode);
  return path(name);
}

std::string World::file(const std::string& name, const std::string& text, unsigned mode) const {
  std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
  std::ofstream(path(name)) << text;
  ::chmod(path(name).c_str(), mode);
  return path(name);
}

void World::give(const std::string& name, unsigned uid) const {
  (void)::lchown(path(name).c_str(), uid, uid);
}

std::string World::tree(const std::string& name) const {
  for (const char* dir :
       {"proc", "sys", "dev", "tmp", "var/tmp", "etc", "bin", "root", "home", "mnt"})
    directory(name + "/" + dir);
  for (const char* empty : {"resolv.conf", "hosts", "hostname", "machine-id"})
    file(name + "/etc/" + empty, "");
  file(name + "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:20001:20001::/:/bin/sh\n");
  file(name + "/etc/group", "root:x:0:\nuser:x:20001:\n");
  return path(name);
}

std::string World::squash(const std::string& tree, const std::string& image) const {
  const std::string to = path("images/" + image);
  const std::string command = "mksquashfs " + path(tree) + " " + to +
                              " -noappend -quiet -no-progress -no-xattrs -comp gzip "
                              ">/dev/null 2>&1";
  return std::system(command.c_str()) == 0 ? to : "mksquashfs failed";
}

std::string World::in_container(const Spec& spec, const std::function<std::string()>& inside,
                                const std::function<void()>& as_root) const {
  const auto as_user = [&] {
    Phases phases(observer);
    return build(spec, {}, inside, phases);
  };
  return run_as_user(as_root, as_user, groups);
}

std::string World::build(const Spec& spec, std::vector<PlacedMount> mounts,
                         const std::function<std::string()>& inside, Phases& phases) const {
  RootfsInputs inputs;
  inputs.account = {"user", "user", home};
  inputs.home = home;
  inputs.mounts = std::move(mounts);
  inputs.console = console;
  inputs.imported = imported;
  inputs.mount_own = [this](const Image& image) {
    return serve_squashfs(image, site.squashfuse, JobCgroup());
  };
  const Fd scratch(::open(path("ns").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  inputs.scratch = scratch.get();
  if (auto status = build_rootfs(spec, site, inputs, phases); !status)
    return "error: " + refusal(phases.current(), status.error().text);
  if (auto status = drop_all(no_new_privs); !status) return "error: " + status.error().text;
  return inside();
}

std::string opens(const std::string& path, int flags) {
  const Fd fd(::open(path.c_str(), flags | O_CLOEXEC));
  return fd ? "yes" : std::strerror(errno);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::string("unreadable: ") + std::strerror(errno);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string options_at(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return std::strerror(errno);
  std::string options = (info.f_flag & ST_RDONLY) != 0 ? "ro" : "rw";
  if ((info.f_flag & ST_NOSUID) != 0) options += ",nosuid";
  if ((info.f_flag & ST_NODEV) != 0) options += ",nodev";
  if ((info.f_flag & ST_NOEXEC) != 0) options += ",noexec";
  return options;
}

std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const Fd from(ends[0]);
  Fd to(ends[1]);
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(to.get(), 1);
    ::execv(words[0], words.data());
    finish(1, std::string("exec: ") + std::strerror(errno));
  }
  to.reset();
  std::string text = read_until_end(from.get());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string names_in(const std::string& path) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    names.insert(entry.path().filename());
  if (error) return error.message();
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

Mount bound(const std::string& source, const std::string& target) {
  Mount mount;
  mount.source = source;
  mount.target = target;
  return mount;
}

std::string cannot_run() {
  if (::geteuid() != 0) return "needs root: containers are built with its capabilities";
  if (std::system("command -v mksquashfs >/dev/null") != 0) return "needs mksquashfs";
  if (::access("/dev/loop-control", F_OK) != 0) return "needs loop devices";
  return {};
}

}  // namespace bellows::container
