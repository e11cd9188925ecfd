// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "spank/container/task_prolog.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(container_prolog, .timeout = 60);

using Kind = PrologLine::Kind;

/// What a script with this text says, or why it failed.
std::string said_by(
    const ScratchDir& dir, const std::string& text,
    const std::function<Status()>& prepare = [] { return Status(); }) {
  PrologRun run;
  run.path = dir.path() + "/prolog";
  run.environment = {"PATH=/usr/bin:/bin", "NAME=value"};
  run.seconds = 1;
  std::ofstream(run.path) << "#!/bin/sh\n" << text;
  cr_assert_eq(::chmod(run.path.c_str(), 0755), 0);
  const auto said = run_prolog(run, prepare);
  return said ? *said : "failed: " + said.error().text;
}

Test(container_prolog, lines) {
  const auto lines = parse_prolog(
      "export A=1\nexport  B = 2=3 \nexport NOTHING\nexport =x\nunset  C \nunset \nprint  said\n"
      " export D=4\nexported E=5\nexport F=");
  const std::vector<PrologLine> wanted = {{Kind::set, "A", "1"},
                                          {Kind::set, "B", " 2=3 "},
                                          {Kind::unset, "C", ""},
                                          {Kind::print, "", "said"},
                                          {Kind::set, "F", ""}};
  cr_assert(lines == wanted);
  cr_assert(parse_prolog("").empty());
}

Test(container_prolog, says) {
  const ScratchDir dir;
  cr_assert_eq(said_by(dir, "echo $NAME ${HOME:-none}"), "value none\n");
  cr_assert_eq(said_by(dir, "cat"), "", "standard input is empty");
  cr_assert_eq(said_by(dir, "sleep 30 & echo quick"), "quick\n",
               "what is left running is not waited for");
}

Test(container_prolog, fails) {
  const ScratchDir dir;
  cr_assert(has(said_by(dir, "exit 3"), "failed with status 3"));
  cr_assert(has(said_by(dir, "kill -9 $$"), "was killed by signal 9"));
  cr_assert(has(said_by(dir, "yes"), "wrote more than 65536 bytes"));
  const auto refuse = [] { return Status(Error{ErrorKind::denied, "not here"}); };
  cr_assert(has(said_by(dir, "echo ran", refuse), "failed with status 1"));
  PrologRun none;
  none.path = dir.path() + "/none";
  cr_assert_not(run_prolog(none, [] { return Status(); }));
}

Test(container_prolog, hangs) {
  const ScratchDir dir;
  const auto began = std::chrono::steady_clock::now();
  const std::string said = said_by(dir, "sleep 300 & echo $! >" + dir.path() + "/pid; wait");
  cr_assert(has(said, "did not end within 1 s"), "%s", said.c_str());
  cr_assert_lt((std::chrono::steady_clock::now() - began) / std::chrono::seconds(1), 20);
  int child = 0;
  std::ifstream(dir.path() + "/pid") >> child;
  cr_assert_gt(child, 1);
  // Killed with it, and no more than a name until someone collects it.
  std::string state = "gone";
  for (int i = 0; i < 200; i++) {
    std::ifstream status("/proc/" + std::to_string(child) + "/stat");
    std::string word;
    state = "gone";
    if (status >> word >> word >> word) state = word;
    if (state == "gone" || state == "Z" || state == "X") return;
    ::usleep(10000);
  }
  cr_assert_fail("what it started is still in state %s", state.c_str());
}

}  // namespace
