// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/file.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

// What the tests of libbellows with an agent of its own share. AGENT is that agent's program.
namespace bellows::checkpoint_test {

/// A scratch directory that libbellows uses for its sockets and its checkpoints.
struct Place {
  Place() {
    setenv("BELLOWS_AGENT", AGENT, 1);
    setenv("XDG_RUNTIME_DIR", scratch.path().c_str(), 1);
    setenv("BELLOWS_CHECKPOINT_DIR", checkpoints().c_str(), 1);
    for (const char* name : {"BELLOWS_SOCKET", "BELLOWS_RANK", "BELLOWS_WORLD_SIZE",
                             "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}) {
      unsetenv(name);
    }
  }
  // An agent may still be writing its last, or its first when its rank left at once: what it makes
  // would outlive the directory. It holds this lock as long as it lives.
  ~Place() {
    const int lock = open((checkpoints() + "/.in-use").c_str(), O_RDWR | O_CLOEXEC);
    eventually([&] { return lock < 0 || flock(lock, LOCK_EX | LOCK_NB) == 0; });
    if (lock >= 0) close(lock);
  }

  std::string checkpoints() const { return scratch.path() + "/checkpoints"; }
  /// The attempt that owns the checkpoints, or "".
  std::string attempt() const {
    std::ifstream in(checkpoints() + "/owner.json");
    const auto owner = nlohmann::json::parse(in, nullptr, false);
    return owner.is_object() ? owner["attempt"].get<std::string>() : "";
  }
  /// The standalone agent's process, or 0.
  pid_t agent() const {
    const std::string name = attempt();
    const auto dot = name.find('.');
    return dot == std::string::npos ? 0 : std::atoi(name.c_str() + dot + 1);
  }
  bool agent_lives() const {
    const pid_t pid = agent();
    if (pid <= 0) return false;
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string word, state;
    in >> word >> word >> state;
    return !state.empty() && state != "Z";
  }
  /// Whether an uncommitted step holds the file.
  bool saving(std::uint64_t step, const std::string& file) const {
    auto names = list_names(checkpoints());
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
      if (name.starts_with(".tmp-" + std::to_string(step) + "-") &&
          access((checkpoints() + "/" + name + file).c_str(), F_OK) == 0) {
        return true;
      }
    }
    return false;
  }
  std::string socket() const {
    const std::string dir = scratch.path() + "/bellows";
    auto names = list_names(dir);
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
      if (name[0] != '.' && !name.ends_with(".lock")) return dir + "/" + name;
    }
    return "";
  }

  ScratchDir scratch;
};

/// What await_rank gives for a rank that does not end.
constexpr int kHangs = 999;
/// The rank's exit status; 200 + signal when one killed it.
inline int await_rank(pid_t pid, int limit_ms = 20000) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }, limit_ms)) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return kHangs;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

}  // namespace bellows::checkpoint_test
