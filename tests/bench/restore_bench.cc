// SPDX-License-Identifier: Apache-2.0
// Times restores of a rank whose predecessor died, from the memory of the agent that lives on,
// against one memcpy of the same bytes: restore_bench DIR MEGABYTES PAIRS. Both fill an array that
// the program has touched before. Prints lines as save_bench does.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/include/bellows.h"
#include "checkpoint/protocol/coordinator.h"
#include "tests/bench/timed.h"
#include "tests/unit/checkpoint/agent_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

[[noreturn]] void fail(std::string_view text) {
  std::fprintf(stderr, "restore_bench: %.*s\n", static_cast<int>(text.size()), text.data());
  _exit(1);
}

char byte_of(std::size_t at, std::uint64_t step) { return static_cast<char>(at * step >> 7); }

// The life of one rank: restores, but for the first attempt, saves the next step and dies.
[[noreturn]] void run_rank(std::size_t bytes, std::uint64_t last, bool shows) {
  std::vector<char> data(bytes, 1), other(bytes, 2);
  bellows_t* b = nullptr;
  const auto check = [&](int code) {
    if (code < 0) fail(b ? bellows_error(b) : "out of memory");
  };
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.rank = 0;
  config.world = 1;
  check(bellows_init(&config, &b));
  const std::uint64_t count = bytes;
  check(bellows_register(b, "data", BELLOWS_U8, 1, &count, BELLOWS_SHARDED, 0, count, data.data()));
  const double copied = timed([&] { std::memcpy(data.data(), other.data(), bytes); });
  std::uint64_t step = 0;
  const double restored = timed([&] { check(bellows_restore(b, &step)); });
  if (step != last) fail("another step was restored");
  for (std::size_t i = 0; last > 0 && i < bytes; i += 997) {
    if (data[i] != byte_of(i, last)) fail("other bytes were restored");
  }
  if (shows) {
    std::printf("{\"kind\": \"memory\", \"bytes\": %zu, \"against_s\": [%.6f], \"ours_s\": %.6f}\n",
                bytes, copied, restored);
    std::fflush(stdout);
  }
  for (std::size_t i = 0; i < bytes; ++i) data[i] = byte_of(i, last + 1);
  check(bellows_save(b, last + 1));
  _exit(0);
}

/// The agent of a job, and its launcher.
class Job : public AgentPipes {
 public:
  explicit Job(const std::string& dir) : dir_(dir) {
    agent_ = start_agent("n1", dir + "/socket");
    expect<event::Hello>();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    to_.reset();
    waitpid(agent_, nullptr, 0);
  }

  void run_attempt(int number, std::size_t bytes, bool shows) {
    const command::Hello hello = hello_for(dir_ + "/checkpoints", number, {{"n1", {0}}});
    setenv("BELLOWS_ATTEMPT", hello.attempt.c_str(), 1);
    tell(hello);
    tell(command::Find{});
    const auto step = expect<event::Found>().step;
    tell(command::Restore{step});
    expect<event::Ready>();
    const pid_t rank = fork();
    if (rank == 0) run_rank(bytes, step.value_or(0), shows);
    Coordinator coordinator(1);
    while (auto event = next()) {
      for (const Command& command : coordinator.handle(event->body)) tell(command);
      const auto* said = std::get_if<event::Rank>(&event->body);
      if (said && said->state == event::Rank::State::lost) break;
    }
    int status = 0;
    waitpid(rank, &status, 0);
    if (status != 0) fail("a rank failed");
  }

 private:
  template <typename Body>
  Body expect() {
    auto event = await<Body>();
    if (!event) fail("the agent does not answer");
    return *event;
  }

  std::string dir_;
  pid_t agent_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: restore_bench DIR MEGABYTES PAIRS");
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10) << 20;
  const int pairs = std::atoi(argv[3]);
  Job job(argv[1]);
  // The first has nothing to restore, the second pays for what is made once.
  for (int i = -2; i < pairs; ++i) job.run_attempt(i + 3, bytes, i >= 0);
  return 0;
}
