// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories below one that all users share: what others made there is not taken.
#include <criterion/criterion.h>
#include <sys/xattr.h>

#include <cstdio>

#include "checkpoint/agent/node_restore.h"
#include "checkpoint/store/store_place.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

#define NEED_ROOT() \
  if (geteuid() != 0) cr_skip_test("only root can act as other users")

/// Root's and sticky, as a site has it; and a job of Alice's in it.
struct SharedBase {
  SharedBase() { make("", 0, 01777); }
  void make(const char* name, uid_t owner, mode_t mode) const {
    const std::string path = base + name;
    if ((mkdir(path.c_str(), 0700) < 0 && errno != EEXIST) || chmod(path.c_str(), mode) < 0 ||
        chown(path.c_str(), owner, owner) < 0)
      abort();
  }
  mode_t mode_of(const char* name) const {
    struct stat s {};
    (void)lstat((base + name).c_str(), &s);
    return s.st_mode & 07777;
  }

  ScratchDir scratch;
  std::string base = scratch.path();
  StorePlace place{base + "/alice/17", base};
};

bool complains(const Status& status, const std::string& text) {
  if (!status && status.error().kind == ErrorKind::denied && has(why(status), text)) return true;
  fprintf(stderr, "said: %s\n", why(status).c_str());
  return false;
}

Status made(const StorePlace& place, Access access = Access::owner) {
  auto fd = make_place(place, access);
  return fd ? Status() : Status(fd.error());
}

bool alice_is_told(const SharedBase& shared, const std::string& text) {
  return holds_as(kAlice, [&] {
    return complains(made(shared.place), text) && complains(check_place(shared.place), text);
  });
}

/// A file's access control list, with which a user may write: see acl(5).
bool let_write(const std::string& path, uid_t user) {
  struct Entry {
    std::uint16_t tag, perm;
    std::uint32_t id;
  };
  const struct {
    std::uint32_t version = 2;
    Entry entries[5];
  } list = {2, {{1, 7, ~0u}, {2, 7, user}, {4, 5, ~0u}, {16, 7, ~0u}, {32, 0, ~0u}}};
  return setxattr(path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) == 0;
}

}  // namespace

Test(store_place, is_made_private_unless_the_site_wants_else, .timeout = 30) {
  NEED_ROOT();
  for (const auto& [access, mode] :
       {std::pair{Access::owner, 0700u}, {Access::group, 0750u}, {Access::all, 0755u}}) {
    SharedBase shared;
    cr_expect(holds_as(kAlice, [&, wanted = access] {
      umask(022);
      return made(shared.place, wanted).ok() && made(shared.place, wanted).ok() &&
             check_place(shared.place).ok();
    }));
    cr_expect(shared.mode_of("/alice") == mode && shared.mode_of("/alice/17") == mode, "%o %o",
              shared.mode_of("/alice"), shared.mode_of("/alice/17"));
  }
}

Test(store_place, of_an_earlier_version_continues, .timeout = 30) {
  NEED_ROOT();
  SharedBase shared;
  shared.make("/alice", kAlice, 0755);
  shared.make("/alice/17", kAlice, 0755);
  cr_expect(holds_as(kAlice, [&] { return made(shared.place).ok(); }));
  cr_expect(shared.mode_of("/alice/17") == 0755);
}

// Who makes it first would own what its user restores later.
Test(store_place, made_by_another_user_is_refused, .timeout = 30) {
  NEED_ROOT();
  for (const mode_t mode : {0777, 01777, 0755, 0700}) {
    SharedBase first, second;
    first.make("/alice", kBob, mode);
    cr_expect(alice_is_told(first, "/alice belongs to user 64002"));
    second.make("/alice", 0, 0755);
    second.make("/alice/17", kBob, mode);
    cr_expect(alice_is_told(second, "/alice/17 belongs to user 64002"));
  }
}

Test(store_place, that_a_link_leads_to_is_refused, .timeout = 30) {
  NEED_ROOT();
  for (const char* name : {"/alice", "/alice/17"}) {
    SharedBase shared;
    ScratchDir elsewhere;
    cr_assert(chown(elsewhere.path().c_str(), kAlice, kAlice) == 0);
    if (std::string(name) != "/alice") shared.make("/alice", kAlice, 0700);
    cr_assert(symlink(elsewhere.path().c_str(), (shared.base + name).c_str()) == 0);
    cr_expect(alice_is_told(shared, std::string(name) + " is a link or a file"));
    cr_expect(std::filesystem::is_empty(elsewhere.path()));
  }
}

Test(store_place, that_others_may_write_is_refused, .timeout = 30) {
  NEED_ROOT();
  for (const mode_t mode : {0770, 0777, 01777, 0702}) {
    SharedBase own, roots;
    own.make("/alice", kAlice, mode);
    cr_expect(alice_is_told(own, "chmod go-w"));
    roots.make("/alice", kAlice, 0755);
    roots.make("/alice/17", 0, mode);
    cr_expect(alice_is_told(roots, "chmod go-w"));
  }
}

Test(store_place, that_an_access_control_list_opens_is_refused, .timeout = 30) {
  NEED_ROOT();
  SharedBase shared;
  shared.make("/alice", kAlice, 0700);
  if (!let_write(shared.base + "/alice", kBob)) cr_skip_test("no access control lists here");
  cr_expect(alice_is_told(shared, "chmod go-w"));
}

// As of an account, in which each of its users makes his own.
Test(store_place, may_lie_in_a_sticky_one_of_roots, .timeout = 30) {
  NEED_ROOT();
  SharedBase shared;
  shared.make("/alice", 0, 01777);
  cr_expect(holds_as(kAlice, [&] { return made(shared.place).ok(); }));
  SharedBase open;
  open.make("/alice", 0, 0777);
  cr_expect(alice_is_told(open, "chmod go-w"));
}

Test(store_place, is_found_from_a_sticky_one_of_roots, .timeout = 30) {
  NEED_ROOT();
  const SharedBase shared;
  shared.make("/vision", 0, 01777);
  const StorePlace place{shared.base + "/vision/17", shared.base};
  cr_expect(holds_as(kAlice, [&] {
    auto parent = make_parent(place, Access::owner);
    return parent.ok() && symlinkat("/elsewhere", parent->get(), "17") == 0;
  }));
  shared.make("/vision", 0, 0777);
  cr_expect(holds_as(kAlice, [&] {
    auto parent = open_parent(place);
    return !parent && complains(Status(parent.error()), "others may write");
  }));
}

Test(store_place, leads_nowhere_else, .timeout = 30) {
  SharedBase shared;
  cr_expect(complains(made({shared.base + "/../17", shared.base}), "leads out"));
  cr_expect(!made({"/other/17", shared.base}).ok());
  const auto missing = made({shared.base + "/none/17", shared.base + "/none"});
  cr_expect(!missing && missing.error().kind == ErrorKind::io);
}

Test(store_place, is_as_safe_as_what_all_share, .timeout = 30) {
  SharedBase shared;
  cr_expect(check_shared_base(shared.base).ok());
  shared.make("", 0, 0755);
  cr_expect(check_shared_base(shared.base).ok());
  for (const mode_t mode : {0777, 0775}) {
    shared.make("", 0, mode);
    cr_expect(complains(check_shared_base(shared.base), "chmod +t"));
  }
}

// Between two looks at it, where the base lets others rename what is there.
Test(store_place, that_is_swapped_later_is_neither_written_nor_read, .timeout = 60) {
  NEED_ROOT();
  SharedBase shared;
  FileOps ops;
  StoreWriter writer(ops, shared.place, "17.0.1", Retention{5});
  cr_assert(writer.take_ownership().ok());
  cr_assert(save_step(writer, ops, 10).ok());
  NodeRestore restore(shared.place, 10, 1);
  std::filesystem::copy(shared.base + "/alice", shared.base + "/copy",
                        std::filesystem::copy_options::recursive);
  shared.make("/copy", kBob, 0777);
  std::filesystem::rename(shared.base + "/alice", shared.base + "/away");
  std::filesystem::rename(shared.base + "/copy", shared.base + "/alice");
  const std::string told = "/alice belongs to user 64002";
  cr_expect(complains(writer.begin_step(20), told));
  cr_expect(complains(save_step(writer, ops, 20), told));
  auto done = writer.commit(20, {});
  cr_expect(!done);
  auto found = writer.find({});
  cr_expect(!found && complains(found.error(), told));
  auto read = restore.read(0, Placed{});
  cr_expect(!read && complains(read.error(), told));
}
