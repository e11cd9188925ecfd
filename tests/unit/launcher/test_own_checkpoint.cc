// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <csignal>

#include "launcher/machine/own_checkpoint.h"

using namespace bellows;

namespace {

ChildExit exited(int status) { return ChildExit{status << 8}; }

OwnStopEnd judge(const OwnCheckpoint& how, std::optional<ChildExit> ranks,
                 std::optional<ChildExit> command = {}, bool out_of_time = false,
                 bool may_refuse = false) {
  return judge_own_stop(how, {ranks, command, false, out_of_time, may_refuse, ""});
}

}  // namespace

Test(own_checkpoint, signals_have_names_and_numbers) {
  cr_expect(parse_signal("USR1") == SIGUSR1);
  cr_expect(parse_signal("SIGUSR2") == SIGUSR2);
  cr_expect(parse_signal("15") == SIGTERM);
  for (const char* bad : {"", "KILL", "SIGSTOP", "9", "0", "65", "usr1", "SIG", "-10", "USR3"})
    cr_expect(!parse_signal(bad), "%s", bad);
}

Test(own_checkpoint, ranks_that_end_after_the_signal_have_stopped) {
  OwnCheckpoint how;
  how.signal = SIGUSR1;
  cr_expect(judge(how, {}) == OwnStopEnd::waiting);
  cr_expect(judge(how, exited(0)) == OwnStopEnd::saved);
  cr_expect(judge(how, exited(1)) == OwnStopEnd::unsaved);
  cr_expect(judge(how, ChildExit{SIGUSR1}) == OwnStopEnd::unsaved);
  cr_expect(judge(how, {}, {}, true) == OwnStopEnd::unsaved);
  cr_expect(judge(how, {}, {}, true, true) == OwnStopEnd::unsaved, "they have had the signal");
}

Test(own_checkpoint, a_status_of_its_own_tells_stopped_from_finished) {
  OwnCheckpoint how;
  how.signal = SIGUSR1;
  how.stopped_status = 85;
  cr_expect(judge(how, exited(85)) == OwnStopEnd::saved);
  cr_expect(judge(how, exited(0)) == OwnStopEnd::finished);
  cr_expect(judge(how, exited(1)) == OwnStopEnd::unsaved);
}

Test(own_checkpoint, a_command_that_fails_changes_nothing_where_it_may) {
  OwnCheckpoint how;
  how.command = "save";
  cr_expect(judge(how, {}) == OwnStopEnd::waiting);
  cr_expect(judge(how, {}, exited(0)) == OwnStopEnd::saved);
  cr_expect(judge(how, {}, exited(3), false, true) == OwnStopEnd::refused);
  cr_expect(judge(how, {}, {}, true, true) == OwnStopEnd::refused);
  cr_expect(judge(how, {}, exited(3)) == OwnStopEnd::unsaved);
  cr_expect(judge(how, {}, {}, true) == OwnStopEnd::unsaved);
}

Test(own_checkpoint, ranks_that_end_beside_a_command) {
  OwnCheckpoint how;
  how.command = "save";
  cr_expect(judge(how, exited(0)) == OwnStopEnd::waiting, "the command may still copy");
  cr_expect(judge(how, exited(0), exited(0)) == OwnStopEnd::saved);
  cr_expect(judge(how, exited(2), exited(0)) == OwnStopEnd::unsaved);
  cr_expect(judge(how, exited(0), exited(3), false, true) == OwnStopEnd::finished,
            "nothing made them stop");
}

Test(own_checkpoint, a_program_that_says_so_has_finished) {
  OwnCheckpoint how;
  how.signal = SIGUSR1;
  for (int status : {0, 1, 85}) {
    OwnStopFacts facts;
    facts.ranks = exited(status);
    facts.told_finished = true;
    cr_expect(judge_own_stop(how, facts) == OwnStopEnd::finished);
  }
  OwnStopFacts running;
  running.told_finished = true;
  cr_expect(judge_own_stop(how, running) == OwnStopEnd::waiting, "its ranks have yet to end");
}

Test(own_checkpoint, ranks_that_the_cluster_has_ended_have_saved_nothing) {
  OwnCheckpoint how;
  how.signal = SIGUSR1;
  how.stopped_status = 1;
  OwnStopFacts facts;
  facts.ranks = exited(1);
  cr_expect(judge_own_stop(how, facts) == OwnStopEnd::saved);
  facts.lost = "node n2 was lost";
  cr_expect(judge_own_stop(how, facts) == OwnStopEnd::unsaved);
  how = {};
  how.command = "save";
  cr_expect(judge_own_stop(how, facts) == OwnStopEnd::waiting, "it may yet save");
  facts.out_of_time = true;
  cr_expect(judge_own_stop(how, facts) == OwnStopEnd::unsaved);
  facts.command = exited(0);
  cr_expect(judge_own_stop(how, facts) == OwnStopEnd::saved);
  facts.told_finished = true;
  cr_expect(judge_own_stop(how, facts) == OwnStopEnd::finished);
}

Test(own_checkpoint, complains_when_a_preemption_is_too_fast) {
  OwnCheckpoint how;
  cr_expect(how.complaint({true, 10}) == "", "it saves by libbellows, or not at all");
  how.signal = SIGUSR1;
  how.grace = 60;
  cr_expect(how.complaint({true, 10}) != "");
  cr_expect(how.complaint({true, 60}) == "");
  cr_expect(how.complaint({false, 0}) == "");
  how.signal = SIGTERM;
  cr_expect(how.complaint({true, 0, how.grace}) == "", "Slurm itself tells the ranks");
  cr_expect(how.complaint({true, 0, 5}).find("5 s (KillWait)") != std::string::npos);
}
