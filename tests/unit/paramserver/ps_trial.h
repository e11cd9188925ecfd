// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/paramserver/points.h"
#include "tests/unit/support/scratch_dir.h"

// What is done to a process at a point, which is where a function of it is called or returns.
namespace bellows::ps_test {

enum class Act { none, kill, pause, stop, hold };
inline constexpr const char* kActs[] = {"nothing", "kill -9", "SIGSTOP and SIGCONT",
                                        "SIGSTOP and kill -9", "one thread waits"};

inline bool is_long() {
  const char* said = std::getenv("BELLOWS_LONG");
  return said && *said == '1';
}

/// One run in which something happens at a point; or at none. Where no process is stopped or
/// killed, points are noted.
class Trial {
 public:
  explicit Trial(std::string point = "", Act act = Act::none)
      : point_(std::move(point)), act_(act) {}

  std::vector<std::string> environment() const {
    std::vector<std::string> all;
    if (act_ == Act::none || act_ == Act::hold) all.push_back("BELLOWS_POINTS=" + file("points"));
    if (act_ == Act::none) return all;
    const std::size_t number = point_.rfind(' ');
    const int signal = act_ == Act::kill ? SIGKILL : act_ == Act::hold ? 0 : SIGSTOP;
    all.push_back(fmt::format("BELLOWS_POINT={} {} {}", point_.substr(0, number), signal,
                              point_.substr(number + 1)));
    all.push_back("BELLOWS_POINT_MARK=" + file("mark"));
    return all;
  }
  /// In a process that was forked.
  void arm() const {
    for (const std::string& variable : environment()) {
      const std::size_t equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
    }
    arm_point();
  }
  std::set<std::string> noted() const {
    std::ifstream lines(file("points"));
    std::set<std::string> all;
    for (std::string line; std::getline(lines, line);) all.insert(line);
    return all;
  }
  /// In how many processes.
  std::ptrdiff_t times(const std::string& point) const {
    std::ifstream lines(file("points"));
    std::vector<std::string> all;
    for (std::string line; std::getline(lines, line);) all.push_back(line);
    return std::count(all.begin(), all.end(), point);
  }
  bool is_reached() const { return victim() != 0; }
  bool is_stopped() const {
    std::ifstream status(fmt::format("/proc/{}/stat", victim()));
    std::string number, name, state;
    status >> number >> name >> state;
    return state == "T";
  }
  /// What comes after the SIGSTOP, or the wait.
  void go_on() const {
    if (act_ == Act::hold) unlink(file("mark").c_str());
    const pid_t process = victim();
    if (process != 0 && act_ == Act::pause) ::kill(process, SIGCONT);
    if (process != 0 && act_ == Act::stop) ::kill(process, SIGKILL);
  }
  bool stops() const { return act_ == Act::pause || act_ == Act::stop; }
  bool ends() const { return act_ == Act::kill || act_ == Act::stop; }
  std::string text() const { return fmt::format("{} at \"{}\"", kActs[int(act_)], point_); }

 private:
  std::string file(const char* name) const { return scratch_.path() + "/" + name; }
  pid_t victim() const {
    pid_t process = 0;
    std::ifstream(file("mark")) >> process;
    return process;
  }

  ScratchDir scratch_;
  std::string point_;
  Act act_;
};

/// Continues or kills what stands still at the point, as soon as it does.
class Follower {
 public:
  explicit Follower(const Trial& trial) {
    if (trial.stops())
      thread_ = std::jthread([&trial](const std::stop_token& stop) {
        while (!stop.stop_requested() && !trial.is_stopped())
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        trial.go_on();
      });
  }

 private:
  std::jthread thread_;
};

using Scenario = void (*)(const Trial&);

/// What only a server that saves calls, which Saver and Cut have it do.
inline bool is_of_saves(const std::string& symbol) {
  static const std::regex names(
      "ShardSteps(3pin|5unpin)|PsServer(12|11|5|7)(start_saver|saved|restore)");
  return std::regex_search(symbol, names);
}

/// Functions of these classes of which no run has called any make the test blind.
inline void expect_all(const std::set<std::string>& points, const std::vector<std::string>& classes,
                       const std::string& program) {
  const std::string command = fmt::format("nm --defined-only {}", program);
  FILE* const symbols = popen(command.c_str(), "r");
  char line[4096];
  int found = 0;
  while (std::fgets(line, sizeof line, symbols)) {
    char type = 0, name[4000] = "";
    if (std::sscanf(line, "%*x %c %3999s", &type, name) != 2 || std::strchr("TW", type) == nullptr)
      continue;
    const std::string symbol = name;
    for (const std::string& of : classes) {
      const std::string member = fmt::format("{}{}", of.size(), of);
      // Not constructors and destructors, which have several names; weights are skipped only when
      // a learner in step with others has taken back what it published, and a learner sleeps,
      // and asks for whom it waits, only where the server is slow. bellows-ps has started none
      // here.
      if ((symbol.rfind("_ZN7bellows2ps" + member, 0) != 0 &&
           symbol.rfind("_ZNK7bellows2ps" + member, 0) != 0) ||
          is_of_saves(symbol) ||
          std::regex_search(symbol, std::regex("[CD][012]E|7skip_to|9sleep_for|6forget|14became_"
                                               "another|Learner4slot|Learner7missing")))
        continue;
      ++found;
      cr_expect(points.count("enter 1 " + symbol) != 0, "%s is never called here", name);
    }
  }
  pclose(symbols);
  cr_expect_gt(found, 0, "%s has no symbols", program.c_str());
}

/// A step, or what outlives a server; what is between two of them is before the second.
inline bool matters(const std::string& point) {
  return point.starts_with("enter") && (point.find("ShardSteps") != std::string::npos ||
                                        point.find("SeatKeeper") != std::string::npos ||
                                        point.find("LearnerSteps") != std::string::npos);
}

/// Without BELLOWS_LONG=1, at one of three steps of the protocol, and one of so many other points.
inline void try_all(Scenario scenario, const std::set<std::string>& points, int some) {
  int number = 0, missed = 0;
  for (const std::string& point : points) {
    // Whoever starts the server calls it first, before anybody can connect.
    if (point.find("is_in_job") != std::string::npos) continue;
    for (const Act act : {Act::kill, Act::pause, Act::stop}) {
      ++number;
      const bool step = matters(point) && act == Act::kill && number / 3 % 3 == 0;
      const bool wanted = is_long() || step || number % some == 0;
      if (!wanted) continue;
      const Trial trial(point, act);
      scenario(trial);
      if (!trial.is_reached()) {
        ++missed;
        std::fprintf(stderr, "not reached: %s\n", trial.text().c_str());
      }
    }
  }
  std::fprintf(stderr, "%zu points, %d not reached\n", points.size(), missed);
}

}  // namespace bellows::ps_test
