// SPDX-License-Identifier: Apache-2.0
// An update of all parameters, as a learner sees it: gradient pushed and applied, new weights
// pulled. Prints the microseconds of each, one a line, of the first of several learners.
//
//   ps_bench ours KIB COUNT                with the parameter server of BELLOWS_PS_SOCKET
//   ps_bench rows KIB COUNT ROWS           of so many rows of a matrix, of 64 elements each
//   ps_bench naive KIB COUNT LEARNERS      a shared memory into which each learner copies its
//   gradient, a process that
//                                          adds it to the weights in place, and a copy of the
//                                          weights out
//   ps_bench allreduce KIB COUNT LEARNERS  the scheme of DeepSpeed on CPUs: copy in, wait, each
//   sums a part, wait, copy
//                                          out, with two buffers in turn so that who is ahead need
//                                          not wait a third time
#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "paramserver/include/bellows_ps.h"
#include "tests/bench/timed.h"

namespace {

constexpr int kWarm = 8;
constexpr unsigned kMost = 16;

[[noreturn]] void fail(const char* what) {
  fmt::print(stderr, "ps_bench: {}\n", what);
  std::exit(1);
}

void* shared(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("there is no memory");
  std::memset(memory, 0, bytes);
  return memory;
}

/// Between two looks at a word. Not for ever without giving the processor away: there may be more
/// processes than processors.
void rest(unsigned looks) {
  if (looks % 1024 == 1023)
    sched_yield();
  else
    __builtin_ia32_pause();
}

void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  for (unsigned i = 0; word.load(std::memory_order_acquire) != value; ++i) rest(i);
}

/// Until it is this number or a later one.
void wait_past(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  for (unsigned i = 0; static_cast<std::int32_t>(word.load(std::memory_order_acquire) - value) < 0;
       ++i)
    rest(i);
}

void print(const std::vector<double>& all) {
  for (std::size_t i = kWarm; i < all.size(); ++i) fmt::print("{:.3f}\n", all[i] * 1e6);
}

constexpr std::uint64_t kWidth = 64;

void begin(bellows_ps_t* ps, const std::vector<std::uint64_t>& rows) {
  if (bellows_ps_begin(ps) != BELLOWS_PS_OK ||
      (!rows.empty() && bellows_ps_gradient_rows(ps, 0, rows.data(), rows.size()) != BELLOWS_PS_OK))
    fail(bellows_ps_error(ps));
}

/// Without rows, of all that there is.
void ours(std::size_t floats, int count, unsigned number_of_rows) {
  const std::vector<float> zeroes(floats);
  const float* initial = zeroes.data();
  const std::uint64_t elements = floats;
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  if (number_of_rows > 0) config.width = &kWidth;
  std::vector<std::uint64_t> rows;
  for (unsigned i = 0; i < number_of_rows; ++i)
    rows.push_back(floats / kWidth / number_of_rows * i);
  bellows_ps_t* ps = nullptr;
  if (bellows_ps_join(&config, &elements, &initial, 1, &ps) != BELLOWS_PS_OK)
    fail(bellows_ps_error(ps));
  // Both payloads, as a program that trains has written them before.
  for (int i = 0; i < 2; ++i) {
    begin(ps, rows);
    std::memset(bellows_ps_gradient(ps, 0), 0,
                sizeof(float) * (rows.empty() ? floats : rows.size() * kWidth));
    bellows_ps_push(ps, 1);
  }
  std::vector<double> all;
  for (int i = 0; i < count + kWarm; ++i)
    all.push_back(timed([&] {
      begin(ps, rows);
      if (bellows_ps_push(ps, 1) != BELLOWS_PS_OK || bellows_ps_drain(ps) != BELLOWS_PS_OK ||
          bellows_ps_pull(ps) != BELLOWS_PS_OK)
        fail(bellows_ps_error(ps));
    }));
  print(all);
  if (bellows_ps_leave(ps) != BELLOWS_PS_OK) fail("leaving failed");
}

struct Flags {
  struct alignas(128) Flag {
    std::atomic<std::uint32_t> word;
  };
  Flag in[kMost];
  Flag out[kMost];
};

/// Runs `body` in so many processes, of which the first is this one.
template <typename Body>
void in_processes(unsigned count, Body body) {
  std::vector<pid_t> children;
  for (unsigned rank = 1; rank < count; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      body(rank);
      _exit(0);
    }
    children.push_back(child);
  }
  body(0);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
}

void naive(std::size_t floats, int count, unsigned learners) {
  auto* const flags = static_cast<Flags*>(shared(sizeof(Flags)));
  auto* const weights = static_cast<float*>(shared(floats * sizeof(float)));
  auto* const gradients = static_cast<float*>(shared(learners * floats * sizeof(float)));
  const pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned l = 0;; l = (l + 1) % learners) {
      if (flags->in[l].word.load(std::memory_order_acquire) == 0) continue;
      const float* gradient = gradients + l * floats;
      for (std::size_t i = 0; i < floats; ++i) weights[i] -= 0.01f * gradient[i];
      flags->in[l].word.store(0, std::memory_order_release);
    }
  }
  in_processes(learners, [&](unsigned rank) {
    std::vector<float> own(floats), gradient(floats);
    std::vector<double> all;
    for (int i = 0; i < count + kWarm; ++i)
      all.push_back(timed([&] {
        std::memcpy(gradients + rank * floats, gradient.data(), floats * sizeof(float));
        flags->in[rank].word.store(1, std::memory_order_release);
        wait_for(flags->in[rank].word, 0);
        std::memcpy(own.data(), weights, floats * sizeof(float));
      }));
    if (rank == 0) print(all);
  });
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
}

void allreduce(std::size_t floats, int count, unsigned learners) {
  auto* const flags = static_cast<Flags*>(shared(sizeof(Flags)));
  auto* const sums = static_cast<float*>(shared(2 * floats * sizeof(float)));
  auto* const buffers = static_cast<float*>(shared(2 * learners * floats * sizeof(float)));
  in_processes(learners, [&](unsigned rank) {
    std::vector<float> own(floats);
    std::vector<double> all;
    const std::size_t begin = floats * rank / learners, end = floats * (rank + 1) / learners;
    for (int i = 0; i < count + kWarm; ++i)
      all.push_back(timed([&] {
        const auto turn = static_cast<std::uint32_t>(i + 1);
        float* const of_turn = buffers + i % 2 * learners * floats;
        float* const sum = sums + i % 2 * floats;
        std::memcpy(of_turn + rank * floats, own.data(), floats * sizeof(float));
        flags->in[rank].word.store(turn, std::memory_order_release);
        // Nobody is two turns ahead: that takes all of this turn's parts.
        for (unsigned l = 0; l < learners; ++l) wait_past(flags->in[l].word, turn);
        for (std::size_t k = begin; k < end; ++k) {
          float s = of_turn[k];
          for (unsigned l = 1; l < learners; ++l) s += of_turn[l * floats + k];
          sum[k] = s;
        }
        flags->out[rank].word.store(turn, std::memory_order_release);
        for (unsigned l = 0; l < learners; ++l) wait_past(flags->out[l].word, turn);
        std::memcpy(own.data(), sum, floats * sizeof(float));
      }));
    if (rank == 0) print(all);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (argc < 4 || (argc < 5 && how != "ours"))
    fail("usage: ps_bench ours|rows|naive|allreduce KIB COUNT [ROWS|LEARNERS]");
  const std::size_t floats = std::strtoull(argv[2], nullptr, 10) * 256;
  const int count = std::atoi(argv[3]);
  // Of learners, or of rows.
  const unsigned number = argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 1;
  const bool with_rows = how == "rows" && number <= floats / kWidth;
  if (floats == 0 || count < 1 || number < 1 || (number > kMost && !with_rows))
    fail("there is nothing to measure");
  if (how == "ours") ours(floats, count, 0);
  if (with_rows) ours(floats, count, number);
  if (how == "naive") naive(floats, count, number);
  if (how == "allreduce") allreduce(floats, count, number);
  return 0;
}
