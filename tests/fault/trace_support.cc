// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/trace_support.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/fault/call_table.h"

namespace bellows::fault_test {
namespace {

constexpr int kOptions = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC |
                         PTRACE_O_EXITKILL;

std::vector<std::uint32_t> numbers_of(Tracer::Scope scope) {
  std::vector<std::uint32_t> out;
  for (const KnownCall& known : kKnownCalls) {
    if (known.changes_files() || scope == Tracer::Scope::memory) out.push_back(known.number);
  }
  return out;
}

bool install_filter(Tracer::Scope scope) {
  std::vector<sock_filter> code;
  if (scope != Tracer::Scope::all_calls) {
    const auto numbers = numbers_of(scope);
    code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto to_trace = static_cast<std::uint8_t>(numbers.size() - i);
      code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], to_trace, 0));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
  const sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// 0 when the thread is no more.
pid_t process_of(pid_t thread) {
  std::ifstream in("/proc/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("Tgid:")) return std::atoi(line.c_str() + 5);
  }
  return 0;
}

bool change_call(pid_t thread, const Verdict& verdict) {
#ifdef __x86_64__
  user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, thread, 0, &r) < 0) return false;
  if (verdict.what == Verdict::What::fail) {
    r.orig_rax = ~0ull;
    r.rax = static_cast<unsigned long long>(-verdict.error);
  } else {
    r.rdx = verdict.bytes;
  }
  return ptrace(PTRACE_SETREGS, thread, 0, &r) == 0;
#else
  return thread == 0 && verdict.error == 0;
#endif
}

void ignore_alarm(int) {}

/// Interrupts waitpid every tenth of a second.
class Ticks {
 public:
  Ticks() {
    struct sigaction act = {};
    act.sa_handler = ignore_alarm;
    sigaction(SIGALRM, &act, &before_);
    const itimerval every = {{0, 100000}, {0, 100000}};
    setitimer(ITIMER_REAL, &every, nullptr);
  }
  Ticks(const Ticks&) = delete;
  Ticks& operator=(const Ticks&) = delete;
  ~Ticks() {
    const itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  struct sigaction before_ = {};
};

}  // namespace

std::string Tracer::cannot_run() {
#ifndef __x86_64__
  return "the tracer knows x86-64 only";
#else
  Tracer tracer(Scope::all_calls);
  bool seen = false;
  tracer.on_call = [&](const Call&) {
    seen = true;
    return Verdict{};
  };
  if (tracer.start([] { return 0; }) < 0) return "ptrace is not allowed here";
  return tracer.run(10) && seen ? "" : "seccomp with ptrace does not work here";
#endif
}

Tracer::~Tracer() { kill_all(); }

pid_t Tracer::start(const std::function<int()>& program) {
  int go[2];
  if (pipe(go) < 0) abort();
  const pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);
    char byte;
    if (read(go[0], &byte, 1) != 1 || !install_filter(scope_)) _exit(125);
    close(go[0]);
    _exit(program());
  }
  close(go[0]);
  const bool seized = ptrace(PTRACE_SEIZE, pid, 0, kOptions) == 0;
  if (seized) {
    threads_[pid] = {pid, false};
    programs_[pid] = "";
    if (write(go[1], "g", 1) != 1) abort();
  }
  close(go[1]);
  if (seized) return pid;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

bool Tracer::run(int seconds) {
  Ticks ticks;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  bool in_time = true;
  while (!threads_.empty()) {
    int status = 0;
    const pid_t thread = waitpid(-1, &status, __WALL);
    if (thread < 0 && errno != EINTR) break;
    if (thread > 0 && WIFSTOPPED(status)) stopped(thread, status);
    if (thread > 0 && !WIFSTOPPED(status)) forget(thread, status);
    if (in_time && std::chrono::steady_clock::now() > end) {
      in_time = false;
      kill_all();
    }
  }
  return in_time;
}

Tracer::Thread& Tracer::known(pid_t thread) {
  auto found = threads_.find(thread);
  if (found != threads_.end()) return found->second;
  pid_t process = process_of(thread);
  if (process == 0) process = thread;
  programs_.try_emplace(process, "");
  return threads_[thread] = {process, false};
}

void Tracer::stopped(pid_t thread, int status) {
  const int event = status >> 16;
  const int signal = WSTOPSIG(status);
  Thread& t = known(thread);
  if (event == PTRACE_EVENT_SECCOMP) return called(thread);
  if (signal == (SIGTRAP | 0x80)) {
    if (t.dies_after) kill(t.process, SIGKILL);
    if (!t.dies_after) resume(thread, PTRACE_CONT);
    return;
  }
  if (event == PTRACE_EVENT_EXEC) {
    std::error_code ignored;
    const auto exe =
        std::filesystem::read_symlink("/proc/" + std::to_string(t.process) + "/exe", ignored);
    programs_[t.process] = exe.string();
  }
  // A signal is passed on; an event, and the stop with which a new thread begins, is none.
  resume(thread, PTRACE_CONT, event == 0 ? signal : 0);
}

void Tracer::called(pid_t thread) {
  Thread& t = known(thread);
  Call call;
  call.process = t.process;
  call.thread = thread;
  call.program = programs_[t.process];
  __ptrace_syscall_info info = {};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) < 0) {
    return;
  }
  call.number = info.seccomp.nr;
  std::memcpy(call.args, info.seccomp.args, sizeof call.args);
  const Verdict verdict = on_call ? on_call(call) : Verdict{};
  switch (verdict.what) {
    case Verdict::What::kill_before:
      kill(t.process, SIGKILL);
      return;
    case Verdict::What::kill_after:
      t.dies_after = true;
      return resume(thread, PTRACE_SYSCALL);
    case Verdict::What::fail:
    case Verdict::What::cut:
      if (!change_call(thread, verdict)) abort();
      [[fallthrough]];
    case Verdict::What::go_on:
      return resume(thread, PTRACE_CONT);
  }
}

// One that was killed meanwhile doesn't take it; its end will be seen.
void Tracer::resume(pid_t thread, int request, int signal) {
  (void)ptrace(static_cast<__ptrace_request>(request), thread, 0, signal);
}

void Tracer::forget(pid_t thread, int status) {
  const auto found = threads_.find(thread);
  if (found == threads_.end()) return;
  const pid_t process = found->second.process;
  threads_.erase(found);
  // The first thread's end is the process's: it is told when all others have ended.
  if (thread != process) return;
  std::erase_if(threads_, [&](const auto& entry) { return entry.second.process == process; });
  programs_.erase(process);
  if (on_end) on_end(process, status);
}

void Tracer::kill_all() {
  for (const auto& [process, program] : programs_) kill(process, SIGKILL);
}

std::vector<pid_t> Tracer::running(const std::string& program) const {
  std::vector<pid_t> out;
  for (const auto& [process, runs] : programs_) {
    if (runs == program) out.push_back(process);
  }
  return out;
}

}  // namespace bellows::fault_test
