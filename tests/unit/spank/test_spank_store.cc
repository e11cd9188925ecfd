// SPDX-License-Identifier: Apache-2.0
// A job's directory on a node: its contract, what its launcher and its rescues leave, its removal.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "spank/job_store.h"
#include "tests/unit/spank/spank_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::spank;
namespace fs = std::filesystem;

namespace {

/// A directory that goes with the test.
struct TemporaryDir : ScratchDir {
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
};

JobStore store_in(const TemporaryDir& dir) { return JobStore(dir / "run", ::getuid()); }

Status store(const JobStore& jobs, std::uint32_t job = 17) {
  return jobs.store(job, ::getuid(), kContract);
}

ErrorKind why_not_loaded(const JobStore& jobs, uid_t uid = ::getuid()) {
  const auto loaded = jobs.load(17, uid);
  cr_assert(!loaded.ok());
  return loaded.error().kind;
}

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

Test(spank, a_contract_is_stored_and_loaded) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  const Status stored = store(jobs);
  cr_assert(stored.ok(), "%s", stored.ok() ? "" : stored.error().text.c_str());
  const auto loaded = jobs.load(17, ::getuid());
  cr_assert(loaded.ok() && loaded->has_value());
  cr_assert(**loaded == kContract);
  struct stat info {};
  cr_assert(::stat((dir / "run/17/user").c_str(), &info) == 0);
  cr_assert((info.st_mode & 07777) == 0700);
  cr_assert(::stat((dir / "run/17/contract").c_str(), &info) == 0);
  cr_assert((info.st_mode & 07777) == 0644);
  // What the user keeps there survives the prolog of a requeue.
  write_file(dir / "run/17/user/socket", "x");
  cr_assert(store(jobs).ok());
  cr_assert(fs::exists(dir / "run/17/user/socket"));
}

/// Else a full file system, or a lost one, would run the job unisolated.
Test(spank, only_a_note_says_that_there_is_no_contract) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::not_found);
  cr_assert(store(jobs).ok());
  fs::remove(dir / "run/17/contract");
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::corrupt);
  fs::remove_all(dir / "run/17/user");
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::corrupt);
  cr_expect(!jobs.store_none(17).ok(), "a directory is no note");
  cr_assert(jobs.remove(17).ok());
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::not_found);
  for (int run = 0; run < 2; ++run) {
    cr_assert(jobs.store_none(17).ok());
    const auto none = jobs.load(17, ::getuid());
    cr_expect(none.ok() && !none->has_value());
  }
  cr_expect(!store(jobs).ok(), "nor is a note a directory");
  cr_assert(jobs.remove(17).ok());
  cr_expect(store(jobs).ok());
  fs::remove_all(dir / "run/17");
  fs::create_symlink(dir / "run/none", dir / "run/17");
  write_file(dir / "run/none", "");
  cr_expect(!jobs.load(17, ::getuid()).ok(), "a link is none either");
}

Test(spank, a_plain_jobs_contract_is_a_file) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  const Contract plain = contract_of("bellows/1 tenant=vision gpus=0 images=/own/%2A plain=yes");
  for (int run = 0; run < 2; ++run) {
    cr_assert(jobs.store(17, ::getuid(), plain).ok());
    const auto loaded = jobs.load(17, ::getuid());
    cr_assert(loaded.ok() && loaded->has_value() && **loaded == plain);
  }
  cr_expect(fs::is_regular_file(dir / "run/17"));
  cr_expect_eq(why_not_loaded(jobs, ::getuid() + 1), ErrorKind::denied);
  write_file(dir / "run/17", admitted_line(kContract) + " uid=" + std::to_string(::getuid()));
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::corrupt, "a whole contract has a directory");
  write_file(dir / "run/17", "text");
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::invalid);
  fs::permissions(dir / "run/17", fs::perms(0666));
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::denied, "others could have written it");
  cr_assert(jobs.remove(17).ok());
  cr_expect_eq(why_not_loaded(jobs), ErrorKind::not_found);
}

Test(spank, what_lies_under_the_users_directory_is_roots) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  if (::getuid() != 0) cr_skip_test("needs root");
  cr_assert(store(jobs).ok());
  struct stat info {};
  cr_assert(::stat((dir / "run/17/user").c_str(), &info) == 0 && info.st_uid == 0);
  cr_assert(::chown((dir / "run/17/user").c_str(), 12345, 12345) == 0);
  cr_assert(store(jobs).ok());
  cr_assert(::stat((dir / "run/17/user").c_str(), &info) == 0 && info.st_uid == 0);
}

Test(spank, the_umask_does_not_matter) {
  const TemporaryDir dir;
  ::umask(0077);
  const bool stored = store(store_in(dir)).ok();
  ::umask(0022);
  cr_assert(stored);
  struct stat info {};
  cr_assert(::stat((dir / "run/17").c_str(), &info) == 0 && (info.st_mode & 07777) == 0755);
  cr_assert(::stat((dir / "run/17/contract").c_str(), &info) == 0 &&
            (info.st_mode & 07777) == 0644);
}

Test(spank, a_contract_that_others_could_have_written_is_refused) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  for (const char* path : {"run", "run/17", "run/17/contract"}) {
    const std::string full = dir / path;
    struct stat before {};
    cr_assert(::stat(full.c_str(), &before) == 0);
    for (mode_t bit : {S_IWGRP, S_IWOTH}) {
      cr_assert(::chmod(full.c_str(), (before.st_mode & 07777) | bit) == 0);
      const auto loaded = jobs.load(17, ::getuid());
      cr_expect(!loaded.ok() && loaded.error().kind == ErrorKind::denied, "%s", path);
    }
    cr_assert(::chmod(full.c_str(), before.st_mode & 07777) == 0);
  }
  cr_assert(jobs.load(17, ::getuid())->has_value());
  // Another owner altogether.
  const auto foreign = JobStore(dir / "run", ::getuid() + 1).load(17, ::getuid());
  cr_assert(!foreign.ok() && foreign.error().kind == ErrorKind::denied);
  // Of another user's job of the same number.
  cr_expect_eq(why_not_loaded(jobs, ::getuid() + 1), ErrorKind::denied);
}

Test(spank, links_and_fifos_are_not_followed) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  write_file(dir / "elsewhere", kContract.to_string());
  fs::remove(dir / "run/17/contract");
  fs::create_symlink(dir / "elsewhere", dir / "run/17/contract");
  cr_expect(!jobs.load(17, ::getuid()).ok());
  fs::remove(dir / "run/17/contract");
  cr_assert(::mkfifo((dir / "run/17/contract").c_str(), 0644) == 0);
  cr_expect(!jobs.load(17, ::getuid()).ok());
  // A link in place of the user's directory is replaced, and its target stays.
  fs::remove_all(dir / "run/17/user");
  fs::create_directory(dir / "target");
  write_file(dir / "target/precious", "x");
  fs::create_symlink(dir / "target", dir / "run/17/user");
  cr_assert(store(jobs).ok());
  cr_expect(fs::is_directory(fs::symlink_status(dir / "run/17/user")));
  cr_expect(fs::exists(dir / "target/precious"));
}

Test(spank, a_damaged_contract_names_its_file) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  for (const std::string& text : {std::string("garbage"), std::string(), std::string(5000, 'x'),
                                  std::string("bellows/2 tenant=v gpus=1")}) {
    write_file(dir / "run/17/contract", text);
    const auto loaded = jobs.load(17, ::getuid());
    cr_assert(!loaded.ok());
    cr_expect(loaded.error().text.find("run/17/contract") != std::string::npos, "%s",
              loaded.error().text.c_str());
  }
}

Test(spank, a_directory_that_can_not_be_made_is_an_error) {
  const TemporaryDir dir;
  write_file(dir / "run", "a file");
  const JobStore jobs = store_in(dir);
  cr_assert(!store(jobs).ok());
  cr_assert(!jobs.load(17, ::getuid()).ok());
  cr_assert(!jobs.launcher_active(17, ::getuid()));
}

Test(spank, the_launchers_marker) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  const std::string marker = dir / "run/17/user/launcher.active";
  cr_assert(!jobs.launcher_active(17, ::getuid()));
  cr_assert(store(jobs).ok());
  cr_assert(!jobs.launcher_active(17, ::getuid()));
  write_file(marker, "{}");
  cr_assert(jobs.launcher_active(17, ::getuid()));
  cr_assert(!jobs.launcher_active(17, ::getuid() + 1));
  jobs.clear_launcher_active(17, ::getuid());
  cr_assert(!fs::exists(marker));
  // Hostile markers: none counts, none blocks, none is followed.
  cr_assert(::mkfifo(marker.c_str(), 0600) == 0);
  cr_expect(!jobs.launcher_active(17, ::getuid()));
  fs::remove(marker);
  fs::create_symlink(dir / "run/17/contract", marker);
  cr_expect(!jobs.launcher_active(17, ::getuid()));
  jobs.clear_launcher_active(17, ::getuid());
  cr_expect(fs::exists(dir / "run/17/contract"));
  fs::create_directory(marker);
  cr_expect(!jobs.launcher_active(17, ::getuid()));
}

Test(spank, rescues_are_counted) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(!jobs.rescues(17).ok());
  cr_assert(store(jobs).ok());
  cr_assert(*jobs.rescues(17) == 0);
  cr_assert(jobs.set_rescues(17, 3).ok());
  cr_assert(*jobs.rescues(17) == 3);
  cr_assert(store(jobs).ok());
  cr_expect(*jobs.rescues(17) == 3, "a requeue must not start the count again");
  write_file(dir / "run/17/rescues", "x");
  cr_assert(!jobs.rescues(17).ok());
}

Test(spank, a_launchers_plan_is_read_and_nothing_followed) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  const auto uid = ::getuid();
  cr_expect(!jobs.planned_gpus(17, uid));
  const fs::path plan = dir / "run/17/user/launcher.plan";
  const auto planned = [&](const std::string& text) {
    fs::remove(plan);
    fs::create_symlink(text, plan);
    return jobs.planned_gpus(17, uid);
  };
  cr_expect(planned("6") == 6u);
  write_file(dir / "run/17/user/5", "x");
  for (const char* bad : {"-1", "x", "4294967296", "/etc/passwd", "1111111111111111111", "6 "})
    cr_expect(!planned(bad), "%s", bad);
  fs::remove(plan);
  write_file(plan, "6");
  cr_expect(!jobs.planned_gpus(17, uid), "a file is not opened");
  cr_expect(planned("6") == 6u);
  jobs.clear_launcher_active(17, uid);
  cr_expect(!jobs.planned_gpus(17, uid));
}

Test(spank, removal_stays_inside) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(jobs.remove(17).ok());
  cr_assert(store(jobs).ok());
  write_file(dir / "outside", "x");
  fs::create_directories(dir / "run/17/user/a/b/c");
  write_file(dir / "run/17/user/a/b/file", "x");
  fs::create_symlink(dir.path(), dir / "run/17/user/a/link");
  cr_assert(jobs.remove(17).ok());
  cr_assert(!fs::exists(dir / "run/17"));
  cr_assert(fs::exists(dir / "outside"));
}

/// What users mount, as with fusermount, is neither walked through nor in the way.
Test(spank, removal_crosses_no_mount) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  if (::getuid() != 0 || ::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    cr_skip_test("needs root");
  cr_assert(store(jobs).ok());
  fs::create_directory(dir / "outside");
  write_file(dir / "outside/precious", "x");
  for (const char* place : {"a/m", "a/b"})
    fs::create_directories(dir / ("run/17/user/" + std::string(place)));
  write_file(dir / "run/17/user/file", "x");
  const auto bind = [&dir](const char* from, const std::string& to) {
    cr_assert(::mount((dir / from).c_str(), to.c_str(), nullptr, MS_BIND, nullptr) == 0);
  };
  bind("outside", dir / "run/17/user/a/m");
  bind("outside", dir / "run/17/user/a/m");
  bind("outside", dir / "run/17/user/a/b");
  bind("outside/precious", dir / "run/17/user/file");
  cr_expect(jobs.remove(17).ok());
  cr_expect(!fs::exists(dir / "run/17"));
  cr_expect(fs::exists(dir / "outside/precious"));
  // A directory that is itself where something is mounted.
  cr_assert(store(jobs).ok());
  bind("outside", dir / "run/17/user");
  cr_expect(jobs.remove(17).ok());
  cr_expect(!fs::exists(dir / "run/17"));
  cr_expect(fs::exists(dir / "outside/precious"));
}

Test(spank, removal_has_a_budget) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  for (int i = 0; i < 50; ++i) write_file(dir / ("run/17/user/" + std::to_string(i)), "x");
  cr_assert(!jobs.remove(17, 10).ok());
  cr_assert(fs::exists(dir / "run/17"));
  cr_assert(jobs.remove(17).ok());
}

Test(spank, old_directories_are_found) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(jobs.older_than(60, 10).empty());
  for (std::uint32_t job : {17U, 18U, 19U}) cr_assert(store(jobs, job).ok());
  fs::create_directory(dir / "run/not-a-job");
  cr_assert(jobs.older_than(60, 10).empty());
  const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  const struct timespec longer_ago[2] = {{500, 0}, {500, 0}};
  cr_assert(::utimensat(AT_FDCWD, (dir / "run/17").c_str(), long_ago, 0) == 0);
  cr_assert(::utimensat(AT_FDCWD, (dir / "run/19").c_str(), longer_ago, 0) == 0);
  cr_assert(::utimensat(AT_FDCWD, (dir / "run/not-a-job").c_str(), longer_ago, 0) == 0);
  cr_assert(jobs.older_than(60, 10) == (std::vector<std::uint32_t>{19, 17}));
  cr_assert(jobs.older_than(60, 1) == (std::vector<std::uint32_t>{19}));
  jobs.touch(19);
  cr_assert(jobs.older_than(60, 10) == (std::vector<std::uint32_t>{17}));
}

Test(spank, old_notes_are_forgotten) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  cr_assert(store(jobs, 16).ok());
  for (std::uint32_t job : {17U, 18U, 19U}) cr_assert(jobs.store_none(job).ok());
  for (const char* name : {"run/16", "run/17", "run/18"})
    cr_assert(::utimensat(AT_FDCWD, (dir / name).c_str(), long_ago, 0) == 0);
  cr_assert(jobs.older_than(60, 10) == (std::vector<std::uint32_t>{16}));
  cr_assert(jobs.store_none(18).ok());
  // Job 20 has a slurmstepd here.
  cr_assert(jobs.store(20, ::getuid(), contract_of("bellows/1 tenant=a gpus=0 plain=yes")).ok());
  fs::create_directories(dir / "run/views/20");
  const struct timespec longer_ago[2] = {{500, 0}, {500, 0}};
  cr_assert(::utimensat(AT_FDCWD, (dir / "run/20").c_str(), longer_ago, 0) == 0);
  jobs.forget_none(60, 1);
  cr_expect(fs::exists(dir / "run/17"));
  jobs.forget_none(60, 10);
  cr_expect(fs::exists(dir / "run/20"));
  cr_expect(!fs::exists(dir / "run/17"));
  for (const char* name : {"run/16", "run/18", "run/19"}) cr_expect(fs::exists(dir / name));
}
