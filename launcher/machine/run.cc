// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/run.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launcher/ranks/rank_command.h"

namespace bellows {

Run::Run(RunRules the_rules, SlurmJob the_job, RankLayout the_layout)
    : rules(std::move(the_rules)),
      job(std::move(the_job)),
      layout(std::move(the_layout)),
      cause(job.restarts == 0 ? "started" : fmt::format("restart {}", job.restarts)),
      hang(rules.hang_floor),
      gang(rules.start_limit),
      budget(rules.max_restarts) {}

void Run::record(const std::string& event, const std::string& why, EventNote note) {
  JobEvent line{0,   job.id,        job.restarts,   attempt.number,        event,
                why, layout.gpus(), layout.nodes(), progress.newest_commit};
  if (progress.newest_step > 0) line.reached = progress.newest_step;
  line.note = note;
  act(action::Record{std::move(line)});
}

void Run::send(const Command& command) {
  if (agents.there) act(action::SendAgents{command});
}

void Run::reply(std::uint64_t client, const std::string& json) {
  if (client != 0) act(action::Reply{client, json});
}

void Run::refuse(std::uint64_t client, const std::string& why) {
  reply(client, nlohmann::json{{"event", "error"}, {"error", why}}.dump());
}

void Run::note_fault(const std::string& why, Blame blame, int exit_code) {
  if (fault.pending) return;
  say(why);
  fault.pending = true;
  fault.hang = false;
  fault.at = now;
  fault.blame = blame;
  fault.exit_code = exit_code;
  cause = why;
  doubts.ask_job = true;
}

void Run::drop_hang(const std::string& why) {
  say("no hang after all: " + why);
  fault.pending = fault.hang = false;
  doubts.ask_job = doubts.term_came;
  hang.excuse(now);
}

void Run::note_unused(const std::string& when) {
  if (!attempt.joined.empty() || told.unused || rules.own.possible()) return;
  told.unused = true;
  say(when +
      ": without libbellows each restart is from what the program may have saved by itself; with "
      "--checkpoint-signal or --checkpoint-cmd it can be made to save, see bellows-run(1)");
}

void Run::drop_agents() {
  if (agents.there) act(action::DropAgents{});
  agents = {};
}

void Run::drop_ranks() {
  if (ranks.there) act(action::DropRanks{});
  ranks = {};
}

void Run::dismiss_agents() {
  if (!agents.there || !agents.open) return;
  agents.open = false;
  act(action::DismissAgents{});
}

double Run::seconds() const {
  return std::chrono::duration<double>(now.time_since_epoch()).count();
}

std::string Run::ranks_step_name() const { return fmt::format("{}{}", kRanksStep, attempt.number); }

bool Run::drained() const {
  return agent_lost() ? saves.drained_without_agent(now)
                      : saves.drained(layout.nodes().size(), now);
}

}  // namespace bellows
