// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

// Programs whose system calls a test watches, fails or makes the last ones.
namespace bellows::fault_test {

/// A system call of a traced thread, before the kernel has done it.
struct Call {
  pid_t process = 0;
  pid_t thread = 0;
  std::string program;  ///< what the process has exec'd since it was started; "": nothing
  std::uint64_t number = 0;
  std::uint64_t args[6] = {};
};

/// What becomes of a call.
struct Verdict {
  enum class What {
    go_on,
    kill_before,  ///< kill -9 of the process; the kernel doesn't do the call
    kill_after,   ///< kill -9 of the process when the call has been done and has not returned
    fail,         ///< the kernel doesn't do it; it returns `error`
    cut,          ///< its third argument, a number of bytes, becomes `bytes`
  };
  What what = What::go_on;
  int error = 0;
  std::uint64_t bytes = 0;
};

/// Runs programs, with all threads and processes they start, under ptrace. A seccomp filter picks
/// the calls, so that the others cost nothing. One at a time in a process, used by one thread.
class Tracer {
 public:
  enum class Scope {
    file_calls,  ///< those that may change a file, and open
    memory,      ///< those and what gives memory or descriptors
    all_calls,
  };

  explicit Tracer(Scope scope) : scope_(scope) {}
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  ~Tracer();

  /// Why there is no tracing here; empty: there is.
  static std::string cannot_run();

  /// Forks a process that runs `program` and exits with what it returns.
  pid_t start(const std::function<int()>& program);
  /// Until all have ended. false: some were still there after the deadline, and were killed.
  bool run(int seconds);

  std::function<Verdict(const Call&)> on_call;
  /// `status` is that of waitpid.
  std::function<void(pid_t process, int status)> on_end;

  /// The processes that live now and run the program of this file name.
  std::vector<pid_t> running(const std::string& program) const;

 private:
  struct Thread {
    pid_t process = 0;
    bool dies_after = false;  ///< stopped next at the exit of its last call
  };

  void stopped(pid_t thread, int status);
  void called(pid_t thread);
  void resume(pid_t thread, int request, int signal = 0);
  void forget(pid_t thread, int status);
  void kill_all();
  Thread& known(pid_t thread);

  Scope scope_;
  std::map<pid_t, Thread> threads_;
  std::map<pid_t, std::string> programs_;  ///< by process
};

/// Names the call if it may change what is below `root`: "rename .tmp-3-A/ -> step-3". Process
/// numbers and times in names are replaced, so that two runs give the same text.
std::optional<std::string> file_change(const Call& call, const std::string& root);

/// "openat", or "call 257" for one that has no name here.
std::string call_name(std::uint64_t number);

}  // namespace bellows::fault_test
