// SPDX-License-Identifier: Apache-2.0
/// What coordinate.py is, in C++: named locks with fencing tokens, and groups with leases. Members
/// of both kinds can be in one pool, since their fields have the same names and the same form.

#include <chrono>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "examples/pool/fields.h"
#include "pool/include/bellows_object.h"

namespace {

using bellows::pool::Runs;
using bellows::pool::Sink;

/// In MessagePack a map in this order, as it is in Python.
struct Lock {
  std::string holder;  // "": nobody
  std::int64_t token = 0;
  double until = 0;
  MSGPACK_DEFINE_MAP(holder, token, until)
};
using Leases = std::map<std::string, double>;
using Names = std::vector<std::string>;

/// By the clock of this node, in seconds; coordinate.py says what that means.
double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Leases alive(std::optional<Leases> group) {
  Leases left = std::move(group).value_or(Leases());
  std::erase_if(left, [end = now()](const auto& member) { return member.second <= end; });
  return left;
}

class Coordinator {
 public:
  /// The token if the holder has the lock for so many seconds from now, nothing if another has it.
  /// Who has it already keeps its token.
  std::optional<std::int64_t> acquire(const std::string& name, const std::string& holder,
                                      double seconds) {
    while (true) {
      const auto old = locks_.get<Lock>(name);
      Lock lock = old.value_or(Lock());
      const bool is_free = lock.holder.empty() || lock.until <= now();
      // Those who wait only read, and so don't hinder the holder.
      if (!is_free && lock.holder != holder) return std::nullopt;
      if (is_free) ++lock.token;
      lock.holder = holder;
      lock.until = now() + seconds;
      if (locks_.compare_and_set(name, old, lock)) return lock.token;
    }
  }
  /// Gives the lock back, unless somebody else has it since.
  void release(const std::string& name, std::int64_t token) {
    locks_.update<Lock>(name, [token](const std::optional<Lock>& held) {
      const Lock lock = held.value_or(Lock());
      return lock.token == token ? Lock{.holder = "", .token = token} : lock;
    });
  }
  /// In the group for so many seconds from now; called again to stay in it.
  void join(const std::string& group, const std::string& member, double seconds) {
    groups_.update<Leases>(group, [&](const std::optional<Leases>& held) {
      Leases left = alive(held);
      left[member] = now() + seconds;
      return left;
    });
  }
  void leave(const std::string& group, const std::string& member) {
    groups_.update<Leases>(group, [&](const std::optional<Leases>& held) {
      Leases left = alive(held);
      left.erase(member);
      return left;
    });
  }
  Names members(const std::string& group) {
    Names names;
    for (const auto& [name, until] : alive(groups_.get<Leases>(group))) names.push_back(name);
    return names;
  }
  /// Who is in the group, now and after each change, until the caller's time is over.
  void watch(const Sink<Names>& sink, const std::string& group) {
    std::optional<Names> said;
    while (sink.is_wanted()) {
      Names names = members(group);
      if (names != said && !sink(names)) return;
      said = std::move(names);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

 private:
  example::Fields locks_{"example-locks"};
  example::Fields groups_{"example-groups"};
};

}  // namespace

int main() {
  Coordinator it;
  bellows::pool::Server server;
  server.add(
      "acquire",
      [&it](const std::string& name, const std::string& holder, double seconds) {
        return it.acquire(name, holder, seconds);
      },
      Runs::again);
  server.add(
      "release", [&it](const std::string& name, std::int64_t token) { it.release(name, token); },
      Runs::again);
  server.add(
      "join",
      [&it](const std::string& group, const std::string& member, double seconds) {
        it.join(group, member, seconds);
      },
      Runs::again);
  server.add(
      "leave",
      [&it](const std::string& group, const std::string& member) { it.leave(group, member); },
      Runs::again);
  server.add(
      "members", [&it](const std::string& group) { return it.members(group); }, Runs::again);
  server.add_stream(
      "watch", [&it](const Sink<Names>& sink, const std::string& group) { it.watch(sink, group); },
      Runs::again);
  const auto served = server.serve();
  if (served) return 0;
  std::cerr << "coordinate: " << served.failure().text << "\n";
  return 1;
}
