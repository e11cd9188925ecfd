// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <memory>
#include <string>

#include "jobsubmit/slurmctld/query.h"
#include "tests/unit/jobsubmit/policy_support.h"

using namespace bellows;

namespace {

PolicyWatcher::State state_of(const std::string& text) {
  PolicyWatcher::State state;
  state.policy = std::make_shared<const Policy>(good(text));
  state.people = std::make_shared<const People>();
  state.since = 1700000000;
  return state;
}

const std::string kTwo = "version: 1\ntenants: {a: {}, b: {}}\n";

}  // namespace

Test(query, key, .timeout = 10) {
  const char* const asked[] = {"OTHER=1", nullptr, "BELLOWS_QUERY=status"};
  cr_expect(asks_status(asked, 3));
  cr_expect(not asks_status(asked, 2), "only what is counted");
  cr_expect(not asks_status(nullptr, 5));
  const char* const others[] = {"BELLOWS_QUERY=status2", "BELLOWS_QUERY", "XBELLOWS_QUERY=status",
                                "BELLOWS_QUERY="};
  cr_expect(not asks_status(others, 4));
}

Test(query, answer, .timeout = 10) {
  PolicyWatcher::State state = state_of(kTwo);
  const std::string digest = state.policy->digest;
  cr_expect(digest.size() == 16);
  cr_expect(answer_status(state) == "bellows-status/1 digest=" + digest +
                                        " since=1700000000 enabled=1 tenants=2 lua=0 people=1 "
                                        "problem=");
  state.problem = "b.yaml:1:1: what is wrong";
  state.people = nullptr;
  cr_expect(answer_status(state).ends_with("lua=0 people=0 problem=b.yaml:1:1: what is wrong"));
  cr_expect(answer_status(state_of("version: 1\nenabled: false\n")).find(" enabled=0 tenants=0 ") !=
            std::string::npos);
  cr_expect(answer_status({}) == "bellows-status/1 lua=0 people=1 problem=");
}

Test(query, answer_is_one_short_line, .timeout = 10) {
  PolicyWatcher::State state = state_of(kTwo);
  state.problem = std::string(5000, 'x');
  cr_expect(answer_status(state).size() == kMostAnswer);
  state.problem = "two\nlines and an \x1b[0m escape, \xc3\xa4";
  for (char c : answer_status(state)) cr_expect(c >= 0x20 && c < 0x7f);
}

Test(query, answer_reads_back, .timeout = 10) {
  PolicyWatcher::State state = state_of(kTwo);
  state.problem = "b.yaml:1:1: problem=2 words digest=1";
  const PolicyStatus wanted{state.policy->digest, 1700000000, true, 2, false, "", true,
                            state.problem,        {}};
  const std::string line = answer_status(state);
  cr_expect(parse_status(line) == wanted);
  cr_expect(parse_status("bellows: error: " + line + "\nother: x\n") == wanted);
  cr_expect(parse_status(answer_status({})) == PolicyStatus());
  cr_expect(not PolicyStatus().digest.size());
  state.other = std::make_shared<const PolicyRecord>(PolicyRecord{"east", "", 5});
  PolicyStatus differing = wanted;
  differing.other = *state.other;
  cr_expect(parse_status(answer_status(state)) == differing);
  const auto with_controller =
      parse_status(answer_status(state_of(kTwo + "controller: {addresses: [\"c:1\", \"d:2\"]}\n")));
  cr_expect(with_controller && with_controller->controller == "@c:1,d:2");
  // A newer version may say more.
  cr_expect(parse_status("bellows-status/1 lua=1 more=7 problem=")->lua);
}

Test(query, no_answers, .timeout = 10) {
  for (const char* text :
       {"", "bellows-status/1 ", "bellows-status/2 lua=1 problem=", "bellows-status/1 lua=1",
        "bellows-status/1 lua problem=", "bellows-status/1 since=-1 problem=",
        "bellows-status/1 since=9223372036854775808 problem=", "bellows-status/1 lua=1\nproblem="})
    cr_expect(not parse_status(text), "%s", text);
}
