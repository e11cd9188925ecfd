// SPDX-License-Identifier: Apache-2.0
/// A member of the tests' pools in C++, as pool_member.py is one in Python. Not a test.

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "pool/include/bellows_object.h"
#include "pool/include/bellows_pool.h"

using namespace bellows::pool;

namespace {

int ledger = -1;

void note(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(ledger, line.data(), line.size()) < 0) std::abort();
}

void rest(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int slow(double seconds, const std::string& name) {
  note(name);
  rest(seconds);
  return ::getpid();
}

void count(const Sink<int>& sink, int numbers, double pause) {
  for (int number = 0; number < numbers && sink(number); ++number) rest(pause);
}

void fail(const std::string& kind) {
  if (kind == "known") throw Raised("Known", "too far");
  if (kind == "key") throw Raised("KeyError", "nothing");
  if (kind == "value") throw std::invalid_argument("no such value");
  throw 1;
}

}  // namespace

int main() {
  ledger = ::open(std::getenv("LEDGER"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const char* const limit = std::getenv("LIMIT");
  Server server({.port = 0, .limit = limit ? static_cast<unsigned>(std::atoi(limit)) : 64});
  server.add(
      "echo", [](Value value) { return value; }, Runs::again);
  server.add("who", [] { return ::getpid(); });
  server.add("add", [](std::string name) {
    note(name);
    rest(0.002);
    return name;
  });
  server.add("slow", slow);
  server.add("slow_again", slow, Runs::again);
  server.add("fail", fail);
  server.add("total", [](std::vector<double> all, std::map<std::string, int> more) {
    double sum = 0;
    for (const double one : all) sum += one;
    for (const auto& [name, one] : more) sum += one;
    return sum;
  });
  server.add_stream("count", count);
  server.add_stream("count_again", count, Runs::again);
  server.on_drain([](unsigned seconds) { note("drain-" + std::to_string(seconds)); });
  server.change_pool_size([] { return std::getenv("WISH") ? std::atoi(std::getenv("WISH")) : 0; });
  const auto served = server.serve();
  return served ? 0 : 1;
}
