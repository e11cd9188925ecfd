// SPDX-License-Identifier: Apache-2.0
/// A caller in C++ for the tests' pools: object_caller POOL calls | load THREADS SECONDS. Not a
/// test.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>

#include "pool/include/bellows_object.h"

using namespace bellows::pool;

namespace {

const char* word(CallOutcome outcome) {
  constexpr const char* kWords[] = {"raised",       "refused",   "unavailable",
                                    "may_have_run", "timed_out", "mistyped"};
  return kWords[static_cast<int>(outcome)];
}

void say(const char* what, const Failure& failure) {
  std::printf("%s %s %s: %s\n", what, word(failure.outcome), failure.type.c_str(),
              failure.text.c_str());
}

/// One of each kind, whose answers the test knows.
int calls(const Stub& stub) {
  const std::map<std::string, std::vector<int>> sent{{"a", {1, -2}}, {"b", {}}};
  const auto back = stub.call<std::map<std::string, std::vector<int>>>("echo", sent);
  std::printf("echo %s\n", back && *back == sent ? "same" : "other");
  auto text = stub.call<std::string>("echo", "ü");
  std::printf("text %s\n", text ? text->c_str() : text.failure().text.c_str());
  const auto bytes = stub.call<Bytes>("echo", Bytes{std::string("\0\xff", 2)});
  std::printf("bytes %s\n", bytes && *bytes == Bytes{std::string("\0\xff", 2)} ? "same" : "other");
  for (const char* const kind : {"key", "known", "odd"}) {
    const auto failed = stub.call<void>("fail", kind);
    if (!failed) say("fail", failed.failure());
  }
  say("mistyped", stub.call<int>("echo", "text").failure());
  say("nothing", stub.call<int>("nothing").failure());
  say("within", stub.within(std::chrono::milliseconds(200)).call<int>("slow", 5, "held").failure());
  auto stream = stub.stream<int>("count", 4, 0);
  for (int item = 0; stream.next(&item);) std::printf("item %d\n", item);
  std::printf("stream %s\n", stream.failure() ? stream.failure()->text.c_str() : "complete");
  auto left = stub.stream<int>("count", 1000000, 0.01);
  int item = -1;
  std::printf("left %d\n", left.next(&item) ? item : -1);
  return 0;
}

/// Calls until the time is over; a line for the end of each.
int load(const Stub& stub, int threads, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::mutex printing;
  const auto work = [&](int thread) {
    for (int number = 0; std::chrono::steady_clock::now() < end; ++number) {
      const std::string name = std::to_string(thread) + "-" + std::to_string(number);
      for (const char* const method : {"echo", "add"}) {
        const auto answer = stub.call<std::string>(method, name);
        const char* const how = !answer           ? word(answer.failure().outcome)
                                : *answer == name ? "done"
                                                  : "wrong";
        const std::lock_guard lock(printing);
        std::printf("%s %s %s\n", method, how, name.c_str());
      }
    }
  };
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread) all.emplace_back(work, thread);
  for (auto& one : all) one.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto stub = Stub::connect(argv[1]);
  if (!stub) {
    say("connect", stub.failure());
    return 1;
  }
  if (std::string_view(argv[2]) == "calls") return calls(*stub);
  return argc == 5 ? load(*stub, std::atoi(argv[3]), std::atof(argv[4])) : 2;
}
