// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/own_checkpoint.h"

#include <fmt/core.h>

#include <csignal>
#include <cstring>

#include "common/text.h"
#include "launcher/machine/stop_clock.h"

namespace bellows {
namespace {

OwnStopEnd judge_ended_ranks(const OwnCheckpoint& how, const ChildExit& ranks) {
  if (!how.stopped_status) return ranks.ok() ? OwnStopEnd::saved : OwnStopEnd::unsaved;
  if (ranks.code() == *how.stopped_status) return OwnStopEnd::saved;
  return ranks.ok() ? OwnStopEnd::finished : OwnStopEnd::unsaved;
}

}  // namespace

std::string OwnCheckpoint::describe() const {
  if (signal != 0)
    return fmt::format("the ranks get SIG{} and have {} s to save and exit", sigabbrev_np(signal),
                       grace);
  return fmt::format("'{}' has {} s to make the program save", command, grace);
}

std::string OwnCheckpoint::complaint(const SlurmGrace& slurm) const {
  // Slurm itself sends SIGTERM to the ranks.
  const std::uint32_t given =
      slurm.preempt == 0 && signal == SIGTERM ? slurm.kill_wait : slurm.preempt;
  if (!possible() || !slurm.preempts || given >= grace) return "";
  return fmt::format(
      "the program may take {} s to save, but Slurm gives a preempted job here {}: after a "
      "preemption it continues from what it saved before that",
      grace,
      given > slurm.preempt ? fmt::format("{} s (KillWait)", given) : time_of_preemption(slurm));
}

std::optional<int> parse_signal(const std::string& text) {
  const auto number = parse_uint(text);
  const std::string name = text.starts_with("SIG") ? text.substr(3) : text;
  for (int i = 1; i < NSIG; ++i) {
    const char* known = sigabbrev_np(i);
    const bool meant = number ? *number == static_cast<std::uint64_t>(i) : known && name == known;
    if (meant && known && i != SIGKILL && i != SIGSTOP) return i;
  }
  return std::nullopt;
}

OwnStopEnd judge_own_stop(const OwnCheckpoint& how, const OwnStopFacts& facts) {
  if (facts.ranks && facts.told_finished) return OwnStopEnd::finished;
  const bool runs = !how.command.empty() && !facts.command && !facts.out_of_time;
  if (!facts.lost.empty() && !runs)
    return facts.command && facts.command->ok() ? OwnStopEnd::saved : OwnStopEnd::unsaved;
  if (how.command.empty()) {
    if (facts.ranks) return judge_ended_ranks(how, *facts.ranks);
    return facts.out_of_time ? OwnStopEnd::unsaved : OwnStopEnd::waiting;
  }
  if (runs) return OwnStopEnd::waiting;
  const bool done = facts.command && facts.command->ok();
  if (!facts.ranks)
    return done ? OwnStopEnd::saved : facts.may_refuse ? OwnStopEnd::refused : OwnStopEnd::unsaved;
  // Ranks that were not told to end have ended by themselves.
  if (!done && facts.ranks->ok()) return OwnStopEnd::finished;
  return judge_ended_ranks(how, *facts.ranks);
}

}  // namespace bellows
