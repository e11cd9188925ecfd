// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/child.h"
#include "common/plain/packet.h"
#include "paramserver/include/bellows_ps.h"
#include "tests/unit/paramserver/ps_support.h"
#include "tests/unit/support/scratch_dir.h"

// bellows-ps and learners, each a process. BELLOWS_PS is the program.
namespace bellows::ps_test {

/// What a learner that is put out or finds no server must not wait for.
inline constexpr int kWaitMs = 20000;

/// The tensors of an OpenLearner, but for tests that have their own.
inline constexpr std::uint64_t kTensors[] = {64, 100, 28};
/// Not 0: the second of them has rows of so many elements, and its gradients have every third row.
inline std::uint64_t row_width = 0;

/// Whether a gradient has a row of the second tensor.
inline bool has_row(std::uint32_t number, std::uint64_t row) { return (number + row) % 3 == 0; }

/// A small whole number: sums of a million of them are exact in a float. Zero where the gradient
/// has no such row.
inline float mark(std::uint32_t learner, std::uint32_t number, std::uint64_t element) {
  const std::uint64_t at = element - kTensors[0];
  if (row_width > 0 && at < kTensors[1] && !has_row(number, at / row_width)) return 0;
  return static_cast<float>(mark_bits(learner, number, element) >> 61);
}

/// Takes what this process and those that it starts say on standard error from here on.
class Said {
 public:
  Said() {
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
  }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// After so many characters.
  bool has(const std::string& words, std::size_t from = 0) const {
    return text().find(words, from) != std::string::npos;
  }

 private:
  ScratchDir scratch_;
  std::string path_ = scratch_.path() + "/said";
};

class Server {
 public:
  /// `environment`: beside that of the test.
  explicit Server(std::vector<std::string> options = {}, const char* program = BELLOWS_PS,
                  std::vector<std::string> environment = {}) {
    ChildOptions child;
    child.command = {program, "--socket=" + socket()};
    child.command.insert(child.command.end(), options.begin(), options.end());
    child.environment = std::move(environment);
    child.death_signal = SIGKILL;
    for (char** variable = environ; *variable; ++variable) child.environment.push_back(*variable);
    auto started = Child::start(child);
    cr_assert(started.ok());
    child_.emplace(std::move(*started));
    setenv("BELLOWS_PS_SOCKET", socket().c_str(), 1);
    // Its name is there before it listens.
    cr_assert(eventually([&] {
      plain::Handle probe;
      return plain::connect_to(socket().c_str(), &probe, 1) == 0;
    }));
  }

  std::string socket() const { return scratch_.path() + "/ps"; }
  pid_t pid() const { return child_->pid(); }
  /// The process that has the threads; 0: there is none now.
  pid_t worker() const {
    const std::string id = std::to_string(pid());
    std::ifstream file("/proc/" + id + "/task/" + id + "/children");
    pid_t child = 0;
    file >> child;
    return child;
  }
  void kill_parent() { child_.reset(); }
  /// To the process that was started alone, as an administrator's kill.
  void signal(int number) const { kill(pid(), number); }
  /// Its exit code, once it has ended by itself; -1: that takes too long.
  int wait_for_end() {
    return eventually([this] { return has_ended(); }) ? child_->poll_exit()->code() : -1;
  }
  bool has_ended() { return child_->poll_exit().has_value(); }

 private:
  ScratchDir scratch_;
  std::optional<Child> child_;
};

/// Three tensors; the rate is 1, so that weights become minus the sum of all gradients.
class OpenLearner {
 public:
  explicit OpenLearner(std::vector<std::uint64_t> counts = {std::begin(kTensors),
                                                            std::end(kTensors)},
                       double rate = 1)
      : OpenLearner(std::move(counts), sgd(rate)) {}
  OpenLearner(std::vector<std::uint64_t> counts, bellows_ps_config config) {
    std::uint64_t most = 0;
    for (const std::uint64_t count : counts) most = std::max(most, count);
    const std::vector<float> zeroes(most);
    const std::vector<const float*> initial(counts.size(), zeroes.data());
    counts_ = counts;
    code = bellows_ps_join(&config, counts.data(), initial.data(), counts.size(), &ps);
  }
  OpenLearner(const OpenLearner&) = delete;
  OpenLearner& operator=(const OpenLearner&) = delete;
  ~OpenLearner() { leave(); }
  int leave() { return bellows_ps_leave(std::exchange(ps, nullptr)); }
  std::string error() const { return bellows_ps_error(ps); }

  int push(std::uint32_t learner, std::uint32_t number) {
    if (const int rc = bellows_ps_begin(ps); rc != BELLOWS_PS_OK) return rc;
    std::uint64_t element = 0;
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      auto* to = static_cast<float*>(bellows_ps_gradient(ps, t));
      const bool names_rows = t == 1 && row_width > 0;
      const std::uint64_t width = names_rows ? row_width : counts_[t];
      std::vector<std::uint64_t> rows;
      for (std::uint64_t row = 0; row < counts_[t] / width; ++row, element += width) {
        if (names_rows && !has_row(number, row)) continue;
        rows.push_back(row);
        for (std::uint64_t i = 0; i < width; ++i) *to++ = mark(learner, number, element + i);
      }
      if (!names_rows) continue;
      if (const int rc = bellows_ps_gradient_rows(ps, t, rows.data(), rows.size()); rc < 0)
        return rc;
    }
    return bellows_ps_push(ps, 1);
  }
  std::vector<float> pull() {
    cr_assert_eq(bellows_ps_pull(ps), BELLOWS_PS_OK);
    std::vector<float> all;
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      const float* data = bellows_ps_weights(ps, t);
      all.insert(all.end(), data, data + counts_[t]);
    }
    return all;
  }

  bellows_ps_t* ps = nullptr;
  int code;

 private:
  static bellows_ps_config sgd(double rate) {
    bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
    config.rate = rate;
    config.wait_ms = kWaitMs;
    static std::uint64_t widths[3];
    widths[1] = row_width;
    if (row_width > 0) config.width = widths;
    return config;
  }

  std::vector<std::uint64_t> counts_;
};

/// How many gradients each learner's process has pushed, also of those that are killed.
class Counters {
 public:
  Counters()
      : counts_(static_cast<std::atomic<std::uint32_t>*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters() { munmap(counts_, kBytes); }
  std::atomic<std::uint32_t>& operator[](std::size_t i) { return counts_[i]; }

 private:
  static constexpr std::size_t kBytes = 4096;
  std::atomic<std::uint32_t>* counts_;
};

/// A process that pushes so many gradients. It does `first` before it joins.
inline pid_t start_learner(
    std::uint32_t learner, std::uint32_t count, Counters& counters,
    const std::function<void()>& first = [] {}) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  first();
  alarm(60);
  OpenLearner open;
  if (open.code != BELLOWS_PS_OK) _exit(1);
  for (std::uint32_t q = 0; q < count; ++q) {
    const int pushed = open.push(learner, q);
    if (pushed != BELLOWS_PS_OK) _exit(pushed == BELLOWS_PS_ERR_TIMEOUT ? 5 : 2);
    ++counters[learner];
    if (bellows_ps_pull(open.ps) != BELLOWS_PS_OK) _exit(3);
  }
  _exit(open.leave() == BELLOWS_PS_OK ? 0 : 4);
}

/// Learner 0 pushes so many, and waits until all are applied. How many it has pushed then.
inline std::uint32_t push_some(OpenLearner& learner, std::uint32_t from, std::uint32_t count) {
  for (std::uint32_t q = from; q < from + count; ++q)
    cr_assert_eq(learner.push(0, q), BELLOWS_PS_OK, "%s", learner.error().c_str());
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
  return from + count;
}

inline int exit_code(pid_t child) {
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// That the weights are what these many of each learner's gradients give.
inline bool is_sum(const std::vector<float>& weights, const std::vector<std::uint32_t>& pushed) {
  for (std::uint64_t i = 0; i < weights.size(); ++i) {
    float sum = 0;
    for (std::uint32_t l = 0; l < pushed.size(); ++l)
      for (std::uint32_t q = 0; q < pushed[l]; ++q) sum -= mark(l, q, i);
    if (weights[i] != sum) return false;
  }
  return true;
}

inline void allow_many_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Slots of learners of which a process has descriptors.
inline int slots_of(pid_t process) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", ignored))
    if (std::filesystem::read_symlink(entry, ignored).string().find("bellows-ps-slot") !=
        std::string::npos)
      ++count;
  return count;
}

}  // namespace bellows::ps_test
