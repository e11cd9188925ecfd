// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/program_support.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "tests/fault/program_rank.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

namespace bellows::fault_test {

namespace fs = std::filesystem;
using checkpoint_test::eventually;

namespace {

constexpr const char* kLeft = "/.tmp-9-node.1.1";

int exit_status(pid_t pid) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }, 20000)) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

// The agent of a program holds this lock as long as it lives.
bool agent_is_gone(const std::string& checkpoints) {
  const int lock = open((checkpoints + "/.in-use").c_str(), O_RDWR | O_CLOEXEC);
  const bool gone = lock < 0 || eventually([&] { return flock(lock, LOCK_EX | LOCK_NB) == 0; });
  if (lock >= 0) close(lock);
  return gone;
}

}  // namespace

Scene::Scene(const char* agent, const Plan& plan) : agent_(agent), plan_(plan) {
  // Tens of thousands of fsyncs: in memory, where there is room for it.
  char in_memory[] = "/dev/shm/bellows-test-XXXXXX", on_disk[] = "/tmp/bellows-test-XXXXXX";
  root_ = mkdtemp(in_memory) ? in_memory : mkdtemp(on_disk);
  const std::string shared = root_ + "/board";
  const Fd board(open(shared.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (ftruncate(board.get(), 4096) < 0) abort();
  board_ =
      static_cast<Board*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, board.get(), 0));
  fs::create_directory(root_ + "/run");
  setenv("BELLOWS_TEST_BOARD", shared.c_str(), 1);
  setenv("BELLOWS_AGENT", agent, 1);
  setenv("XDG_RUNTIME_DIR", (root_ + "/run").c_str(), 1);
  setenv("BELLOWS_CHECKPOINT_DIR", checkpoints().c_str(), 1);
  setenv("SLURMD_NODENAME", "node", 1);
  // A sanitized agent can't look for leaks while it is traced.
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  for (const char* name : {"BELLOWS_SOCKET", "BELLOWS_RANK", "BELLOWS_WORLD_SIZE",
                           "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}) {
    unsetenv(name);
  }
  signal(SIGPIPE, SIG_IGN);
  reset();
  pid_t pids[kWorld];
  for (int r = 0; r < kWorld; ++r) {
    const auto program = rank(r, {.saves = kBaseSteps, .rows = plan.rows});
    pids[r] = fork();
    if (pids[r] == 0) _exit(program());
  }
  started();
  for (pid_t pid : pids) {
    if (exit_status(pid) != 0 || !agent_is_gone(checkpoints())) {
      std::fprintf(stderr, "the first program failed: %s\n", board_->text);
      abort();
    }
  }
  fs::rename(checkpoints(), root_ + "/base");
  fs::create_directory(root_ + "/base" + kLeft);
  std::ofstream(root_ + "/base" + kLeft + "/shard-00000-of-00002.h5") << "half";
  if (plan.named) {
    fs::create_directory(root_ + "/base/named");
    fs::create_symlink(step_path("..", 1), root_ + "/base/named/first");
  }
}

Scene::~Scene() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
  munmap(board_, 4096);
}

void Scene::reset() {
  fs::remove_all(checkpoints());
  if (fs::exists(root_ + "/base")) {
    fs::copy(root_ + "/base", checkpoints(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  board_ = new (board_) Board{};
  for (auto& pipe : pipes_) {
    if (pipe2(pipe, O_CLOEXEC) < 0) abort();
  }
}

std::function<int()> Scene::rank(int number, const Plan& plan) {
  return [this, number, plan] {
    const int other = 1 - number;
    close(pipes_[number][1]);
    close(pipes_[other][0]);
    return run_rank(number, plan, *board_, pipes_[number][0], pipes_[other][1]);
  };
}

void Scene::started() {
  for (auto& pipe : pipes_) {
    close(pipe[0]);
    close(pipe[1]);
  }
}

std::string Scene::check(bool agent_killed) {
  std::uint64_t acknowledged = kBaseSteps;
  for (const auto& step : board_->acknowledged) {
    acknowledged = std::max(acknowledged, step.load());
  }
  if (!agent_killed) {
    acknowledged =
        std::max(acknowledged, std::min(board_->copied[0].load(), board_->copied[1].load()));
  }
  const std::string wrong = check_directory(acknowledged);
  return wrong.empty() ? check_restore(acknowledged) : wrong;
}

// Every name is one that FORMAT.md knows, or one that the next start removes.
std::string Scene::check_names(bool leftovers) const {
  constexpr std::array kKnown = {".",          "..",     ".lock",        ".in-use",
                                 "owner.json", "latest", "events.jsonl", "named"};
  const auto names = list_names(checkpoints());
  if (!names) return names.error().text;
  for (const std::string& name : *names) {
    if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) continue;
    if (parse_step_name(name) || (leftovers && name.starts_with(".tmp-"))) continue;
    return name + " was left in the directory";
  }
  return check_steps();
}

// Of a step that has its name, nothing is still on the way.
std::string Scene::check_steps() const {
  const auto steps = list_steps(checkpoints());
  if (!steps) return steps.error().text;
  for (std::uint64_t step : *steps) {
    const auto names = list_names(step_path(checkpoints(), step));
    if (!names) return names.error().text;
    for (const std::string& name : *names) {
      const bool known = name == "." || name == ".." || name == "manifest.json" ||
                         name == "whole.h5" || name.starts_with("shard-");
      if (!known) return fmt::format("{} was left in step {}", name, step);
    }
  }
  return "";
}

// It names a step that is whole.
std::string Scene::check_latest() const {
  std::error_code code;
  const std::string target = fs::read_symlink(checkpoints() + "/latest", code).string();
  if (code) return "latest is missing: " + code.message();
  const auto step = parse_step_name(target);
  if (!step) return "latest leads to " + target;
  const auto manifest = verify_step(checkpoints(), *step);
  return manifest ? "" : "latest: " + manifest.error().text;
}

std::string Scene::check_directory(std::uint64_t acknowledged) const {
  if (auto wrong = check_names(true); !wrong.empty()) return wrong;
  const auto steps = list_steps(checkpoints());
  if (!steps) return steps.error().text;
  if (steps->empty()) return "no step is left";
  if (steps->back() < acknowledged) {
    return fmt::format("step {} was acknowledged, {} is the newest", acknowledged, steps->back());
  }
  for (std::uint64_t step : *steps) {
    const auto manifest = verify_step(checkpoints(), step);
    if (!manifest) return manifest.error().text;
  }
  for (std::uint64_t step = 1; step <= kBaseSteps; ++step) {
    const bool named = plan_.named && step == 1;
    const bool nth = plan_.keep_every > 0 && step % plan_.keep_every == 0;
    if ((named || nth) && std::find(steps->begin(), steps->end(), step) == steps->end()) {
      return fmt::format("step {} was to stay and is gone", step);
    }
  }
  return check_latest();
}

std::string Scene::check_restore(std::uint64_t acknowledged) {
  board_->text[0] = 0;
  const pid_t pid = fork();
  if (pid == 0) _exit(restore_and_save(plan_, *board_, checkpoints(), acknowledged));
  const int status = exit_status(pid);
  if (status != 0) {
    return fmt::format("a fresh process exits with {}, acknowledged was step {}: {}", status,
                       acknowledged, board_->text);
  }
  if (!agent_is_gone(checkpoints())) return "the fresh process's agent stays";
  return check_names(false);
}

}  // namespace bellows::fault_test
