// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "common/child.h"
#include "launcher/base/line_buffer.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/machine/restart_budget.h"
#include "launcher/ranks/rank_layout.h"
#include "launcher/record/event_log.h"
#include "launcher/record/job_view.h"
#include "launcher/run/agent_link.h"
#include "launcher/slurm/step_environment.h"
#include "slurm/compat.h"
#include "slurm/gres.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

namespace {

SlurmJob job_with(std::vector<NodeShare> nodes) {
  SlurmJob job;
  job.id = 7;
  job.state = SlurmState::running;
  job.nodes = std::move(nodes);
  job.asked.num_tasks = 3;
  return job;
}

bool has(const std::vector<std::string>& list, const std::string& item) {
  for (const std::string& one : list)
    if (one == item) return true;
  return false;
}

ChildExit wait_for(Child& child) {
  for (int i = 0; i < 1000 && !child.poll_exit(); ++i) usleep(10000);
  cr_assert(child.poll_exit().has_value());
  return *child.poll_exit();
}

Result<Child> shell(const std::string& script, bool pipes = false) {
  ChildOptions options;
  options.command = {"sh", "-c", script};
  options.environment = {"PATH=/usr/bin:/bin"};
  options.pipe_in = options.pipe_out = pipes;
  return Child::start(options);
}

}  // namespace

namespace {

// The link to agents whose srun writes these lines to standard error.
Result<AgentLink> link_that_says(const ScratchDir& dir, const std::string& lines) {
  std::ofstream(dir.path() + "/srun") << "#!/bin/sh\ncat >&2 <<'END'\n"
                                      << lines << "END\nexec cat >/dev/null\n";
  chmod((dir.path() + "/srun").c_str(), 0755);
  setenv("PATH", (dir.path() + ":/usr/bin:/bin").c_str(), 1);
  auto layout = RankLayout::of(job_with({{"n1", 4, 2}, {"n2", 4, 1}}));
  cr_assert(layout.ok());
  return AgentLink::start(*layout, {"bellows", "/s", "agents", {"PATH=/usr/bin:/bin"}});
}

std::vector<std::string> errors_of(AgentLink& link, std::size_t count) {
  std::vector<std::string> errors;
  while (errors.size() < count) {
    std::vector<pollfd> fds;
    link.add_poll(fds);
    poll(fds.data(), fds.size(), 1000);
    cr_expect(link.exchange().empty());
    for (std::string& line : link.take_errors()) errors.push_back(std::move(line));
  }
  return errors;
}

}  // namespace

// srun says which agent died at once, and ends seconds later.
Test(agent_link, hears_at_once_that_an_agent_died, .timeout = 20) {
  ScratchDir dir;
  auto link = link_that_says(dir,
                             "srun: error: Unable to do this\n"
                             "srun: error: n2: task 1: Killed\n"
                             "srun: error: n1: task 0: Terminated\n");
  cr_assert(link.ok());
  cr_expect(link->loss().empty());
  const auto errors = errors_of(*link, 3);
  cr_expect(link->loss() == "the agent on n2 was killed by signal 9 (Killed)", "%s",
            link->loss().c_str());
  cr_expect(link->lost_node().empty());
  cr_expect(errors[0] == "srun: error: Unable to do this", "what it says is passed on");
  cr_expect(!link->child().poll_exit());
}

Test(agent_link, tells_why_agents_never_spoke, .timeout = 20) {
  ScratchDir dir;
  auto link = link_that_says(dir, "srun: error: Unable to create step for job 7: no such GPU\n");
  cr_assert(link.ok());
  (void)errors_of(*link, 1);
  link->close();
  while (!link->child().poll_exit()) usleep(10000);
  cr_expect(link->end() ==
                "the agents' step exited with status 0; its last output: srun: error: "
                "Unable to create step for job 7: no such GPU",
            "%s", link->end().c_str());
}

Test(agent_link, tells_a_lost_node_from_the_agents_that_end_with_it, .timeout = 20) {
  ScratchDir dir;
  auto link = link_that_says(dir,
                             "srun: error: Node failure on n2\n"
                             "srun: error: n1: task 0: Killed\n");
  cr_assert(link.ok());
  (void)errors_of(*link, 2);
  cr_expect(link->loss() == "node n2 was lost" && link->lost_node() == "n2", "%s",
            link->loss().c_str());
}

Test(gres, counts_gpus_in_every_spelling) {
  cr_expect(gpus_in_gres("") == 0);
  cr_expect(gpus_in_gres("gpu") == 1);
  cr_expect(gpus_in_gres("gpu:2(IDX:0-1)") == 2);
  cr_expect(gpus_in_gres("gpu:4(IDX:0,2-3,5),craynetwork:3") == 4);
  cr_expect(gpus_in_gres("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2)") == 3);
  cr_expect(gpus_in_gres(BELLOWS_GRES "gpu:8") == 8);
  cr_expect(gpus_in_gres(BELLOWS_GRES "gpu:a100:6") == 6);
  cr_expect(gpus_in_gres("cpu=8,gres/gpu=8,gres/gpu:a100=8") == 8);
  cr_expect(gpus_in_gres("gpu_mem:4,shard:2") == 0);
  cr_expect(gpus_in_gres("gpu:") == 0);
  cr_expect(gpus_in_gres("gpu:x") == 0);
}

Test(job_name, is_an_id_or_a_task_of_an_array) {
  auto plain = parse_job_name("123");
  cr_assert(plain);
  cr_expect(plain->id == 123 && !plain->task);
  auto task = parse_job_name("123_0");
  cr_assert(task);
  cr_expect(task->id == 123 && task->task == 0u);
  for (const char* bad : {"", "0", "_1", "1_", "1_2_3", "x", "-1", "1_x", "67108864", "1_[2-3]"})
    cr_expect(!parse_job_name(bad), "%s", bad);
  SlurmJob job;
  job.id = 9;
  cr_expect(job.shown_id() == "9");
  job.array.job = 7;
  job.array.task = 2;
  cr_expect(job.shown_id() == "7_2");
}

Test(rank_layout, follows_the_gpus) {
  auto layout = RankLayout::of(job_with({{"n1", 3, 3}, {"n2", 0, 2}, {"n3", 1, 1}}));
  cr_assert(layout.ok());
  cr_expect(layout->world() == 4 && layout->gpus() == 4 && !layout->crowded());
  cr_expect(layout->nodes() == std::vector<std::string>({"n1", "n3"}));
  cr_expect(layout->ranks().at("n1") == std::vector<std::uint32_t>({0, 1, 2}));
  cr_expect(layout->ranks().at("n3") == std::vector<std::uint32_t>({3}));
  auto options = layout->rank_options();
  cr_expect(has(options, "--ntasks=4") && has(options, "--nodes=2") == !kSrunCountsNodes);
  cr_expect(has(options, "--nodelist=n1,n1,n1,n3"));
  cr_expect(!has(options, "--overlap") && !has(options, "--overcommit"));
  cr_expect(has(layout->agent_options(), "--nodelist=n1,n3"));
  cr_expect(has(layout->agent_options(), "--gres=none"));
}

Test(rank_layout, shares_cpus_where_there_are_too_few) {
  SlurmJob job = job_with({{"n1", 3, 1}, {"n2", 1, 3}});
  auto layout = RankLayout::of(job);
  cr_assert(layout.ok());
  cr_expect(layout->crowded() && has(layout->rank_options(), "--overcommit"));
  job.asked.cpus_per_task = 2;
  job.nodes = {{"n1", 2, 4}};
  layout = RankLayout::of(job);
  cr_expect(!layout->crowded() && has(layout->rank_options(), "--cpus-per-task=2"));
  job.nodes = {{"n1", 2, 3}};
  layout = RankLayout::of(job);
  cr_expect(layout->crowded() && !has(layout->rank_options(), "--cpus-per-task=2"));
}

Test(rank_layout, names_the_gpus_that_are_left) {
  SlurmJob job = job_with({{"n1", 3, 3}});
  job.asked.tres_per_job = BELLOWS_GRES "gpu:4";
  cr_expect(has(RankLayout::of(job)->rank_options(), "--gpus=3"));
  job.asked.tres_per_job = BELLOWS_GRES "gpu:3";
  cr_expect(!has(RankLayout::of(job)->rank_options(), "--gpus=3"));
}

Test(rank_layout, gives_all_of_a_node_to_one_rank) {
  SlurmJob job = job_with({{"n1", 3, 6}});
  job.asked.cpus_per_task = 4;
  auto layout = RankLayout::one_of(job);
  cr_assert(layout.ok());
  cr_expect(layout->world() == 1 && layout->gpus() == 3 && layout->trainers() == 3);
  cr_expect(layout->ranks().at("n1") == std::vector<std::uint32_t>({0}));
  auto options = layout->rank_options();
  for (const char* wanted : {"--ntasks=1", "--nodelist=n1", "--gpus=3", "--cpus-per-task=6"})
    cr_expect(has(options, wanted), "%s", wanted);
  cr_expect(!layout->crowded() && !has(options, "--overcommit"));
  job.nodes = {{"n1", 2, 6}};
  cr_expect(layout->again(job)->world() == 1 && layout->again(job)->trainers() == 2);
  job.nodes = {{"n1", 0, 6}};
  layout = RankLayout::one_of(job);
  cr_expect(layout->world() == 1 && layout->trainers() == 3);
  cr_expect(!has(layout->rank_options(), "--gpus=0"));
  job.nodes = {{"n1", 1, 1}, {"n2", 1, 1}};
  layout = RankLayout::one_of(job);
  cr_assert(!layout.ok());
  cr_expect(layout.error().kind == ErrorKind::denied &&
            layout.error().text.find("--nodes=1") != std::string::npos);
}

Test(rank_layout, gives_tasks_to_a_job_without_gpus) {
  auto layout = RankLayout::of(job_with({{"n1", 0, 2}, {"n2", 0, 2}}));
  cr_assert(layout.ok());
  cr_expect(layout->world() == 3 && layout->gpus() == 0);
  cr_expect(has(layout->rank_options(), "--nodelist=n1,n1,n2"));
  cr_expect(!RankLayout::of(job_with({})).ok());
}

Test(srun_environment, drops_what_tells_the_first_size) {
  const char* environment[] = {"SLURM_NTASKS=2",    "SLURM_GPUS=2", "SLURM_NTASKS_PER_NODE=2",
                               "SLURM_JOB_ID=9",    "HOME=/home/a", "SLURM_NTASKSX=1",
                               "SLURM_HOSTFILE=/x", nullptr};
  auto kept = srun_environment(environment);
  cr_expect(kept ==
            std::vector<std::string>({"SLURM_JOB_ID=9", "HOME=/home/a", "SLURM_NTASKSX=1"}));
}

Test(srun_environment, keeps_the_launchers_own_steps_out_of_containers) {
  const char* environment[] = {"BELLOWS_CONTAINER_IMAGE=/i/a.sqsh", "PYXIS_CONTAINER_WRITABLE=1",
                               "HOME=/home/a", nullptr};
  cr_expect(host_step_environment(environment) ==
            std::vector<std::string>({"HOME=/home/a", "BELLOWS_CONTAINER_IMAGE=/"}));
}

Test(restart_budget, refills_with_progress_only) {
  RestartBudget budget(2);
  cr_expect(budget.spend(Blame::program, std::nullopt, 0));
  cr_expect(budget.spend(Blame::program, std::nullopt, 0));
  cr_expect(!budget.spend(Blame::program, std::nullopt, 0));
  RestartBudget moving(1);
  for (std::uint64_t step = 1; step < 100; ++step)
    cr_expect(moving.spend(Blame::program, step, step));
  cr_expect(!moving.spend(Blame::program, 99, 99));
  RestartBudget none(0);
  cr_expect(!none.spend(Blame::program, 5, 5));
}

Test(restart_budget, refills_with_training_that_nothing_could_store) {
  RestartBudget budget(1);
  for (std::uint64_t step = 100; step < 200; ++step)
    cr_expect(budget.spend(Blame::program, 50, step));
  cr_expect(!budget.spend(Blame::program, 50, 199));
}

Test(restart_budget, gives_a_full_file_system_time) {
  RestartBudget budget(0);
  std::chrono::seconds waited{0};
  while (budget.spend(Blame::storage, 50, 60)) waited += budget.pause();
  cr_expect(waited > std::chrono::minutes(30) && waited < std::chrono::hours(1));
  cr_expect(budget.spend(Blame::cluster, 51, 60) && budget.pause().count() == 0);
  for (std::uint32_t i = 1; i < RestartBudget::kMostOfCluster; ++i)
    cr_expect(budget.spend(Blame::cluster, 51, 60));
  cr_expect(!budget.spend(Blame::cluster, 51, 60));
  cr_expect(budget.pause().count() == 5);
}

Test(line_reader, cuts_lines_however_they_come) {
  LineReader reader;
  reader.feed("ab", 2);
  cr_expect(!reader.next());
  reader.feed("c\n\nde\nf", 7);
  cr_expect(reader.next() == "abc");
  cr_expect(reader.next() == "");
  cr_expect(reader.next() == "de");
  cr_expect(!reader.next());
  reader.feed("\n", 1);
  cr_expect(reader.next() == "f");
}

Test(line_reader, drops_a_line_without_end) {
  LineReader reader;
  std::string noise(LineReader::kMostBytes + 1, 'x');
  reader.feed(noise.data(), noise.size());
  reader.feed("tail\nnext\n", 10);
  cr_expect(reader.next() == "next");
  cr_expect(reader.dropped() == 1);
}

Test(event, survives_its_line_and_refuses_others) {
  JobEvent event{12.5, 7, 1, 2, "PROCESSING", "from \"here\"\n", 4, {"n1", "n2"}, 42};
  auto again = JobEvent::from_json(event.to_json());
  cr_assert(again.ok());
  cr_expect(again->to_json() == event.to_json() && again->step == 42u && again->nodes.size() == 2);
  cr_expect(event.to_json().find('\n') == std::string::npos);
  event.step.reset();
  event.cause = "\xff broken";
  cr_expect(JobEvent::from_json(event.to_json()).ok());
  for (const char* bad :
       {"", "{", "[]", "{\"time\":1}", "{\"time\":\"x\",\"job\":1,\"event\":\"A\"}",
        "{\"time\":1e300,\"job\":1,\"event\":\"A\"}", "{\"time\":-1,\"job\":1,\"event\":\"A\"}"})
    cr_expect(!JobEvent::from_json(bad).ok());
}

namespace {

JobView view_in(SlurmState state) {
  JobView view;
  view.job.id = 7;
  view.job.state = state;
  view.job.priority = 1;
  view.job.times.now = 1000;
  view.contract = Contract();
  return view;
}

JobEvent event_of(std::uint32_t restart, std::uint32_t attempt, const std::string& state,
                  const std::string& cause) {
  return {1, 7, restart, attempt, state, cause, 2, {}, 10};
}

bool says(const JobView& view, const std::string& state, const std::string& words) {
  const std::string last = view.last_words();
  const bool good = view.state() == state && last.find(words) != last.npos;
  cr_expect(good, "%s %s: %s", view.state().c_str(), words.c_str(), last.c_str());
  return good;
}

}  // namespace

Test(job_view, takes_the_state_from_slurm_first) {
  JobView view = view_in(SlurmState::running);
  cr_expect(view.state() == "RUNNING", "no launcher has begun");
  view.job.configuring = true;
  cr_expect(view.state() == "DEPLOYING");
  view.job.configuring = false;
  view.events.push_back({1, 7, 0, 0, "QUEUED", "submitted", 2, {}, {}});
  cr_expect(view.state() == "DEPLOYING");
  view.events.push_back(event_of(0, 1, "PROCESSING", ""));
  cr_expect(view.state() == "PROCESSING" && view.step() == 10u);
  view.job.restarts = 1;
  cr_expect(view.state() == "RUNNING", "an older run's events say nothing");
  view.job.state = SlurmState::pending;
  cr_expect(view.state() == "QUEUED");
  view.events.back().event = "RESIZING";
  cr_expect(view.state() == "RESIZING");
  view.job.priority = 0;
  cr_expect(view.state() == "HALTED");
  view.job.state = SlurmState::timeout;
  cr_expect(view.state() == "FAILED");
}

Test(job_view, shows_that_models_are_loaded) {
  JobView view = view_in(SlurmState::running);
  view.loading = {{"n1", 12 << 20, 100 << 20}, {"n2", 1 << 20, 0}};
  cr_expect(view.state() == "RUNNING" && !view.may_be_loading(), "it named none");
  view.contract->extra.emplace_back(Contract::kModelsKey, "llama");
  view.job.nodes = {NodeShare{}};
  says(view, "DOWNLOADING", "being loaded: 12.0 MiB of 100.0 MiB on n1, 1.0 MiB on n2");
  view.events.push_back(event_of(0, 1, "PROCESSING", ""));
  says(view, "DOWNLOADING", "on n1");
  view.events.push_back(event_of(0, 1, "CHECKPOINTING", "saves"));
  says(view, "CHECKPOINTING", "saves");
  view.events.back() = event_of(0, 1, "PROCESSING", "committed step 10");
  view.events.back().note = EventNote::committed;
  says(view, "PROCESSING", "committed step 10");
  view.job.restarts = 1;
  cr_expect(view.may_be_loading(), "a new run loads them anew");
  view.job.configuring = true;
  cr_expect(!view.may_be_loading());
  view.job.configuring = false;
  view.job.state = SlurmState::pending;
  cr_expect(!view.may_be_loading() && view.state() == "QUEUED");
}

Test(job_view, takes_of_nodes_only_what_they_can_say) {
  const std::set<std::string> nodes = {"n1", "n2"};
  const auto said = parse_model_progress("srun: x\nn1 5 10\nn1 6 10\nn3 1 2\nn2 3 0\n", nodes);
  cr_assert_eq(said.size(), 2);
  cr_expect(said[0].node == "n1" && said[0].read_bytes == 5 && said[0].bytes == 10);
  cr_expect(said[1].node == "n2" && said[1].read_bytes == 3 && said[1].bytes == 0);
  for (const char* bad : {"n1 11 10", "n1 -1 10", "n1 1", "n1 1 2 3", "n1  2", ""})
    cr_expect(parse_model_progress(bad, nodes).empty(), "%s", bad);
}

Test(job_view, says_nothing_that_the_state_contradicts) {
  JobView view = view_in(SlurmState::running);
  says(view, "RUNNING", "no 'bellows run' has started");
  view.events.push_back(event_of(0, 1, "PROCESSING", "committed step 10"));
  says(view, "PROCESSING", "committed step 10");
  view.job.state = SlurmState::cancelled;
  cr_expect(says(view, "CANCELLED", "cancelled") &&
            view.last_words().find("step") == std::string::npos);
  view.job.state = SlurmState::timeout;
  says(view, "FAILED", "time limit");
  view.job.state = SlurmState::failed;
  view.job.exit_status = 3 << 8;
  view.job.output = "/home/a/slurm-7.out";
  says(view, "FAILED", "exited with status 3; its output is in /home/a/slurm-7.out");
  view.events.push_back(event_of(0, 1, "FAILED", "rank 1 on n2 was killed"));
  says(view, "FAILED", "rank 1 on n2 was killed");
  view.job.restarts = 1;
  says(view, "FAILED", "exited with status 3");
  view.job.state = SlurmState::completed;
  says(view, "COMPLETED", "the batch script has ended");
}

Test(job_view, tells_how_long_a_job_waits) {
  JobView view = view_in(SlurmState::pending);
  view.job.reason = "Resources";
  cr_expect(view.last_words() == "waits: Resources");
  view.job.times.start = 1060;
  cr_expect(view.last_words() == "waits: Resources, start planned in 60 s");
  view.job.times.start = 1000 + 365 * 86400;
  cr_expect(view.last_words() == "waits: Resources", "a year is no plan");
  view.job.reason = "BeginTime";
  view.job.times.begin = view.job.times.start = 1121;
  cr_expect(view.last_words() == "waits at least 2:01 min: BeginTime");
  view.job.times.begin = 1000 + 3 * 86400 + 60;
  cr_expect(view.last_words() == "waits at least 3 days: BeginTime");
  view.events.push_back(event_of(0, 1, "QUEUED", "node n2 was lost"));
  cr_expect(says(view, "QUEUED", "BeginTime; previously: node n2 was lost"));
  view.job.priority = 0;
  view.job.reason = "JobHeldUser";
  says(view, "HALTED", "held: JobHeldUser");
}

namespace {

void same(const std::string& got, const std::string& wanted) {
  cr_expect(got == wanted, "%s", got.c_str());
}

}  // namespace

Test(table, fits_the_width) {
  Table table({{"JOB", true}, {"NAME", false, 6, 1}, {"GPUS", true, 0, 2}, {"LAST"}});
  table.add({"7", "name", "2", "waits: Resources"});
  table.add(
      {"12", "too-long-a-name", "16", "a sentence that is longer than what is left of a line"});
  same(table.text(0),
       "JOB NAME   GPUS LAST\n"
       "  7 name      2 waits: Resources\n"
       " 12 too...   16 a sentence that is longer than what is left of a line\n");
  same(table.text(52),
       "JOB NAME   GPUS LAST\n"
       "  7 name      2 waits: Resources\n"
       " 12 too...   16 a sentence that is longer than wh...\n");
  same(table.text(45),
       "JOB NAME   LAST\n"
       "  7 name   waits: Resources\n"
       " 12 too... a sentence that is longer than ...\n");
  same(table.text(20),
       "JOB LAST\n"
       "  7 waits: Resources\n"
       " 12 a sentence th...\n");
  for (std::size_t width = 1; width < 10; ++width) cr_expect(!table.text(width).empty());
}

Test(terminal, counts_and_cuts_characters) {
  cr_expect(shown_width("\xc3\xa4\xc3\xb6") == 2);
  cr_expect(cut_to("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6", 4) == "\xc3\xa4...");
  cr_expect(cut_to("abc", 3) == "abc" && cut_to("abcd", 3) == "..." && cut_to("abcd", 0).empty());
  cr_expect(wrapped("one two three", 9, 2) == "one two\n  three");
  cr_expect(wrapped("one\ntwo", 80, 2) == "one\n  two" && wrapped("a b", 0, 0) == "a b");
  cr_expect(wrapped("a-word-that-is-longer than", 10, 0) == "a-word-that-is-longer\nthan");
  int ends[2];
  cr_assert(pipe(ends) == 0);
  cr_expect(terminal_width(ends[0]) == 0);
}

Test(child, reports_how_it_ended, .timeout = 20) {
  auto exits = shell("exit 3");
  cr_assert(exits.ok());
  cr_expect(wait_for(*exits).code() == 3);
  auto killed = shell("kill -9 $$");
  cr_assert(killed.ok());
  ChildExit exit = wait_for(*killed);
  cr_expect(exit.code() == 137 && !exit.ok());
  cr_expect(exit.to_string() == "was killed by signal 9 (Killed)");
  ChildOptions missing;
  missing.command = {"/nonexistent/program"};
  auto none = Child::start(missing);
  cr_expect(!none.ok() && none.error().kind == ErrorKind::not_found);
}

Test(child, speaks_through_pipes_and_dies_with_its_owner, .timeout = 20) {
  pid_t pid;
  {
    auto cat = shell("cat", true);
    cr_assert(cat.ok());
    pid = cat->pid();
    LineWriter writer;
    writer.add("hello");
    cr_expect(writer.flush(cat->in()) && writer.empty());
    pollfd fd{cat->out(), POLLIN, 0};
    cr_assert(poll(&fd, 1, 5000) == 1);
    LineReader reader;
    cr_expect(reader.fill(cat->out()));
    cr_expect(reader.next() == "hello");
  }
  cr_expect(kill(pid, 0) != 0);
}
