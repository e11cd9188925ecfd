// SPDX-License-Identifier: Apache-2.0
// Who saves a step's container, and what of it, by a script that stands for mksquashfs.
#include <criterion/criterion.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>

#include "common/fd.h"
#include "common/text.h"
#include "spank/container/job_cgroup.h"
#include "spank/container/mount_namespace.h"
#include "spank/save.h"
#include "tests/unit/spank/views_support.h"

using namespace bellows;
using namespace bellows::spank;
using container::kJob;
using container::kOwner;

TestSuite(save, .timeout = 60);

namespace {

/// A job on a node, whose container is a copy of the node's tree in which /mnt has something.
class Job {
 public:
  Job() : lease_(node_.lease()) {
    const std::string directory = at("out");
    cr_assert_eq(::chmod(node_.run().c_str(), 0755), 0);
    cr_assert_eq(::mkdir(directory.c_str(), 0700), 0);
    cr_assert_eq(::chown(directory.c_str(), kOwner.uid, kOwner.gid), 0);
    const auto host = container::own_namespace();
    cr_assert(host.ok() && container::leave_namespace().ok());
    cr_assert_eq(::mount("none", "/mnt", "tmpfs", 0, ""), 0);
    cr_assert(replace_file("/mnt/mounted", "", 0644).ok());
    const auto made = container::own_namespace();
    cr_assert(made.ok() && container::join(host->get()).ok());
    const auto status = node_.views().pin("step-1", made->get());
    cr_assert(status.ok(), "%s", status.ok() ? "" : status.error().text.c_str());
  }

  std::string at(const std::string& name) const { return node_.run() + "/" + name; }

  const container::JobCgroup* cgroups = nullptr;

  /// "! " and the sentence for an error.
  std::string save(const std::string& script, const std::string& path,
                   const std::string& name = "step-1",
                   std::chrono::seconds limit = std::chrono::seconds(50)) const {
    cr_assert(replace_file(at("program"), "#!/bin/sh\n" + script + "\n", 0755).ok());
    SaveRequest request;
    request.run_dir = node_.run();
    request.job = kJob;
    request.container = name;
    request.on_host = true;
    request.owner = kOwner;
    request.groups = {4711};
    request.file = {path, at("program"), "7.0.0", 1};
    request.limit = limit;
    request.cgroups = cgroups;
    const auto said = save_container(request);
    return said ? *said : "! " + said.error().text;
  }

 private:
  container::Node node_;
  container::Lease lease_;
};

/// A task in a cgroup of its own, in one hierarchy.
class Task {
 public:
  explicit Task(const std::string& hierarchy) {
    const auto lines = read_file("/proc/self/cgroup", 65536);
    const auto mountinfo = read_file("/proc/self/mountinfo", 16U << 20);
    cr_assert(lines.ok() && mountinfo.ok());
    for (const auto line : split(*lines, '\n'))
      if (line.find(hierarchy) != std::string_view::npos)
        path_ = container::cgroup_path(line, *mountinfo);
    name_ = "/bellows-save-" + std::to_string(::getpid());
    path_ += name_;
    made_ = path_ != name_ && ::mkdir(path_.c_str(), 0755) == 0;
    if (!made_) return;
    pid_ = ::fork();
    if (pid_ == 0)
      for (;;) ::pause();
    std::ofstream(path_ + "/cgroup.procs") << pid_ << std::flush;
  }
  ~Task() {
    if (!made_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::rmdir(path_.c_str());
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  explicit operator bool() const { return made_; }
  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }

 private:
  std::string path_;
  std::string name_;
  bool made_ = false;
  pid_t pid_ = -1;
};

void has(const std::string& found, const std::string& part) {
  cr_expect(found.find(part) != std::string::npos, "\"%s\" is not in \"%s\"", part.c_str(),
            found.c_str());
}

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace

Test(save, is_the_owners_work_and_of_the_root_alone) {
  if (::geteuid() != 0) cr_skip_test("namespaces need root");
  const Job job;
  const std::string file = job.at("out/box.sqsh");
  has(job.save("{ id -u; id -g; id -G; ls -A proc mnt/mounted 2>&1 | xargs; touch written 2>&1;"
               " sed -n '/^Cap[IPEA]\\|^NoNew/p' /proc/self/status | sort -u -k 2 | xargs;"
               " ls /proc/self/fd | xargs; } >\"$2\"",
               file),
      "the container is saved to");
  const auto text = read_file(file, 65536);
  cr_assert(text.ok());
  has(*text,
      "12345\n12346\n12346 4711\nls: cannot access mnt/mounted: No such file or directory proc:\n");
  has(*text, "Read-only file system");
  has(*text, "CapInh: 0000000000000000 NoNewPrivs: 1\n0 1 2 3\n");
  struct stat info {};
  cr_assert_eq(::stat(file.c_str(), &info), 0);
  cr_expect(info.st_uid == kOwner.uid && info.st_gid == kOwner.gid);
}

Test(save, fails_with_a_sentence_and_without_a_file) {
  if (::geteuid() != 0) cr_skip_test("namespaces need root");
  const Job job;
  has(job.save(":", "/box.sqsh"),
      "! cannot save the container to /box.sqsh: Permission denied; name a file");
  has(job.save("echo half >\"$2\"; kill -9 $PPID; exec sleep 30", job.at("out/box.sqsh")),
      "! the container was not saved to");
  cr_expect(!is_there(job.at("out/box.sqsh")) && !is_there(job.at("out/.box.sqsh.7.0.0.saving")));
  cr_expect(job.save(":", job.at("out/box.sqsh"), "step-2").empty());
  cr_expect(::waitpid(-1, nullptr, WNOHANG) == -1);
}

Test(save, ends_what_takes_longer_than_the_site_allows) {
  if (::geteuid() != 0) cr_skip_test("namespaces need root");
  const Job job;
  for (const std::string program :
       {"exec sleep 30", "kill -STOP $PPID; exec sleep 30", "kill -STOP $$"}) {
    has(job.save("echo half >\"$2\"; " + program, job.at("out/box.sqsh"), "step-1",
                 std::chrono::seconds(1)),
        "box.sqsh, since that took longer than 1 s, the limit of this site (save_seconds");
    cr_expect(!is_there(job.at("out/box.sqsh")) && !is_there(job.at("out/.box.sqsh.7.0.0.saving")));
  }
  cr_expect(::waitpid(-1, nullptr, WNOHANG) == -1);
}

Test(save, is_done_where_the_tasks_are) {
  if (::geteuid() != 0) cr_skip_test("namespaces need root");
  Task task(":freezer:");
  Task unified("0::");
  if (!task && !unified) cr_skip_test("needs cgroups");
  Job job;
  const Task& one = task ? task : unified;
  const auto cgroups = container::JobCgroup::of(one.pid());
  cr_assert(cgroups.ok(), "%s", cgroups.ok() ? "" : cgroups.error().text.c_str());
  job.cgroups = &*cgroups;
  std::ofstream("/proc/self/oom_score_adj") << 100 << std::flush;
  const std::string file = job.at("out/box.sqsh");
  has(job.save("cat /proc/self/cgroup /proc/self/oom_score_adj >\"$2\"", file), "is saved to");
  const auto text = read_file(file, 65536);
  cr_assert(text.ok());
  has(*text, one.name() + "\n");
  cr_expect(text->ends_with("\n0\n"), "%s", text->c_str());
}

Test(save, ends_with_slurmstepd) {
  if (::geteuid() != 0) cr_skip_test("namespaces need root");
  const Job job;
  const std::string pid = job.at("out/pid");
  const pid_t stepd = ::fork();
  if (stepd == 0) {
    (void)job.save("echo $PPID >" + pid + ".new; mv " + pid + ".new " + pid + "; exec sleep 30",
                   job.at("out/box.sqsh"));
    ::_exit(0);
  }
  while (!is_there(pid)) ::poll(nullptr, 0, 10);
  const auto text = read_file(pid, 64);
  cr_assert(text.ok());
  const Fd saver(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(*text), 0U)));
  cr_assert(saver && ::kill(stepd, SIGKILL) == 0 && ::waitpid(stepd, nullptr, 0) == stepd);
  pollfd ended = {saver.get(), POLLIN, 0};
  cr_expect_eq(::poll(&ended, 1, 10000), 1);
}
