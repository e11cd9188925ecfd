// SPDX-License-Identifier: Apache-2.0
// Who builds a container is killed: nothing of his is left to stand in another's way.
#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>

#include "spank/container/views.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(rootfs_killed, .timeout = 120);

struct Killed : World {
  Killed() {
    tree("tree");
    spec.image = squash("tree", "a.sqsh");
  }
  Spec spec;
};

/// What a second task finds when the first one was killed while it held the lock.
std::string lock_of_the_dead(const std::string& run_dir) {
  constexpr std::uint32_t job = 7;
  const std::chrono::seconds limit(1);
  std::filesystem::create_directories(run_dir + "/" + std::to_string(job));
  auto lease = Lease::take(run_dir, job, {0, 0});
  if (!lease) return lease.error().text;
  std::string found;
  {
    const pid_t holder = ::fork();
    const auto views = JobViews::open(run_dir, job);
    if (!views) return views.error().text;
    if (holder == 0) {
      const auto lock = views->lock(limit);
      if (lock) ::raise(SIGKILL);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(holder, &status, 0);
    const auto lock = views->lock(limit);
    found = (WIFSIGNALED(status) ? "held, " : "not held, ") +
            (lock ? std::string("taken") : lock.error().text);
  }
  (void)lease->leave();
  return found;
}

Test(rootfs_killed, a_lock_ends_with_its_holder) {
  NEEDS_ROOT();
  const Killed world;
  std::string found;
  EQUALS(run_as_user([&] { found = lock_of_the_dead(world.path("run")); }, [&] { return found; }),
         "held, taken");
}

/// Whether a loop device reads a file whose path has `part` in it.
bool has_loop(const std::string& part) {
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block")) {
    const auto file = entry.path() / "loop/backing_file";
    if (text_of(file).find(part) != std::string::npos) return true;
  }
  return false;
}

bool loop_goes(const std::string& part) {
  for (int tries = 0; tries < 1000; tries++) {
    if (!has_loop(part)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

Test(rootfs_killed, loop_devices_go) {
  NEEDS_ROOT();
  Killed world;
  // In a container the path of the file is another one; the world's name is in each.
  const std::string image = std::filesystem::path(world.path("ns")).parent_path().filename();
  EQUALS(world.in_container(world.spec, [&] { return has_loop(image) ? "used" : "unused"; }),
         "used");
  cr_expect(loop_goes(image));
  for (const char* phase :
       {"mounting the image", "mounting the system's directories", "making /dev",
        "mounting the user's directories", "entering the container"}) {
    bool reached = false;
    world.observer = [&](const char* name) {
      if (std::string_view(name) == phase) ::kill(::getpid(), SIGKILL);
    };
    EQUALS(world.in_container(world.spec, [] { return "built"; }), "");
    cr_expect(loop_goes(image), "%s", phase);
    world.observer = [&](const char* name) {
      reached = reached || std::string_view(name) == phase;
    };
    EQUALS(world.in_container(world.spec, [&] { return reached ? "reached" : "never"; }),
           "reached");
  }
}

// Between the system calls too: while the device has no mount yet.
Test(rootfs_killed, loop_devices_go_whenever_the_builder_dies) {
  NEEDS_ROOT();
  Killed world;
  int built = 0;
  for (int moment = 0; moment < 60; moment++) {
    const timespec wait{0, moment * 40'000};
    world.observer = [&wait](const char* name) {
      if (std::string_view(name) != "mounting the image") return;
      const pid_t builder = ::getpid();
      if (::fork() != 0) return;
      ::nanosleep(&wait, nullptr);
      ::kill(builder, SIGKILL);
      ::_exit(0);
    };
    const auto hold = [] {
      std::this_thread::sleep_for(std::chrono::seconds(10));
      return "built";
    };
    if (world.in_container(world.spec, hold) == "built") built++;
  }
  cr_expect(built == 0, "%d of 60 outlived their killer", built);
  cr_expect(loop_goes(world.spec.image));
}

}  // namespace
