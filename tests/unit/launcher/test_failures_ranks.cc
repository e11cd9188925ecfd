// SPDX-License-Identifier: Apache-2.0
// What the launcher concludes from the ends of ranks: what srun and the agents say of them.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <string>
#include <vector>

#include "launcher/ranks/rank_ends.h"
#include "launcher/ranks/rank_failure.h"
#include "launcher/ranks/rank_names.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

Test(rank_names, are_short) {
  RankNames names;
  names.add(5, "n1");
  cr_expect(names.to_string() == "rank 5 on n1");
  for (std::uint32_t rank : {0, 1, 2}) names.add(rank, "n1");
  names.add(6, "n2");
  cr_expect(names.to_string() == "ranks 0-2,5 on n1 and rank 6 on n2" && names.size() == 5);
  for (int node = 3; node < 9; ++node) names.add(7, "n" + std::to_string(node));
  cr_expect(has(names.to_string(), "rank 7 on n4 and ranks on 4 more nodes"));
}

namespace {

const ChildExit kStatus1{1 << 8};
const ChildExit kKilled{9};

RankFailure failure_of(const std::vector<std::string>& lines) {
  RankFailure failure;
  for (const std::string& line : lines) failure.take_line(line);
  return failure;
}

}  // namespace

Test(rank_failure, names_the_first_rank) {
  auto failure = failure_of({"srun: error: n2: task 3: Killed",
                             "slurmstepd: error: *** STEP 5.1 ON n1 CANCELLED AT 2026 ***",
                             "srun: error: n1: tasks 0-2: Terminated"});
  failure.take_words("counter: save: no room");
  failure.take_words(" \r");
  cr_expect(failure.cause(kKilled) == "rank 3 on n2 was killed by signal 9 (Killed)", "%s",
            failure.cause(kKilled).c_str());
  cr_expect(failure.culprit(kKilled) == RankFailure::Culprit::program);
  cr_expect(failure.last_words() == "counter: save: no room");
  failure = failure_of({"srun: error: n[1-2]: tasks 0-1: Exited with exit code 7"});
  cr_expect(failure.cause(kStatus1) == "ranks 0-1 on n[1-2] exited with status 7");
  failure = failure_of({"srun: error: n1: task 0: Segmentation fault (core dumped)"});
  cr_expect(has(failure.cause(kStatus1), "signal 11 (Segmentation fault (core dumped))"));
}

// Told by their agents, the others may be quicker to end than srun is to hear of the first.
Test(rank_failure, names_the_rank_that_the_others_failed_for) {
  RankFailure failure;
  failure.lost(3, "n1");
  failure.lost(0, "n1");
  for (const char* line :
       {"srun: error: n1: tasks 0-2,7: Exited with exit code 1", "srun: error: n1: task 3: Killed",
        "srun: error: n2: tasks 4-5: Exited with exit code 1"})
    failure.take_line(line);
  cr_expect(failure.cause(kStatus1) == "rank 3 on n1 was killed by signal 9 (Killed)", "%s",
            failure.cause(kStatus1).c_str());
  failure = RankFailure();
  failure.lost(1, "n2");
  failure.take_line("srun: error: n[1-2]: tasks 0-1: Exited with exit code 7");
  failure.take_line("srun: error: n2: task 3: Terminated");
  cr_expect(failure.cause(kStatus1) == "ranks 0-1 on n[1-2] exited with status 7");
}

// Agents say nothing, or not yet, of a rank that dies before it joins, that says goodbye and fails
// then, or that leaves a save to write; of those that srun then kills they do.
Test(rank_failure, does_not_name_what_srun_killed) {
  for (const char* end : {"Killed", "Exited with exit code 1"}) {
    auto failure = failure_of({std::string("srun: error: n1: task 3: ") + end});
    const std::string cause = failure.cause(kStatus1);
    failure.lost(0, "n2");
    failure.lost(3, "n1");
    failure.take_line("srun: error: n2: tasks 0-1: Killed");
    cr_expect(cause.starts_with("rank 3 on n1 ") && failure.cause(kStatus1) == cause, "%s",
              failure.cause(kStatus1).c_str());
  }
}

Test(rank_failure, takes_what_python_cannot_import_for_missing) {
  const auto culprit_of = [](std::initializer_list<const char*> words, const ChildExit& exit) {
    RankFailure failure;
    for (const char* line : words) failure.take_words(line);
    return failure.culprit(exit);
  };
  const char* error = "ModuleNotFoundError: No module named 'toch'";
  cr_expect(culprit_of({error}, kStatus1) == RankFailure::Culprit::missing);
  cr_expect(culprit_of({error, "Traceback (most recent call last):", "  File \"t.py\", line 1"},
                       kStatus1) == RankFailure::Culprit::missing,
            "another rank was ended while it said the same");
  cr_expect(culprit_of({error, "goes on without it", "RuntimeError: NCCL error"}, kStatus1) ==
            RankFailure::Culprit::program);
  cr_expect(culprit_of({error}, kKilled) == RankFailure::Culprit::program);
  RankFailure first;
  first.take_words(error);
  first.take_line("srun: error: n3: task 0: Exited with exit code 1");
  first.take_line("srun: error: n3: task 1: Terminated");
  cr_expect(first.culprit(kKilled) == RankFailure::Culprit::missing, "srun ended the other rank");
}

Test(rank_failure, tells_memory_nodes_and_missing_programs) {
  auto failure =
      failure_of({"slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=5.1. Some",
                  "srun: error: n1: task 1: Out Of Memory"});
  cr_expect(failure.cause(kKilled) ==
            "rank 1 on n1 was killed because the job's memory limit was reached");
  failure = failure_of({"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.1. Some",
                        "srun: error: n1: task 1: Killed"});
  cr_expect(
      has(failure.cause(kKilled), "rank 1 on n1 was killed by signal 9 (Killed), out of memory"));
  failure = failure_of({"srun: error: Node failure on n2", "srun: error: n1: task 0: Killed"});
  cr_expect(failure.cause(kKilled) == "node n2 was lost" && failure.lost_node() == "n2");
  cr_expect(failure.culprit(kKilled) == RankFailure::Culprit::cluster);
  failure = failure_of({"srun: error: Task launch for StepId=1.3 failed on node n2: No route",
                        "srun: error: Application launch failed: No route"});
  cr_expect(failure.cause(kStatus1) == "the ranks could not be started on n2: No route");
  cr_expect(failure.culprit(kStatus1) == RankFailure::Culprit::cluster);
  // Of a rank that says no more; it must not end the launcher.
  (void)failure_of({"srun: error: Unable to create step for job "});
  failure = failure_of({"srun: error: Unable to create step for job 4: Invalid gres"});
  cr_expect(failure.cause(kStatus1) == "Slurm does not start the ranks: Invalid gres");
  cr_expect(failure.culprit(kStatus1) == RankFailure::Culprit::cluster);
  failure = failure_of({"slurmstepd-n1: error: execve(): ./train: No such file or directory",
                        "srun: error: n1: task 0: Exited with exit code 2"});
  cr_expect(failure.cause(kStatus1) ==
            "the program could not be executed: ./train: No such file or directory");
  cr_expect(failure.culprit(kStatus1) == RankFailure::Culprit::missing);
  failure = failure_of({"[2026-11-26T12:19:36.674] error: execve(): ./train: No such file",
                        "srun: error: n1: task 0: Exited with exit code 2"});
  cr_expect(failure.cause(kStatus1) == "the program could not be executed: ./train: No such file");
  failure = failure_of({"[Nov 26 12:19] error: Detected 2 oom_kill events in StepId=5.1. Some",
                        "srun: error: n1: task 1: Killed"});
  cr_expect(
      has(failure.cause(kKilled), "rank 1 on n1 was killed by signal 9 (Killed), out of memory"));
  failure = failure_of({"[2026-11-26T12:19:36.674] error: no oom_kill event, and no execve(): ",
                        "srun: error: n1: task 0: Exited with exit code 2"});
  cr_expect(failure.cause(kStatus1) == "rank 0 on n1 exited with status 2", "%s",
            failure.cause(kStatus1).c_str());
  cr_expect(failure_of({}).culprit(ChildExit{127 << 8}) == RankFailure::Culprit::missing);
}

// srun says no node, and ends with status 0 where it has not started any.
Test(rank_failure, tells_ranks_that_were_not_started) {
  RankFailure failure({{"n1", {0, 1, 2}}, {"n2", {3}}});
  cr_expect(failure.no_start().empty());
  for (const char* rank : {"0", "1", "2", "3", "9", "99999999999"})
    failure.take_line(fmt::format("srun: error: task {} launch failed: Unspecified error", rank));
  failure.take_line("srun: error: n2: task 3: Killed");
  const std::string cause =
      "rank 9 on its node, ranks 0-2 on n1 and rank 3 on n2 could not be started: Unspecified "
      "error; the log of slurmd there says more";
  cr_expect(failure.no_start() == cause, "%s", failure.no_start().c_str());
  cr_expect(failure.cause(ChildExit{0}) == cause && failure.cause(kKilled) == cause);
  cr_expect(failure.culprit(ChildExit{0}) == RankFailure::Culprit::cluster);
  cr_expect(failure.true_exit(ChildExit{0}).code() == 1 &&
            failure.true_exit(kKilled).code() == 137);
  failure = failure_of({"srun: error: Node failure on n2"});
  cr_expect(failure.true_exit(ChildExit{0}).code() == 1 && failure.no_start().empty());
  cr_expect(failure_of({"srun: error: n1: task 0: Killed"}).true_exit(ChildExit{0}).ok());
  cr_expect(
      failure_of({"srun: error: task launch failed: no", "srun: error: task"}).no_start().empty());
  cr_expect(failure_of({"srun: error: n1: task 0: Killed"}).no_start().empty());
}

Test(rank_failure, trusts_no_srun_that_did_not_wait) {
  RankFailure failure =
      failure_of({"srun: error: timeout waiting for task launch, started 2 of 4 tasks"});
  cr_expect(failure.no_start() ==
                "srun stopped waiting: timeout waiting for task launch, started 2 of 4 tasks",
            "%s", failure.no_start().c_str());
  cr_expect(failure.true_exit(ChildExit{0}).code() == 1);
  failure = failure_of({"srun: error: Timed out waiting for job step to complete"});
  cr_expect(failure.no_start().empty() && failure.true_exit(ChildExit{0}).code() == 1);
  cr_expect(failure.cause(ChildExit{0}) == "srun stopped waiting for the ranks' step to end");
  cr_expect(failure.culprit(kStatus1) == RankFailure::Culprit::cluster);
  failure.take_line("srun: error: n1: task 0: Exited with exit code 7");
  cr_expect(failure.cause(kStatus1) == "rank 0 on n1 exited with status 7" &&
                failure.culprit(kStatus1) == RankFailure::Culprit::program,
            "what it knows weighs more");
  cr_expect(failure.true_exit(ChildExit{0}).code() == 1);
  failure = RankFailure();
  failure.node_lost("");
  cr_expect(failure.true_exit(ChildExit{0}).ok());
  failure.node_lost("n2");
  cr_expect(failure.true_exit(ChildExit{0}).code() == 1);
}

Test(rank_failure, blames_no_program_for_what_srun_was_refused) {
  for (const char* line : {"srun: error: Unable to confirm allocation for job 7: Timed out",
                           "srun: error: Application launch failed: Timed out"}) {
    const RankFailure failure = failure_of({line});
    cr_expect(failure.cause(kStatus1) == "Slurm does not start the ranks: Timed out");
    cr_expect(failure.culprit(kStatus1) == RankFailure::Culprit::cluster);
  }
}

Test(rank_failure, says_what_it_knows_without_srun) {
  RankFailure failure;
  cr_expect(failure.cause(kStatus1) == "the step of ranks exited with status 1");
  failure.lost(2, "n1");
  failure.lost(0, "n1");
  cr_expect(has(failure.cause(kStatus1), "status 1, and rank 2 on n1 had ended first"));
  cr_expect(failure.last_words().empty());
}

// As a program writes that starts steps of its own, or reads a log aloud.
Test(rank_failure, takes_no_rank_at_its_word) {
  RankFailure failure;
  for (const char* line : {"srun: error: Node failure on n2", "srun: error: n1: task 0: Killed",
                           "slurmstepd-n1: error: execve(): ./train: No such file or directory"})
    failure.take_words(line);
  for (const char* line : {"log of yesterday: srun: error: Node failure on n2",
                           "srun: error: n2: it says Node failure on n2",
                           "a slurmstepd: error: execve(): ./train: No such file or directory",
                           "slurmstepd-n1: error: it says execve(): no"})
    failure.take_line(line);
  cr_expect(failure.cause(kStatus1) == "the step of ranks exited with status 1", "%s",
            failure.cause(kStatus1).c_str());
  cr_expect(failure.culprit(kStatus1) == RankFailure::Culprit::program);
  cr_expect(failure.last_words().starts_with("slurmstepd-n1"));
}

namespace {

using State = event::Rank::State;

RankEnds ends_of(const std::vector<State>& states) {
  RankEnds ends;
  for (std::uint32_t rank = 0; rank < states.size(); ++rank) {
    ends.note("n1", {rank, State::joined});
    ends.note("n1", {rank, states[rank]});
  }
  return ends;
}

}  // namespace

Test(rank_ends, tell_a_death_that_a_status_hides) {
  cr_expect(ends_of({State::lost}).deaths() ==
            "rank 0 on n1 died, although the command that started it ended with status 0");
  cr_expect(has(ends_of({State::stopped, State::lost, State::exited, State::lost}).deaths(),
                "ranks 1,3 on n1 died, although the command that started them"));
}

Test(rank_ends, leave_alone_a_program_that_has_ended) {
  cr_expect(ends_of({}).deaths().empty());
  cr_expect(ends_of({State::exited, State::exited}).deaths().empty(),
            "without having left its agent");
  cr_expect(ends_of({State::stopped, State::stopped}).deaths().empty(), "by its own decision");
  RankEnds ends = ends_of({State::lost, State::finished, State::lost});
  cr_expect(ends.deaths().empty() && ends.finished() == 1, "what comes after training is its own");
  ends = ends_of({State::lost, State::exited});
  ends.note("n1", {0, State::joined});
  ends.note("n1", {0, State::exited});
  cr_expect(ends.deaths().empty(), "its script started it again");
}
