// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// How to start a program.
struct ChildOptions {
  std::vector<std::string> command;      ///< looked up in PATH
  std::vector<std::string> environment;  ///< NAME=VALUE, the whole of it
  bool pipe_in = false;                  ///< else in_fd, or /dev/null without one
  int in_fd = -1;                        ///< becomes its standard input; stays the caller's
  bool pipe_out = false;                 ///< else the caller's standard output
  bool pipe_err = false;                 ///< else the caller's standard error
  int death_signal = 0;                  ///< sent to it when the caller dies; 0: none
};

/// How a program ended.
struct ChildExit {
  int status = 0;  ///< as waitpid gives it

  bool ok() const;
  /// What a shell would report: the exit status, or 128 + the signal.
  int code() const;
  /// "exited with status 3" or "was killed by signal 9 (Killed)".
  std::string to_string() const;
};

/// A program in a process group of its own, with all signals as at boot. The destructor kills the
/// group and reaps the child.
class Child {
 public:
  static Result<Child> start(const ChildOptions& options);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  int in() const { return in_.get(); }    ///< write end, non-blocking; -1 without pipe_in
  int out() const { return out_.get(); }  ///< read end, non-blocking; -1 without pipe_out
  int err() const { return err_.get(); }  ///< the same for standard error
  void close_in() { in_.reset(); }
  void close_out() { out_.reset(); }
  void close_err() { err_.reset(); }
  Fd take_out() { return std::move(out_); }
  Fd take_err() { return std::move(err_); }
  /// The exit, once it has happened; never blocks.
  const std::optional<ChildExit>& poll_exit();
  /// To the whole process group; nothing once it was reaped.
  void signal(int number);

 private:
  Child(pid_t pid, Fd in, Fd out, Fd err)
      : pid_(pid), in_(std::move(in)), out_(std::move(out)), err_(std::move(err)) {}
  void finish();
  pid_t pid_ = -1;
  Fd in_;
  Fd out_;
  Fd err_;
  std::optional<ChildExit> exit_;
};

}  // namespace bellows
