// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include "launcher/record/history.h"

using namespace bellows;

namespace {

JobEvent event(double time, std::uint32_t restart, std::uint32_t attempt, const std::string& state,
               const std::string& cause = "", std::optional<std::uint64_t> step = {}) {
  JobEvent made{time, 7, restart, attempt, state, cause, 4, {"n1"}, step, {}};
  // As launchers and commands note what they say so.
  if (cause.starts_with("committed step")) made.note = EventNote::committed;
  if (state == "CHECKPOINTING" && cause.starts_with("step ")) made.note = EventNote::saving;
  if (cause.starts_with("halted by ")) made.note = EventNote::halted_in_queue;
  if (cause.starts_with("resumed by ")) made.note = EventNote::resumed;
  return made;
}

SlurmRun run(const std::string& state, double submit, double start, double end) {
  SlurmRun run;
  run.job = 7;
  run.state = state;
  run.submit = submit;
  run.start = start;
  run.end = end;
  run.gpus = 4;
  run.nodes = "n1";
  return run;
}

SlurmJob job_in(SlurmState state, std::uint32_t restarts, std::time_t submit) {
  SlurmJob job;
  job.id = 7;
  job.state = state;
  job.restarts = restarts;
  job.times.submit = submit;
  job.priority = 1;
  return job;
}

std::string states(const History& history) {
  std::string text;
  for (const HistoryEntry& entry : history.entries)
    text += entry.event.event + (entry.of_slurm ? "* " : " ");
  return text;
}

const std::vector<JobEvent> kFirstRun = {
    event(100, 0, 0, "QUEUED", "submitted"),
    event(102.5, 0, 1, "DEPLOYING", "started"),
    event(103.5, 0, 1, "PROCESSING", "from the start"),
    event(110, 0, 1, "PROCESSING", "committed step 50", 50),
};

std::vector<JobEvent> with(std::vector<JobEvent> events, std::initializer_list<JobEvent> more) {
  events.insert(events.end(), more);
  return events;
}

std::vector<SlurmRun> with_run(std::vector<SlurmRun> runs, const SlurmRun& more) {
  runs.push_back(more);
  return runs;
}

}  // namespace

Test(history, of_a_whole_job_is_its_launchers) {
  auto events = with(kFirstRun, {event(120, 0, 1, "COMPLETED", "the program has finished", 50)});
  auto told = make_history(events, {run("COMPLETED", 100, 102, 120)}, std::nullopt, 500);
  cr_expect(states(told) == "QUEUED DEPLOYING PROCESSING PROCESSING COMPLETED ", "%s",
            states(told).c_str());
  cr_assert(told.attempts.size() == 1);
  const HistoryAttempt& attempt = told.attempts[0];
  cr_expect(attempt.phases.at("QUEUED") == 2.5 && attempt.phases.at("DEPLOYING") == 1);
  cr_expect(attempt.phases.at("PROCESSING") == 16.5 && attempt.lost_s == 0);
  cr_expect(attempt.to == 50u && attempt.ended == "COMPLETED" && attempt.over);
  cr_expect(told.missing.empty());
}

Test(history, tells_of_a_killed_launcher) {
  auto events = with(kFirstRun, {event(116, 1, 0, "QUEUED", "requeued"),
                                 event(121, 1, 1, "DEPLOYING", "restart 1", 50),
                                 event(122, 1, 1, "PROCESSING", "from step 50", 50)});
  auto told = make_history(events, {run("REQUEUED", 100, 102, 116), run("RUNNING", 116, 120, 0)},
                           job_in(SlurmState::running, 1, 116), 130);
  cr_expect(states(told) == "QUEUED DEPLOYING PROCESSING PROCESSING QUEUED* DEPLOYING PROCESSING ",
            "%s", states(told).c_str());
  cr_expect(told.entries[4].event.cause.find("launcher did not say why") != std::string::npos);
  cr_assert(told.attempts.size() == 2);
  cr_expect(told.attempts[0].lost_s == 6, "since the last commit: %f", told.attempts[0].lost_s);
  cr_expect(told.attempts[1].phases.at("QUEUED") == 5 && !told.attempts[1].over);
  cr_expect(told.attempts[1].phases.at("PROCESSING") == 8);
}

Test(history, tells_of_a_lost_node) {
  auto events = with(kFirstRun, {event(150, 1, 0, "QUEUED", "requeued")});
  auto told = make_history(events, {run("NODE_FAIL", 100, 102, 150), run("PENDING", 150, 0, 0)},
                           job_in(SlurmState::pending, 1, 150), 160);
  cr_expect(told.entries.back().event.cause == "a node failed; Slurm requeued the job");
  cr_expect(told.attempts[0].cause == "a node failed; Slurm requeued the job");
}

Test(history, has_what_no_launcher_saw) {
  auto told = make_history({}, {run("NODE_FAIL", 100, 102, 150), run("CANCELLED", 150, 151, 170)},
                           std::nullopt, 500);
  cr_expect(states(told) == "QUEUED* DEPLOYING* QUEUED* DEPLOYING* CANCELLED* ", "%s",
            states(told).c_str());
  cr_expect(told.attempts.size() == 2);
  auto waiting = make_history({}, {}, job_in(SlurmState::pending, 0, 100), 120);
  cr_expect(states(waiting) == "QUEUED* ");
}

Test(history, takes_slurms_word_for_the_end) {
  auto timeout = make_history(kFirstRun, {run("TIMEOUT", 100, 102, 140)}, std::nullopt, 500);
  cr_expect(timeout.entries.back().event.event == "FAILED");
  cr_expect(timeout.entries.back().event.cause == "the job's time limit");
  cr_expect(timeout.attempts[0].lost_s == 30);
  SlurmRun cancelled = run("CANCELLED", 100, 102, 140);
  cancelled.by = "20001";
  auto by = make_history(kFirstRun, {cancelled}, std::nullopt, 500);
  cr_expect(by.entries.back().event.cause == "cancelled by 20001");
  auto failed = with(kFirstRun, {event(120, 0, 1, "COMPLETED", "the program has finished", 50)});
  auto script = make_history(failed, {run("FAILED", 100, 102, 125)}, std::nullopt, 500);
  cr_expect(script.entries.back().event.event == "FAILED");
}

Test(history, without_accounting_says_what_is_missing) {
  auto events = with(kFirstRun, {event(116, 1, 0, "QUEUED", "requeued"),
                                 event(121, 1, 1, "DEPLOYING", "restart 1", 50)});
  auto told = make_history(events, {}, job_in(SlurmState::running, 1, 116), 130);
  cr_expect(told.missing.size() == 1, "%zu", told.missing.size());
  cr_expect(told.entries[4].event.cause.find("was killed") != std::string::npos);
  // A planned stop needs nobody else.
  events = with(kFirstRun, {event(114, 0, 1, "STORING", "committed step 60: resize", 60),
                            event(115, 0, 1, "RESIZING", "to 2 GPUs", 60),
                            event(115, 1, 0, "QUEUED", "requeued"),
                            event(121, 1, 1, "DEPLOYING", "restart 1", 60)});
  told = make_history(events, {}, job_in(SlurmState::running, 1, 115), 130);
  cr_expect(told.missing.empty());
  cr_expect(told.attempts[0].lost_s == 0 && told.attempts[0].to == 60u);
  cr_expect(told.attempts[1].phases.at("QUEUED") == 6);
}

Test(history, keeps_the_order_of_runs_whatever_the_clocks_say) {
  auto events = with(kFirstRun, {event(116.9, 0, 1, "RESIZING", "to 2 GPUs", 50),
                                 event(116, 1, 0, "QUEUED", "requeued"),
                                 event(121, 1, 1, "DEPLOYING", "restart 1", 50)});
  auto told = make_history(events, {}, std::nullopt, 130);
  cr_expect(states(told) == "QUEUED DEPLOYING PROCESSING PROCESSING RESIZING QUEUED DEPLOYING ");
  for (std::size_t i = 1; i < told.entries.size(); ++i)
    cr_expect(told.entries[i - 1].event.time <= told.entries[i].event.time);
}

Test(history, does_not_count_a_halted_job_as_queued) {
  auto halted = with(kFirstRun, {event(115, 0, 1, "STORING", "committed step 60: halt", 60),
                                 event(115.5, 0, 1, "HALTED", "by alice", 60)});
  SlurmJob held = job_in(SlurmState::pending, 1, 116);
  held.priority = 0;
  auto told = make_history(halted, {}, held, 300);
  cr_expect(told.entries.back().event.event == "HALTED", "%s", states(told).c_str());
  auto resumed =
      with(halted, {event(200, 1, 0, "QUEUED", "resumed"), event(116, 1, 0, "QUEUED", "requeued"),
                    event(205, 1, 1, "DEPLOYING", "restart 1", 60)});
  told = make_history(resumed, {}, job_in(SlurmState::running, 1, 116), 300);
  cr_expect(told.attempts[1].phases.at("QUEUED") == 5, "%f", told.attempts[1].phases.at("QUEUED"));
}

// Of a program that had finished too: neither run starts an attempt.
Test(history, of_a_run_that_carries_out_a_lost_halt_ends_with_it) {
  auto halted = with(
      kFirstRun, {event(116, 1, 0, "QUEUED", "requeued"), event(121, 1, 0, "HALTED", "halt", 50)});
  SlurmJob held = job_in(SlurmState::pending, 2, 122);
  held.priority = 0;
  const std::vector<SlurmRun> runs = {run("REQUEUED", 100, 102, 116),
                                      run("REQUEUED", 116, 120, 122)};
  auto told = make_history(halted, with_run(runs, run("PENDING", 122, 0, 0)), held, 300);
  cr_expect(states(told) == "QUEUED DEPLOYING PROCESSING PROCESSING QUEUED* HALTED ", "%s",
            states(told).c_str());
  auto resumed = with(halted, {event(122, 2, 0, "QUEUED", "requeued"),
                               event(205, 2, 1, "DEPLOYING", "restart 2", 50)});
  told = make_history(resumed, with_run(runs, run("RUNNING", 122, 204, 0)),
                      job_in(SlurmState::running, 2, 122), 300);
  cr_expect(told.entries[6].event.cause == "requeued", "%s", told.entries[6].event.cause.c_str());
  auto finished = with(kFirstRun, {event(116, 1, 0, "QUEUED", "requeued"),
                                   event(121, 1, 0, "COMPLETED", "finished", 50)});
  told = make_history(finished, {runs[0], run("COMPLETED", 116, 120, 121)}, std::nullopt, 300);
  cr_expect(states(told) == "QUEUED DEPLOYING PROCESSING PROCESSING QUEUED* COMPLETED ", "%s",
            states(told).c_str());
}

Test(history, tells_of_a_halt_of_a_job_that_waits) {
  auto halted = with(kFirstRun, {event(150, 1, 0, "HALTED", "halted by alice", 50)});
  SlurmJob job = job_in(SlurmState::pending, 1, 116);
  job.priority = 0;
  const std::vector<SlurmRun> first = {run("REQUEUED", 100, 102, 116)};
  auto told = make_history(halted, with_run(first, run("PENDING", 116, 0, 0)), job, 300);
  cr_expect(states(told) == "QUEUED DEPLOYING PROCESSING PROCESSING QUEUED* HALTED ", "%s",
            states(told).c_str());
  told = make_history(halted, with_run(first, run("CANCELLED", 116, 0, 170)), std::nullopt, 300);
  cr_expect(told.entries.back().event.event == "CANCELLED", "%s", states(told).c_str());
  job.state = SlurmState::running;
  told = make_history(halted, with_run(first, run("RUNNING", 116, 180, 0)), job, 300);
  cr_expect(told.entries.back().event.event == "DEPLOYING", "%s", states(told).c_str());
  auto resumed = with(halted, {event(200, 1, 0, "QUEUED", "resumed by alice"),
                               event(116, 1, 0, "QUEUED", "requeued"),
                               event(205, 1, 1, "DEPLOYING", "restart 1", 50)});
  told = make_history(resumed, with_run(first, run("RUNNING", 116, 204, 0)), job, 300);
  cr_expect(
      states(told) == "QUEUED DEPLOYING PROCESSING PROCESSING QUEUED* HALTED QUEUED DEPLOYING ",
      "%s", states(told).c_str());
  cr_expect(told.entries[4].event.cause.starts_with("requeued; its launcher did not say why"));
  cr_expect(told.entries[6].event.cause == "resumed by alice");
  cr_expect(told.attempts[1].phases.at("QUEUED") == 39, "116 to 150, and 200 to 205");
}

Test(history, of_attempts_in_place_counts_what_each_lost) {
  JobEvent again = event(118, 0, 2, "DEPLOYING", "the step of ranks was killed", 50);
  again.reached = 80;
  auto events = with(kFirstRun, {again, event(119, 0, 2, "PROCESSING", "from step 50", 50)});
  auto told = make_history(events, {}, job_in(SlurmState::running, 0, 100), 130);
  cr_assert(told.attempts.size() == 2);
  cr_expect(told.attempts[0].lost_s == 8 && told.attempts[0].lost_steps == 30u);
  cr_expect(told.attempts[0].cause == "the step of ranks was killed");
  cr_expect(told.attempts[1].from == 50u && told.attempts[1].phases.at("QUEUED") == 0);
}

Test(records, come_from_sacct) {
  const std::string us(1, '\x1f');
  auto line = [&us](std::initializer_list<const char*> fields) {
    std::string text;
    for (const char* field : fields) text += (text.empty() ? "" : us) + field;
    return text + "\n";
  };
  auto runs =
      parse_records(line({"7", "RUNNING", "300", "310", "Unknown", "cpu=4,gres/gpu=2", "n[1-2]",
                          "alice", "vision", "bellows/1 tenant=a", "/home/a|b", "7"}) +
                    line({"7", "CANCELLED by 20001", "100", "Unknown", "150", "", "None assigned",
                          "alice", "vision", "", "/home/a", "5_3"}));
  cr_assert(runs.ok());
  cr_assert(runs->size() == 2);
  cr_expect(runs->front().state == "CANCELLED" && runs->front().by == "20001");
  cr_expect(runs->front().start == 0 && runs->front().nodes.empty());
  cr_expect(runs->front().array_task == "5_3" && runs->back().array_task.empty());
  cr_expect(runs->back().gpus == 2 && runs->back().end == 0 && runs->back().nodes == "n[1-2]");
  for (const std::string& bad : {std::string("x\n"), line({"7", "RUNNING"}),
                                 line({"x", "A", "1", "1", "1", "", "", "", "", "", "", ""})})
    cr_expect(!parse_records(bad).ok());
}

Test(saves, in_a_row_are_one) {
  const auto told = [](const std::vector<JobEvent>& events) {
    std::string text;
    for (const JobEvent& one : collapse_saves(events)) text += one.event + " " + one.cause + "; ";
    return text;
  };
  auto events = with(kFirstRun, {event(111, 0, 1, "CHECKPOINTING", "step 60", 50),
                                 event(112, 0, 1, "CHECKPOINTING", "step 65", 50),
                                 event(113, 0, 1, "PROCESSING", "committed step 65", 65),
                                 event(114, 0, 1, "PROCESSING", "committed step 70", 70)});
  const std::string begin = "QUEUED submitted; DEPLOYING started; PROCESSING from the start; ";
  cr_expect(told(events) == begin + "PROCESSING committed steps 50 to 70; ", "%s",
            told(events).c_str());
  events = with(events, {event(115, 0, 1, "CHECKPOINTING", "step 80", 70)});
  cr_expect(told(events) == begin + "PROCESSING committed steps 50 to 70; CHECKPOINTING step 80; ");
  cr_expect(collapse_saves(events)[3].step == 70u && collapse_saves(events)[3].time == 114);
  // What failed in between, and another attempt, stay apart.
  events = with(kFirstRun, {event(111, 0, 1, "CHECKPOINTING", "step 60", 50),
                            event(112, 0, 1, "PROCESSING", "a save failed: no space", 50),
                            event(113, 0, 1, "PROCESSING", "committed step 70", 70),
                            event(114, 0, 2, "PROCESSING", "committed step 80", 80)});
  cr_expect(told(events) == begin +
                                "PROCESSING committed step 50; CHECKPOINTING step 60; PROCESSING a "
                                "save failed: no space; PROCESSING committed step 70; PROCESSING "
                                "committed step 80; ",
            "%s", told(events).c_str());
}

Test(history, of_a_program_that_saves_by_itself_does_not_say_what_was_lost) {
  std::vector<JobEvent> events = {event(100, 0, 0, "QUEUED", "submitted"),
                                  event(102, 0, 1, "DEPLOYING", "started"),
                                  event(103, 0, 1, "PROCESSING", "from the start"),
                                  event(137, 0, 2, "DEPLOYING", "rank 0 was killed")};
  auto told = make_history(events, {}, std::nullopt, 140);
  cr_expect(!told.attempts[0].lost_s && !told.attempts[0].lost_steps);
  events.back().reached = 12;
  told = make_history(events, {}, std::nullopt, 140);
  cr_expect(told.attempts[0].lost_s == 34, "its launcher heard of its steps, and none was saved");
}
