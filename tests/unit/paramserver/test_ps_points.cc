// SPDX-License-Identifier: Apache-2.0
// kill -9, SIGSTOP and SIGCONT, and SIGSTOP and kill -9 of a learner and of bellows-ps wherever a
// function of theirs is called or returns, so at each step of the protocol, of joins, of leaves and
// of what a server does that takes over. The functions are those that a run is seen to call, so a
// new one is a new point. BELLOWS_LONG=1 does everything everywhere; otherwise it is kill -9 at the
// steps of the protocol, and something somewhere.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <thread>

#include "paramserver/wire/ps_wire.h"
#include "tests/unit/paramserver/points.h"
#include "tests/unit/paramserver/ps_processes.h"

using namespace bellows;
using namespace bellows::ps_test;
using std::chrono::milliseconds;

namespace {

enum class Act { none, kill, pause, stop };
constexpr const char* kActs[] = {"nothing", "kill -9", "SIGSTOP and SIGCONT",
                                 "SIGSTOP and kill -9"};
/// So that sequences wrap in the middle.
const std::string kFirst = "--first-sequence=4294967285";

bool is_long() {
  const char* said = std::getenv("BELLOWS_LONG");
  return said && *said == '1';
}

/// One run in which something happens at a point; or at none, when points are noted.
class Trial {
 public:
  explicit Trial(std::string point = "", Act act = Act::none)
      : point_(std::move(point)), act_(act) {}

  std::vector<std::string> environment() const {
    if (act_ == Act::none) return {"BELLOWS_POINTS=" + file("points")};
    const std::size_t number = point_.rfind(' ');
    return {fmt::format("BELLOWS_POINT={} {} {}", point_.substr(0, number),
                        act_ == Act::kill ? SIGKILL : SIGSTOP, point_.substr(number + 1)),
            "BELLOWS_POINT_MARK=" + file("mark")};
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
  bool is_reached() const { return victim() != 0; }
  bool is_stopped() const {
    std::ifstream status(fmt::format("/proc/{}/stat", victim()));
    std::string number, name, state;
    status >> number >> name >> state;
    return state == "T";
  }
  /// What comes after the SIGSTOP.
  void go_on() const {
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

/// That it ends as told, and nothing of it is left.
void expect_clean_end(Server& server, const Trial& trial, int signal = SIGTERM) {
  const pid_t worker = server.worker();
  kill(server.pid(), signal);
  cr_expect(eventually([&] { return server.has_ended(); }), "%s", trial.text().c_str());
  // Of one that is to follow, the number is not known yet.
  cr_expect(worker == 0 || kill(worker, 0) != 0, "%s", trial.text().c_str());
  cr_expect_neq(access(server.socket().c_str(), F_OK), 0, "%s", trial.text().c_str());
}

void run_learner(const Trial& trial) {
  Server server({"--threads=2", "--learners=3", "--mode=bounded", "--staleness=1000", kFirst});
  Counters counters;
  const std::uint32_t count = 40, others = 60;
  const pid_t victim = start_learner(0, count, counters, [&] { trial.arm(); });
  siginfo_t ended = {};
  const auto has_ended = [&] {
    return waitid(P_PID, static_cast<id_t>(victim), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == victim;
  };
  cr_expect(eventually([&] { return has_ended() || (trial.stops() && trial.is_stopped()); }), "%s",
            trial.text().c_str());
  // Nobody waits for it.
  cr_expect_eq(exit_code(start_learner(1, others, counters)), 0, "%s", trial.text().c_str());
  trial.go_on();
  const bool dies = trial.ends() && trial.is_reached();
  cr_expect_eq(exit_code(victim), dies ? -1 : 0, "%s", trial.text().c_str());
  OpenLearner reader;
  cr_expect_eq(reader.code, BELLOWS_PS_OK, "%s", trial.text().c_str());
  cr_expect(eventually([&] { return slots_of(server.pid()) == 1; }), "%s", trial.text().c_str());
  const auto weights = reader.pull();
  const std::uint32_t pushed = counters[0];
  cr_expect(is_sum(weights, {pushed, others}) || (dies && is_sum(weights, {pushed + 1, others})),
            "%s", trial.text().c_str());
  reader.leave();
  expect_clean_end(server, trial);
}

/// A learner that stands still from the grant of its seat until that is another's is told so.
void run_late() {
  const Trial trial("enter 1 _ZN7bellows2ps7Learner6attachERKNS0_5GrantEiiiRNS_5plain6HandleE",
                    Act::pause);
  const Server server({"--learners=1"}, WITH_POINTS);
  Counters counters;
  const pid_t late = start_learner(0, 10, counters, [&] { trial.arm(); });
  cr_assert(eventually([&] { return trial.is_stopped(); }));
  cr_expect(eventually([&] { return OpenLearner().code == BELLOWS_PS_OK; }));
  trial.go_on();
  // Its first pull says so.
  cr_expect_eq(exit_code(late), 3);
}

/// A process that says nonsense, and waits until it is put out.
pid_t start_hostile() {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  OpenLearner open;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("bellows-ps-slot") == std::string::npos) continue;
    // The first number of a slot is what was published.
    *reinterpret_cast<std::atomic<std::uint32_t>*>(std::stoull(line, nullptr, 16)) = 12345;
    break;
  }
  while (bellows_ps_pull(open.ps) == BELLOWS_PS_OK) std::this_thread::sleep_for(milliseconds(1));
  _exit(open.error().find("put this learner out") != std::string::npos ? 0 : 1);
}

/// Continues or kills what stands still at the point, as soon as it does.
class Follower {
 public:
  explicit Follower(const Trial& trial) {
    if (trial.stops())
      thread_ = std::jthread([&trial](const std::stop_token& stop) {
        while (!stop.stop_requested() && !trial.is_stopped())
          std::this_thread::sleep_for(milliseconds(1));
        std::this_thread::sleep_for(milliseconds(20));
        trial.go_on();
      });
  }

 private:
  std::jthread thread_;
};

/// Whatever comes of it: the server may be killed meanwhile.
void ask_for_report(const Server& server) {
  plain::Handle socket;
  ps::PsMessage message;
  message.word = ps::PsWord::report;
  iovec part = {&message, sizeof message};
  if (plain::connect_to(server.socket().c_str(), &socket, 1000) != 0 ||
      plain::send_packet(socket.get(), &part, 1, -1, 0) != 0)
    return;
  std::size_t got = 0;
  (void)plain::receive_packet(socket.get(), &part, 1, &got, nullptr, 0);
}

void run_server(const Trial& trial) {
  Server server({"--threads=2", "--learners=6", "--mode=bounded", "--staleness=1000", kFirst},
                WITH_POINTS, trial.environment());
  const Follower follower(trial);
  Counters counters;
  OpenLearner reader;
  cr_expect_eq(reader.code, BELLOWS_PS_OK, "%s: %s", trial.text().c_str(), reader.error().c_str());
  cr_expect_eq(OpenLearner({64}).code, BELLOWS_PS_ERR_INVALID, "%s", trial.text().c_str());
  const std::uint32_t count = 60, late = 5;
  const pid_t learners[] = {start_learner(0, count, counters), start_learner(1, count, counters)};
  cr_expect(eventually([&] { return counters[0] > 25 && server.worker() != 0; }), "%s",
            trial.text().c_str());
  // Another takes over.
  kill(server.worker(), SIGKILL);
  const pid_t more[] = {start_learner(2, late, counters), start_hostile()};
  for (const pid_t child : learners) cr_expect_eq(exit_code(child), 0, "%s", trial.text().c_str());
  for (const pid_t child : more) cr_expect_eq(exit_code(child), 0, "%s", trial.text().c_str());
  cr_expect(eventually([&] { return slots_of(server.pid()) == 1; }), "%s", trial.text().c_str());
  cr_expect(is_sum(reader.pull(), {count, count, late}), "%s", trial.text().c_str());
  ask_for_report(server);
  reader.leave();
  expect_clean_end(server, trial, SIGUSR2);
}

using Scenario = void (*)(const Trial&);

/// A process that pushes ones, of which the mean is one, too.
pid_t start_in_step(std::uint32_t learner, std::uint32_t count, Counters& counters) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  OpenLearner open({64, 64});
  for (std::uint32_t q = 0; q < count; ++q) {
    if (bellows_ps_begin(open.ps) != BELLOWS_PS_OK) _exit(1);
    for (std::size_t t = 0; t < 2; ++t)
      std::fill_n(static_cast<float*>(bellows_ps_gradient(open.ps, t)), 64, 1.0F);
    if (bellows_ps_push(open.ps, 1) != BELLOWS_PS_OK) _exit(2);
    ++counters[learner];
  }
  _exit(open.leave() == BELLOWS_PS_OK ? 0 : 3);
}

/// Learners in step, one of which joins while the other is at work.
void run_in_step(const Trial& trial) {
  Server server({"--threads=2", "--learners=6", "--mode=sync", kFirst}, WITH_POINTS,
                trial.environment());
  const Follower follower(trial);
  Counters counters;
  const std::uint32_t count = 60;
  const pid_t one = start_in_step(0, count, counters);
  cr_expect(eventually([&] { return counters[0] > 5 && server.worker() != 0; }), "%s",
            trial.text().c_str());
  const pid_t two = start_in_step(1, count, counters);
  cr_expect(eventually([&] { return counters[1] > 5 && server.worker() != 0; }), "%s",
            trial.text().c_str());
  kill(server.worker(), SIGKILL);
  for (const pid_t child : {one, two})
    cr_expect_eq(exit_code(child), 0, "%s", trial.text().c_str());
  OpenLearner reader({64, 64});
  cr_assert_eq(reader.code, BELLOWS_PS_OK, "%s: %s", trial.text().c_str(), reader.error().c_str());
  const auto weights = reader.pull();
  const auto steps = bellows_ps_updates(reader.ps);
  cr_expect(steps >= count && steps <= 2 * count, "%s", trial.text().c_str());
  for (const float weight : weights)
    cr_expect_eq(weight, -static_cast<float>(steps), "%s", trial.text().c_str());
  reader.leave();
  expect_clean_end(server, trial);
}

/// Functions of these classes of which no run has called any make the test blind.
void expect_all(const std::set<std::string>& points, const std::vector<std::string>& classes,
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
      // Not constructors and destructors, which have several names; and weights are skipped only
      // when a learner in step with others has taken back what it published.
      if ((symbol.rfind("_ZN7bellows2ps" + member, 0) != 0 &&
           symbol.rfind("_ZNK7bellows2ps" + member, 0) != 0) ||
          std::regex_search(symbol, std::regex("[CD][012]E|7skip_to")))
        continue;
      ++found;
      cr_expect(points.count("enter 1 " + symbol) != 0, "%s is never called here", name);
    }
  }
  pclose(symbols);
  cr_expect_gt(found, 0, "%s has no symbols", program.c_str());
}

/// A step, or what outlives a server; what is between two of them is before the second.
bool matters(const std::string& point) {
  return point.starts_with("enter") && (point.find("ShardSteps") != std::string::npos ||
                                        point.find("SeatKeeper") != std::string::npos ||
                                        point.find("LearnerSteps") != std::string::npos);
}

/// Without BELLOWS_LONG=1, at one of so many points outside the protocol.
void try_all(Scenario scenario, const std::set<std::string>& points, int some) {
  int number = 0, missed = 0;
  for (const std::string& point : points)
    for (const Act act : {Act::kill, Act::pause, Act::stop}) {
      ++number;
      const bool wanted = is_long() || (matters(point) && act == Act::kill) || number % some == 0;
      if (!wanted) continue;
      const Trial trial(point, act);
      scenario(trial);
      if (!trial.is_reached()) {
        ++missed;
        std::fprintf(stderr, "not reached: %s\n", trial.text().c_str());
      }
    }
  std::fprintf(stderr, "%zu points, %d not reached\n", points.size(), missed);
}

}  // namespace

Test(ps_points, of_a_learner, .timeout = 3600) {
  const Trial notes;
  run_learner(notes);
  const auto points = notes.noted();
  expect_all(points, {"LearnerSteps", "Learner"},
             std::filesystem::read_symlink("/proc/self/exe").string());
  try_all(run_learner, points, 20);
}

Test(ps_points, of_a_learner_whose_seat_is_given_to_another, .timeout = 60) { run_late(); }

Test(ps_points, of_the_server, .timeout = 3600) {
  const Trial notes, in_step;
  run_server(notes);
  run_in_step(in_step);
  const auto points = notes.noted();
  auto all = in_step.noted();
  all.insert(points.begin(), points.end());
  expect_all(all, {"ShardSteps", "ShardLoop", "Seats", "SeatKeeper", "PsServer"}, WITH_POINTS);
  try_all(run_server, points, 90);
}

Test(ps_points, of_the_server_with_learners_in_step, .timeout = 3600) {
  const Trial notes;
  run_in_step(notes);
  try_all(run_in_step, notes.noted(), 180);
}
