// SPDX-License-Identifier: Apache-2.0
// What other users can do to a store's locks: nothing.
#include <criterion/criterion.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstddef>

#include "checkpoint/store/store_lock.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::checkpoint_test;
using namespace std::chrono_literals;

namespace {

#define NEED_ROOT() \
  if (geteuid() != 0) cr_skip_test("only root can act as other users")

constexpr const char* kFiles[] = {"/.lock", "/.in-use"};

/// A directory of Alice's that all can enter, as earlier versions made them.
struct AlicesDir {
  AlicesDir() {
    if (chmod(scratch.path().c_str(), 0755) < 0 || mkdir(dir.c_str(), 0755) < 0 ||
        chown(dir.c_str(), kAlice, kAlice) < 0)
      abort();
  }
  void plant(const char* name, uid_t owner, mode_t mode) const {
    const std::string path = dir + name;
    const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode));
    if (!fd || fchmod(fd.get(), mode) < 0 || fchown(fd.get(), owner, owner) < 0) abort();
  }
  struct stat look(const char* name) const {
    struct stat s {};
    (void)lstat((dir + name).c_str(), &s);
    return s;
  }

  ScratchDir scratch;
  std::string dir = scratch.path() + "/alice";
};

bool locks_both(const std::string& dir) {
  const bool shared = static_cast<bool>(share_store(dir));
  return shared && lock_store(dir, 200ms).ok() && hold_store(dir).ok();
}

bool complains(const Status& status, ErrorKind kind, const std::string& text) {
  if (!status && status.error().kind == kind && has(why(status), text)) return true;
  fprintf(stderr, "said: %s\n", why(status).c_str());
  return false;
}

Status taken(const std::string& dir) {
  auto lock = lock_store(dir, 200ms);
  return lock ? Status() : Status(lock.error());
}

Status held(const std::string& dir) {
  auto hold = hold_store(dir);
  return hold ? Status() : Status(hold.error());
}

/// From here on flock answers so, in this process.
void refuse_flock(int code) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
    abort();
}

}  // namespace

Test(store_lock, its_files_can_be_opened_by_their_user_only, .timeout = 30) {
  NEED_ROOT();
  AlicesDir alices;
  cr_assert(holds_as(kAlice, [&] { return locks_both(alices.dir); }));
  for (const char* name : kFiles) {
    cr_expect((alices.look(name).st_mode & 07777) == 0600, "%s: %o", name,
              alices.look(name).st_mode);
    const ForeignLock bobs(kBob, alices.dir + name, LOCK_SH);
    cr_expect(!bobs.holds(), "%s", name);
  }
  cr_expect(holds_as(kAlice, [&] { return locks_both(alices.dir); }));
}

// Of an earlier version, which made them for all to open.
Test(store_lock, a_file_that_others_can_open_is_closed_to_them, .timeout = 30) {
  NEED_ROOT();
  AlicesDir alices;
  for (const char* name : kFiles) alices.plant(name, kAlice, 0644);
  cr_expect(holds_as(kAlice, [&] { return locks_both(alices.dir); }));
  for (const char* name : kFiles) cr_expect((alices.look(name).st_mode & 07777) == 0600);
}

Test(store_lock, a_file_of_another_user_is_refused, .timeout = 30) {
  NEED_ROOT();
  for (const mode_t mode : {0600, 0666}) {
    AlicesDir alices;
    for (const char* name : kFiles) alices.plant(name, kBob, mode);
    cr_expect(holds_as(kAlice, [&] {
      return complains(taken(alices.dir), ErrorKind::denied, "/.lock belongs to user 64002") &&
             complains(held(alices.dir), ErrorKind::denied, "/.in-use belongs to user 64002") &&
             !share_store(alices.dir);
    }));
    for (const char* name : kFiles) cr_expect((alices.look(name).st_mode & 07777) == mode);
  }
}

Test(store_lock, what_is_not_a_plain_file_is_refused_at_once, .timeout = 30) {
  ScratchDir scratch;
  cr_assert(mkfifo((scratch.path() + "/.lock").c_str(), 0600) == 0);
  cr_expect(complains(taken(scratch.path()), ErrorKind::denied, "is not a plain file"));
  cr_assert(symlink("elsewhere", (scratch.path() + "/.in-use").c_str()) == 0);
  cr_expect(complains(held(scratch.path()), ErrorKind::io, "/.in-use"));
  cr_expect(access((scratch.path() + "/elsewhere").c_str(), F_OK) < 0);
}

// Who opened a file that an earlier version had made may hold its lock for ever.
Test(store_lock, who_holds_a_lock_for_long_is_named, .timeout = 60) {
  NEED_ROOT();
  AlicesDir alices;
  for (const char* name : kFiles) alices.plant(name, kAlice, 0644);
  for (const int kind : {LOCK_SH, LOCK_EX}) {
    const ForeignLock lock(kBob, alices.dir + "/.lock", kind);
    const ForeignLock in_use(kBob, alices.dir + "/.in-use", kind);
    cr_assert(lock.holds() && in_use.holds());
    const auto holder = [](const ForeignLock& of) {
      return "process " + std::to_string(of.process()) + " of user 64002";
    };
    cr_expect(holds_as(kAlice, [&] {
      return complains(taken(alices.dir), ErrorKind::io, holder(lock)) &&
             complains(held(alices.dir), ErrorKind::busy, holder(in_use));
    }));
    if (kind == LOCK_SH)
      for (const char* name : kFiles) alices.plant(name, kAlice, 0644);
  }
  cr_expect(holds_as(kAlice, [&] { return locks_both(alices.dir); }));
}

// Root tidies up in users' directories, and leaves them what they need.
Test(store_lock, what_root_makes_is_the_users, .timeout = 30) {
  NEED_ROOT();
  AlicesDir alices;
  cr_assert(locks_both(alices.dir));
  for (const char* name : kFiles) cr_expect(alices.look(name).st_uid == kAlice);
  cr_expect(holds_as(kAlice, [&] { return locks_both(alices.dir); }));
  // But nothing that was there is given away.
  AlicesDir other;
  for (const char* name : kFiles) other.plant(name, 0, 0600);
  cr_assert(locks_both(other.dir));
  for (const char* name : kFiles) cr_expect(other.look(name).st_uid == 0);
}

// As Lustre answers where it is mounted without flock.
Test(store_lock, a_file_system_without_locks_is_told_of_once, .timeout = 60) {
  for (const int code : {ENOSYS, EOPNOTSUPP, ENOLCK}) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      ScratchDir scratch;
      FileOps ops;
      // The filter is for all files, and HDF5 locks what it makes in memory.
      setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
      refuse_flock(code);
      StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{5});
      bool good = writer.take_ownership().ok() && hold_store(scratch.path()).ok();
      for (std::uint64_t step = 1; good && step <= 2; ++step) {
        auto shard = write_rank(writer, ops, step, 0, 1, rows_of(0, 1, 10), 10);
        if (!shard) fprintf(stderr, "not written: %s\n", shard.error().text.c_str());
        if (!shard) _exit(1);
        auto done = writer.commit(step, {*shard});
        if (!done) fprintf(stderr, "not saved: %s\n", done.error().text.c_str());
        good = done && done->size() == (step == 1 ? 1 : 0) &&
               (done->empty() || has(done->front(), "cannot be locked"));
      }
      std::filesystem::remove_all(scratch.path());
      _exit(good ? 0 : 1);
    }
    int status = -1;
    cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "flock answers %s", strerror(code));
  }
}
