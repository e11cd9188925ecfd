// SPDX-License-Identifier: Apache-2.0
// What a member's program says to its agent by libbellows_pool, and is told; what it uses.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "common/fd.h"
#include "pool/include/bellows_pool.h"
#include "pool/member/gpu_meter.h"
#include "pool/member/listener.h"
#include "pool/member/program_lines.h"
#include "pool/member/usage.h"
#include "tests/unit/support/other_user.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::pool;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::steady_clock::time_point kNow{1h};

/// An agent's side of the socket, and the variable that names it.
class Agent {
 public:
  Agent() {
    loop_ = std::move(*EventLoop::make());
    const std::string path = dir_.path() + "/member";
    lines = std::move(*ProgramLines::open(*loop_, notes, path));
    setenv("BELLOWS_POOL_SOCKET", path.c_str(), 1);
  }
  /// Until it is so, or for five seconds.
  template <typename Condition>
  bool until(Condition condition) {
    const auto end = EventLoop::Clock::now() + 5s;
    while (EventLoop::Clock::now() < end) {
      if (condition()) return true;
      loop_->run_once(EventLoop::Clock::now() + 10ms);
    }
    return false;
  }

  MemberNotes notes;
  std::unique_ptr<ProgramLines> lines;

 private:
  ScratchDir dir_;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace

Test(pool_member, a_program_says_how_it_is, .timeout = 30) {
  Agent agent;
  cr_expect_eq(bellows_pool_metric("queue:length", 12.5), BELLOWS_POOL_OK);
  cr_expect_eq(bellows_pool_vote(-2), BELLOWS_POOL_OK);
  cr_expect_eq(bellows_pool_listen(8000), BELLOWS_POOL_OK);
  cr_expect_eq(bellows_pool_ready(), BELLOWS_POOL_OK);
  cr_assert(agent.until([&] { return agent.notes.ready; }));
  cr_assert(agent.until([&] { return agent.notes.vote_sequence == 1; }));
  cr_expect_eq(agent.notes.vote, -2);
  cr_assert(agent.until([&] { return agent.notes.port == 8000; }));
  cr_assert(agent.until([&] { return agent.notes.metrics.contains("queue:length"); }));
  cr_expect_float_eq(agent.notes.metrics.find("queue:length")->second.value, 12.5, 0);
}

Test(pool_member, a_program_is_told_to_drain_also_if_it_asks_later, .timeout = 30) {
  Agent agent;
  const int early = bellows_pool_watch();
  cr_assert_geq(early, 0);
  cr_assert(agent.until([&] { return agent.lines->watched(); }));
  agent.lines->tell_size(3);
  agent.lines->tell_drain(20);
  bellows_pool_order order;
  cr_assert_eq(bellows_pool_next_order(early, 5000, &order), BELLOWS_POOL_OK);
  cr_expect(!order.drain && order.size == 3);
  cr_assert_eq(bellows_pool_next_order(early, 5000, &order), BELLOWS_POOL_OK);
  cr_expect(order.drain && order.seconds == 20);
  cr_expect_eq(bellows_pool_next_order(early, 10, &order), BELLOWS_POOL_ERR_TIMEOUT);
  const int late = bellows_pool_watch();
  cr_assert(agent.until(
      [&] { return bellows_pool_next_order(late, 1, &order) == BELLOWS_POOL_OK && order.drain; }));
  agent.lines.reset();
  cr_expect_eq(bellows_pool_next_order(late, 5000, &order), BELLOWS_POOL_ERR_UNAVAILABLE);
  close(early);
  close(late);
}

Test(pool_member, without_an_agent_a_program_is_told_so, .timeout = 30) {
  unsetenv("BELLOWS_POOL_SOCKET");
  cr_expect_eq(bellows_pool_ready(), BELLOWS_POOL_ERR_UNAVAILABLE);
  setenv("BELLOWS_POOL_SOCKET", "/nowhere/at/all", 1);
  cr_expect_eq(bellows_pool_metric("a", 1), BELLOWS_POOL_ERR_UNAVAILABLE);
  cr_expect_eq(bellows_pool_watch(), BELLOWS_POOL_ERR_UNAVAILABLE);
}

Test(pool_member, wrong_arguments_are_refused) {
  cr_expect_eq(bellows_pool_metric("", 1), BELLOWS_POOL_ERR_INVALID);
  cr_expect_eq(bellows_pool_metric("two words", 1), BELLOWS_POOL_ERR_INVALID);
  cr_expect_eq(bellows_pool_metric(nullptr, 1), BELLOWS_POOL_ERR_INVALID);
  cr_expect_eq(bellows_pool_metric(std::string(129, 'a').c_str(), 1), BELLOWS_POOL_ERR_INVALID);
  cr_expect_eq(bellows_pool_metric("a", NAN), BELLOWS_POOL_ERR_INVALID);
  cr_expect_eq(bellows_pool_metric("a", INFINITY), BELLOWS_POOL_ERR_INVALID);
  cr_expect_eq(bellows_pool_listen(0), BELLOWS_POOL_ERR_INVALID);
}

Test(pool_member, hostile_lines_change_nothing) {
  MemberNotes notes;
  for (const char* line : {"",
                           " ",
                           "ready now",
                           "metric",
                           "metric a",
                           "metric a b",
                           "metric a nan",
                           "metric a inf",
                           "metric a 1e999",
                           "metric a\nb 1",
                           "metric a 1 2",
                           "vote",
                           "vote x",
                           "vote 99999999999",
                           "vote 1000001",
                           "vote 1.5",
                           "listen 0",
                           "listen 65536",
                           "listen -1",
                           "drain 5",
                           "size 2",
                           "metric a 0x10"})
    cr_expect_not(notes.take(line, kNow), "%s", line);
  cr_expect(notes.metrics.empty() && notes.port == 0 && !notes.ready && notes.vote_sequence == 0);
}

namespace {

/// One at a port of its own choice, of that user.
Fd listener_of(uid_t user, std::uint16_t& port, int family) {
  cr_assert_eq(seteuid(user), 0);
  Fd listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  cr_assert_eq(seteuid(0), 0);
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  address.sin6_family = static_cast<sa_family_t>(family);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  cr_assert_eq(bind(listener.get(), any, family == AF_INET ? sizeof(sockaddr_in) : size), 0);
  cr_assert_eq(listen(listener.get(), 1), 0);
  cr_assert_eq(getsockname(listener.get(), any, &size), 0);
  port = ntohs(address.sin6_port);
  return listener;
}

}  // namespace

Test(pool_member, another_user_at_its_port_is_found) {
  if (geteuid() != 0) cr_skip_test("only root can act as another user");
  for (const int family : {AF_INET, AF_INET6}) {
    std::uint16_t own_port = 0, port = 0;
    const Fd own = listener_of(0, own_port, family);
    cr_expect_not(stranger_at(own_port));
    Fd other = listener_of(kAlice, port, family);
    const auto stranger = stranger_at(port);
    cr_assert(stranger.has_value());
    cr_expect_eq(*stranger, kAlice);
    other = Fd();
    cr_expect_not(stranger_at(port));
  }
}

Test(pool_member, only_who_listens_at_that_very_port_is_a_stranger) {
  const std::string head =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";
  const auto line = [](const char* local, const char* state, const char* uid) {
    return fmt::format(
        "   0: {} 00000000:0000 {} 00000000:00000000 00:00000000 00000000  {}  0 1 1\n", local,
        state, uid);
  };
  const auto found = [&](const std::string& lines) {
    return stranger_in(head + lines, 8080, 1000);
  };
  cr_expect_eq(*found(line("0100007F:1F90", "0A", "1001")), 1001u);
  cr_expect_eq(*found(line("0100007F:1F90", "0A", "1000") + line("00000000:1F90", "0A", "7")), 7u);
  cr_expect_not(found(line("0100007F:1F90", "0A", "1000")));
  cr_expect_not(found(line("0100007F:1F90", "0A", "0")), "root may do anything");
  cr_expect_not(found(line("0100007F:1F90", "01", "1001")), "a connection");
  cr_expect_not(found(line("0100007F:1F91", "0A", "1001")));
  cr_expect_not(found(line("0100007F:1F90", "0A", "x")));
  cr_expect_not(found("0100007F:1F90"));
}

Test(pool_member, metrics_are_so_many_and_not_more) {
  MemberNotes notes;
  for (std::size_t i = 0; i < 2 * MemberNotes::kMostMetrics; ++i)
    cr_expect_eq(notes.note("m" + std::to_string(i), 1, kNow), i < MemberNotes::kMostMetrics);
  cr_expect(notes.note("m0", 2, kNow), "those that are there still change");
  cr_expect_eq(notes.metrics.size(), MemberNotes::kMostMetrics);
}

Test(pool_member, the_cpu_time_of_a_program_and_what_it_starts_is_counted, .timeout = 60) {
  const pid_t shell = fork();
  if (shell == 0) {
    execl("/bin/sh", "sh", "-c", "while :; do :; done & wait", nullptr);
    _exit(127);
  }
  Usage usage(1, std::uint64_t{1} << 40);
  const auto end = Usage::Clock::now() + 30s;
  usage.look(shell, Usage::Clock::now());
  cr_expect_not(usage.cpu().has_value(), "one look tells nothing");
  do {
    usleep(200'000);
    usage.look(shell, Usage::Clock::now());
  } while (usage.cpu().value_or(0) < 0.1 && Usage::Clock::now() < end);
  cr_expect_geq(usage.cpu().value_or(0), 0.1);
  cr_expect_leq(usage.cpu().value_or(9), 1.5);
  cr_expect_gt(usage.memory().value_or(0), 0);
  kill(shell, SIGSTOP);
  const auto tree = usage_of(shell);
  cr_assert(tree);
  cr_expect_gt(tree->cpu_seconds, 0.0);
  cr_assert_eq(system(("pkill -KILL -P " + std::to_string(shell)).c_str()), 0);
  kill(shell, SIGKILL);
  waitpid(shell, nullptr, 0);
  usage.look(shell, Usage::Clock::now());
  cr_expect_not(usage.cpu().has_value());
}

namespace {

/// A library with the functions of NVIDIA's. GPU 0 computes half of the time, GPU-b all of it, and
/// there is no other.
constexpr const char* kStandIn = R"(
#include <unistd.h>
#define STUCK 1000
struct use { unsigned gpu, memory; };
static int gpus[2] = {50, 100};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  *out = &gpus[0];
  return index == 0 ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  *out = &gpus[1];
  return uuid[4] == 'b' ? 0 : 2;
}
int nvmlDeviceGetUtilizationRates(void* gpu, struct use* out) {
  if (*(int*)gpu == WRONG) return 3;
  while (WRONG == STUCK) pause();
  out->gpu = *(int*)gpu;
  return 0;
}
)";

constexpr int kStuck = 1000;

/// Its file. `wrong`: of a GPU that is so busy, nothing can be said; kStuck: it never answers.
std::string stand_in(const std::string& dir, int wrong = -1) {
  cr_assert(replace_file(dir + "/nvml.c", kStandIn, 0600).ok());
  const std::string library = fmt::format("{}/nvml{}.so", dir, wrong);
  const std::string command =
      fmt::format("{} -shared -fPIC -DWRONG={} -o {} {}/nvml.c", COMPILER, wrong, library, dir);
  cr_assert_eq(std::system(command.c_str()), 0);
  return library;
}

std::optional<double> busy(const std::string& devices, const std::string& library) {
  GpuMeter meter(devices, library);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end) {
    if (const auto reading = meter.take()) return reading->busy;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return std::nullopt;
}

}  // namespace

Test(pool_member, gpus_are_measured_where_the_library_is, .timeout = 60) {
  const ScratchDir dir;
  const std::string library = stand_in(dir.path());
  cr_expect(busy("0", library) == 0.5);
  cr_expect(busy("GPU-b", library) == 1.0);
  cr_expect(busy("0,GPU-b", library) == 0.75);
  cr_expect(busy("0,7,GPU-b", library) == 0.5, "what is behind a wrong one is not visible");
}

Test(pool_member, gpus_are_missing_where_something_is_not_known, .timeout = 60) {
  const ScratchDir dir;
  const std::string library = stand_in(dir.path());
  cr_expect(!busy("", library));
  cr_expect(!busy("MIG-1", library));
  cr_expect(!busy("0", dir.path() + "/none.so"));
  cr_expect(!busy("0,GPU-b", stand_in(dir.path(), 100)), "half of them is not all");
}

Test(pool_member, a_driver_that_is_stuck_holds_nobody_up, .timeout = 60) {
  const ScratchDir dir;
  const auto begin = std::chrono::steady_clock::now();
  cr_expect(!busy("0", stand_in(dir.path(), kStuck)));
  cr_expect_lt((std::chrono::steady_clock::now() - begin).count(),
               std::chrono::nanoseconds(std::chrono::seconds(20)).count());
}
