// SPDX-License-Identifier: Apache-2.0
// Which container with a name a step gets, and what of its options counts there.
#include <criterion/criterion.h>

#include <string>

#include "common/container/spec_text.h"
#include "spank/container/named_container.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(named, .timeout = 60);

NamedState state(const char* spec) { return state_for(*parse_spec(spec), {}, "/home/ann"); }

/// "join", "make" or "remake", and the remark or the error.
std::string decided(const char* spec, const char* maker, bool vacant) {
  const NamedState found = maker == nullptr ? NamedState() : state(maker);
  const auto decision =
      decide(*parse_spec(spec), state(spec), maker == nullptr ? nullptr : &found, vacant);
  if (!decision) return decision.error().text;
  const char* words[] = {"join", "make", "remake"};
  return words[static_cast<int>(decision->entrance)] +
         (decision->remark.empty() ? "" : ": " + decision->remark);
}

Test(named, one_that_is_not_there_is_made) {
  EQUALS(decided("image:/i,name:t", nullptr, true), "make");
  EQUALS(decided("image:/i,name:t:create", nullptr, true), "make");
  cr_expect(decided("name:t", nullptr, true).find("give --container-image") != std::string::npos);
  cr_expect(decided("image:/i,name:t:exec", nullptr, true).find("without :exec") !=
            std::string::npos);
}

Test(named, mounts_are_made_anew_where_no_step_runs) {
  EQUALS(decided("name:t", "image:/i,name:t", true), "join");
  EQUALS(decided("name:t,mount:/a:/b", "image:/i,name:t", true), "remake");
  EQUALS(decided("name:t", "image:/i,name:t,mount:/a:/b", true), "remake");
  EQUALS(decided("name:t,mount:/a:/b", "image:/i,name:t,mount:/a:/b", true), "remake");
  EQUALS(decided("name:t,mount-home", "image:/i,name:t", true), "remake");
  EQUALS(decided("name:t", "image:/i,name:t,mount-home", true), "remake");
  EQUALS(decided("name:t,writable", "image:/i,name:t", true), "remake");
  EQUALS(decided("name:t,readonly", "image:/i,name:t,writable", true), "remake");
  EQUALS(decided("name:t,readonly", "image:/i,name:t", true), "join");
  EQUALS(decided("name:t:no_exec", "image:/i,name:t", true), "remake");
  cr_expect(decided("name:t:exec", "image:/i,name:t", true).find("no step runs in it") !=
            std::string::npos);
}

Test(named, what_is_ignored_beside_others_is_told) {
  EQUALS(decided("name:t", "image:/i,name:t", false), "join");
  EQUALS(decided("name:t:exec", "image:/i,name:t", false), "join");
  EQUALS(decided("name:t,mount:/a:/b", "image:/i,name:t,mount:/a:/b", false), "join");
  EQUALS(decided("name:t,mount:/a:/b,mount-home,readonly", "image:/i,name:t,writable", false),
         "join: another step runs in the container t; ignoring --container-mounts, "
         "--container-mount-home, --container-readonly");
  EQUALS(decided("name:t:no_exec", "image:/i,name:t", false), "remake");
  cr_expect(decided("name:t:create", "image:/i,name:t", false).find("exists on this node") !=
            std::string::npos);
}

Test(named, states_are_read_back) {
  for (const char* spec : {"image:/i", "image:/with a space  in it", "image:/i,writable,mount-home",
                           "mount:/a:/b,image:/i"}) {
    NamedState made = state(spec);
    made.layered = made.writable;
    made.imported = made.mounts_home;
    const auto back = parse_state(state_text(made));
    cr_expect(back.ok() && *back == made, "%s", state_text(made).c_str());
  }
  for (const char* bad : {"", "1", "x ---- /i", "1 --- /i", " ---- /i", "1 ----", "0x1 ---- /i",
                          "11111111111111111 ---- /i"})
    cr_expect(!parse_state(bad).ok(), "%s", bad);
  cr_expect(state("mount:/a:/b").mounts != state("mount:/a:/c").mounts);
  cr_expect(state_for(*parse_spec("mount-home"), {}, "/a").mounts !=
            state_for(*parse_spec("mount-home"), {}, "/b").mounts);
}

}  // namespace
