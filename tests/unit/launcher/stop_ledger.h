// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "launcher/machine/action.h"
#include "launcher/machine/input.h"

namespace bellows {

/// What a run promised of its stop and what came of it, from the actions and inputs alone: the
/// machine's own notes may be wrong in the same way as what it does.
class StopLedger {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Before the machine takes the input.
  void hear(const Input& input, Time now);
  /// What must not be ordered, or null.
  const char* note(const Action& action, Time now);

  /// The step at which ranks and clients were told that all stop.
  std::optional<std::uint64_t> promised() const { return promised_; }
  /// The agents have told of the commit of that step, or of a later one.
  bool kept() const;
  /// Slurm said last that the job is no longer running.
  bool job_is_over() const { return over_; }

 private:
  /// Whether it is news that a run may wait on.
  bool hear_event(const std::string& node, const event::Shard& shard);
  bool hear_event(const std::string& node, const event::Committed& committed);
  bool hear_event(const std::string& node, const event::Progress& progress);
  bool hear_event(const std::string& node, const event::CommandFailed& failed);
  bool hear_event(const std::string& node, const event::RestoreError& failed);
  bool hear_event(const std::string&, const event::SaveError&) { return true; }
  bool hear_event(const std::string&, const event::StopSet&) { return true; }
  bool hear_event(const std::string&, const auto&) { return false; }
  const char* note_sent(const Command& command, Time now);
  const char* note_reply(const std::string& text);
  const char* promise(std::uint64_t step);
  void begin_ranks(const RankLayout& layout, Time now);
  bool is_outstanding() const { return promised_ && !kept(); }
  bool is_complete() const;
  bool is_settled() const;
  bool may_leave() const;

  bool over_ = false;
  // The agents.
  bool agents_ = false;
  bool closed_ = false;  ///< they were told to end, and commit nothing after that
  bool lost_ = false;    ///< one of them has died
  // The attempt.
  std::size_t world_ = 0;
  std::size_t nodes_ = 0;
  Time begun_{};        ///< it, and then its ranks
  bool gated_ = false;  ///< the agents were asked where to stop
  bool fault_ = false;  ///< something went wrong before its ranks ended
  std::optional<std::uint64_t> promised_;
  std::map<std::uint64_t, std::set<std::uint32_t>> parts_;  ///< step -> ranks that gave theirs
  std::map<std::uint64_t, std::uint64_t> failed_;           ///< step -> number of its failure
  std::set<std::uint64_t> committed_;
  // The time after the ranks' end in which agents write and commit.
  std::optional<std::uint64_t> query_;
  std::map<std::string, std::uint32_t> unwritten_;  ///< node -> parts that it has yet to write
  Time news_{};
  bool excused_ = false;  ///< nobody need wait for the commit any more
};

}  // namespace bellows
