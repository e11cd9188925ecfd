// SPDX-License-Identifier: Apache-2.0
// Which of HAProxy's slots has which member, and a real HAProxy that is told.
#include <criterion/criterion.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <thread>

#include "common/child.h"
#include "common/listen_at.h"
#include "pool/proxy/proxy_link.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::pool;
using namespace std::chrono_literals;

namespace {

using Commands = std::vector<std::string>;

ProxiedMember member(std::uint16_t port, bool drains = false) {
  return {.ip = "10.0.0.1", .port = port, .drains = drains};
}

constexpr const char* kHeader =
    "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_port\n";

/// HAProxy with a configuration of ours, as the keeper starts it.
class Proxy {
 public:
  Proxy() {
    options.runtime_socket = dir_.path() + "/socket";
    cr_assert(ProxyLink(options, config(), 4).begin().ok());
    listener_ = std::move(*listen_on(0));
    start();
  }
  std::string config() const { return dir_.path() + "/haproxy.cfg"; }
  void start() {
    const char* const usual = "/usr/sbin/haproxy";
    auto child = Child::start(
        {.command = {access(usual, X_OK) == 0 ? usual : "haproxy", "-db", "-f", config()},
         .environment = {"PATH=/usr/sbin:/usr/bin"},
         .in_fd = listener_.get(),
         .death_signal = SIGKILL});
    cr_assert(child, "%s", child ? "" : child.error().text.c_str());
    child_ = std::move(*child);
  }
  void stop() { child_.reset(); }
  /// Until HAProxy has what it is told.
  Status set(ProxyLink& link, const std::vector<ProxiedMember>& members) const {
    const auto end = std::chrono::steady_clock::now() + 10s;
    for (;;) {
      const Status done = link.set(members);
      if (done || std::chrono::steady_clock::now() > end) return done;
      std::this_thread::sleep_for(20ms);
    }
  }
  ProxyOptions options;

 private:
  ScratchDir dir_;
  Fd listener_;
  std::optional<Child> child_;
};

}  // namespace

Test(pool_proxy, new_members_take_free_slots) {
  ProxySlots slots(3);
  cr_expect(
      slots.change_to({member(1), member(2)}) ==
      Commands({"set server members/m1 addr 10.0.0.1 port 1", "set server members/m1 state ready",
                "set server members/m1 health up", "set server members/m2 addr 10.0.0.1 port 2",
                "set server members/m2 state ready", "set server members/m2 health up"}));
  cr_expect(slots.change_to({member(2), member(1)}).empty(), "their order says nothing");
}

Test(pool_proxy, a_member_drains_in_its_slot_and_leaves_it) {
  ProxySlots slots(2);
  (void)slots.change_to({member(1), member(2)});
  cr_expect(slots.change_to({member(1, true), member(2)}) ==
            Commands({"set server members/m1 state drain"}));
  cr_expect(slots.change_to({member(2)}) == Commands({"set server members/m1 state maint"}));
  cr_expect(slots.change_to({member(2)}).empty());
}

Test(pool_proxy, a_slot_goes_to_another_member_only_once_it_is_empty) {
  ProxySlots slots(1);
  (void)slots.change_to({member(1)});
  const Commands commands = slots.change_to({member(2)});
  cr_assert_eq(commands.size(), 4);
  cr_expect_eq(commands[0], "set server members/m1 state maint");
  cr_expect_eq(commands[1], "set server members/m1 addr 10.0.0.1 port 2");
}

Test(pool_proxy, more_members_than_slots_are_left_out) {
  ProxySlots slots(1);
  cr_expect_eq(slots.change_to({member(1), member(2)}).size(), 3);
  cr_expect(slots.change_to({member(1), member(2)}).empty());
}

Test(pool_proxy, what_haproxy_has_is_read_from_its_own_words) {
  const auto slots = ProxySlots::parse(std::string(kHeader) +
                                           "3 members 1 m1 10.0.0.1 2 4 80\n"
                                           "3 members 2 m2 10.0.0.2 2 12 81\n"
                                           "3 members 3 m3 0.0.0.0 0 5 1\n"
                                           "4 other 1 m4 10.0.0.9 2 0 80\n\n",
                                       4);
  cr_assert(slots);
  cr_expect(slots->slots()[0] == member(80));
  cr_assert(slots->slots()[1]);
  cr_expect(slots->slots()[1]->drains);
  cr_expect_not(slots->slots()[2]);
  cr_expect_not(slots->slots()[3]);
}

Test(pool_proxy, other_words_are_refused) {
  for (const char* line : {"3 members 1 m1 10.0.0.1 2 4", "3 members 1 m0 10.0.0.1 2 4 80",
                           "3 members 1 m5 10.0.0.1 2 4 80", "3 members 1 m 10.0.0.1 2 4 80",
                           "3 members 1 m1 10.0.0.1 2 4 65536", "3 members 1 m1 10.0.0.1 2 x 80"})
    cr_expect_not(ProxySlots::parse(std::string(kHeader) + line + "\n", 4), "%s", line);
  for (const char* state : {"", "1\n", "Unknown command\n", "1\n# be_id be_name\n"})
    cr_expect_not(ProxySlots::parse(state, 4), "%s", state);
}

Test(pool_proxy, a_haproxy_has_the_members_that_it_is_told, .timeout = 60) {
  Proxy proxy;
  ProxyLink link(proxy.options, proxy.config(), 4);
  cr_assert(proxy.set(link, {member(1), member(2)}).ok());
  cr_assert(proxy.set(link, {member(1, true), member(3)}).ok());
  const auto state = ask_proxy(proxy.options.runtime_socket, "show servers state members");
  cr_assert(state);
  const auto slots = ProxySlots::parse(*state, 4);
  cr_assert(slots);
  cr_expect(slots->slots()[0] == member(1, true));
  cr_expect(slots->slots()[1] == member(3));
}

Test(pool_proxy, a_haproxy_that_starts_again_has_those_that_it_had, .timeout = 60) {
  Proxy proxy;
  ProxyLink link(proxy.options, proxy.config(), 4);
  cr_assert(proxy.set(link, {member(1), member(2), member(3, true)}).ok());
  proxy.stop();
  proxy.start();
  Result<std::string> state = Error{ErrorKind::unavailable, ""};
  for (int i = 0; !state && i < 500; ++i) {
    state = ask_proxy(proxy.options.runtime_socket, "show servers state members");
    if (!state) std::this_thread::sleep_for(20ms);
  }
  cr_assert(state);
  const auto slots = ProxySlots::parse(*state, 4);
  cr_assert(slots);
  cr_expect(slots->slots()[0] == member(1));
  cr_expect(slots->slots()[1] == member(2));
  cr_expect_not(slots->slots()[2], "what drained has no calls any more");
}
