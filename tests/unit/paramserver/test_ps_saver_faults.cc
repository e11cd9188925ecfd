// SPDX-License-Identifier: Apache-2.0
// Directories in which bellows-ps cannot save: a full one, and one that another uses.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/unit/checkpoint/library_support.h"
#include "tests/unit/paramserver/ps_processes.h"
#include "tests/unit/paramserver/ps_stored.h"

using namespace bellows;
using namespace bellows::ps_test;
using checkpoint_test::Place;
using ps_test::eventually;

namespace {

/// The checkpoints' directory as a file system of 1 MB, which can be filled. This process's alone.
class SmallDisk {
 public:
  explicit SmallDisk(const Place& place) : dir_(place.checkpoints()) {
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0)
      cr_skip_test("needs the right to mount a small file system");
    mkdir(dir_.c_str(), 0700);
    cr_assert(mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=1m") == 0);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() { umount2(dir_.c_str(), MNT_DETACH); }
  void fill() const {
    const int fd = open(filler().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    for (off_t at = 0; posix_fallocate(fd, at, 4096) == 0; at += 4096) continue;
    close(fd);
  }
  void make_room() const { cr_assert_eq(unlink(filler().c_str()), 0); }

 private:
  std::string filler() const { return dir_ + "/filler"; }
  std::string dir_;
};

}  // namespace

Test(ps_saver, goes_on_with_a_full_disk_and_saves_once_there_is_room, .timeout = 120) {
  const Place place;
  const SmallDisk disk(place);
  const Said said;
  Server server({"--checkpoint-dir=" + place.checkpoints(), "--checkpoint-every-ms=20"});
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK);
  std::uint32_t pushed = push_some(learner, 0, 10);
  cr_assert(eventually([&] { return newest_committed(place.checkpoints()) == 10; }));
  disk.fill();
  const auto has_failed = [&] {
    pushed = push_some(learner, pushed, 1);
    // The agent may say first that there is no space for its own files.
    return said.has("bellows-ps: cannot save the training: ");
  };
  cr_assert(eventually(has_failed), "%s", said.text().c_str());
  cr_expect(said.has("No space left on device"), "%s", said.text().c_str());
  cr_expect_not(said.has("has saved the training again"), "%s", said.text().c_str());
  disk.make_room();
  const auto is_saved = [&] {
    pushed = push_some(learner, pushed, 1);
    return newest_committed(place.checkpoints()) > 10 && said.has("has saved the training again");
  };
  cr_assert(eventually(is_saved), "%s", said.text().c_str());
  pushed = push_some(learner, pushed, 10);
  expect_saves(place, server, SIGTERM, pushed);
}

Test(ps_saver, says_that_it_could_not_save_at_its_end, .timeout = 120) {
  for (const int signal : {SIGTERM, SIGUSR2}) {
    const Place place;
    const SmallDisk disk(place);
    const Said said;
    Server server({"--checkpoint-dir=" + place.checkpoints(), "--checkpoint-every=0"});
    OpenLearner learner;
    cr_assert_eq(learner.code, BELLOWS_PS_OK);
    disk.fill();
    push_some(learner, 0, 10);
    if (signal == SIGUSR2) learner.leave();
    server.signal(signal);
    cr_expect_eq(server.wait_for_end(), 1, "%s", said.text().c_str());
    cr_expect(said.has("cannot save the training: "), "%s", said.text().c_str());
    cr_expect(said.has("No space left on device"), "%s", said.text().c_str());
    cr_expect_not(said.has("has finished"), "%s", said.text().c_str());
    cr_expect(eventually([&] { return !place.agent_lives(); }));
  }
}

Test(ps_saver, a_second_one_with_the_same_directory_is_refused, .timeout = 120) {
  const Place place;
  const Said said;
  Server first({"--checkpoint-dir=" + place.checkpoints()});
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK);
  std::uint32_t pushed = push_some(learner, 0, 10);
  const std::size_t before = said.text().size();
  {
    Server second({"--checkpoint-dir=" + place.checkpoints()});
    cr_expect_eq(second.wait_for_end(), 1);
  }
  cr_expect(said.has("bellows-ps: ", before), "it says nothing");
  cr_expect(said.has(place.checkpoints(), before), "%s", said.text().substr(before).c_str());
  pushed = push_some(learner, pushed, 10);
  expect_saves(place, first, SIGTERM, pushed);
}
