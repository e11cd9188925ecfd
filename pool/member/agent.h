// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/event_loop.h"
#include "common/fd.h"
#include "common/result.h"
#include "pool/member/gpu_meter.h"
#include "pool/member/keeper_line.h"
#include "pool/member/member_notes.h"
#include "pool/member/program_lines.h"
#include "pool/member/scraper.h"
#include "pool/member/usage.h"

namespace bellows::pool {

struct MemberOptions {
  std::vector<std::string> command;
  std::string pool_dir;
  std::string host;                ///< by which callers reach this node
  std::uint32_t job = 0;           ///< Slurm's
  std::uint16_t port = 0;          ///< at which the program will take calls; 0: it says so itself
  std::string scrape_url;          ///< of the program's metrics; empty: it is not asked
  MetricNames scrape_names;        ///< those to keep
  std::chrono::seconds drain{30};  ///< where Slurm ends the job, and the keeper has not said
};

/// The process beside a member's program: starts it, tells the keeper how it is, and ends it when
/// the pool does not want it any more.
class MemberAgent {
 public:
  using Clock = EventLoop::Clock;
  using Say = std::function<void(const std::string&)>;

  /// `signals`: a signalfd of SIGTERM, SIGINT and SIGCHLD. `folder`: for the socket.
  MemberAgent(EventLoop& loop, const Fd& signals, MemberOptions options, Say say);
  MemberAgent(const MemberAgent&) = delete;
  MemberAgent& operator=(const MemberAgent&) = delete;

  Status start(const PoolKey& key, const std::string& folder);
  /// Until the program has ended. Its exit code, as a shell has it.
  int run();

 private:
  struct Ending {
    bool begun = false;
    Clock::time_point term_at = Clock::time_point::max();
    Clock::time_point kill_at = Clock::time_point::max();
  };

  void on_signal();
  void on_bell();
  Status start_scraper();
  void on_scrape();
  void drain(std::chrono::seconds within, const char* why);
  void drive_end(Clock::time_point now);
  void look(Clock::time_point now);
  void keep_shared(Clock::time_point now);
  void end_shared();
  void look_at_port();
  Report report(Clock::time_point now) const;
  Clock::time_point next_turn(Clock::time_point now) const;

  EventLoop& loop_;
  const Fd& signals_;
  const MemberOptions options_;
  const Say say_;
  const std::uint64_t incarnation_;
  MemberNotes notes_;
  bool port_taken_ = false;     ///< by another user, and it has been said
  std::uint64_t ready_ms_ = 0;  ///< since 1970, when it was ready first; 0: not yet
  Usage usage_;
  std::unique_ptr<GpuMeter> gpus_;
  std::unique_ptr<ProgramLines> lines_;
  std::unique_ptr<KeeperLine> keeper_;
  EventLoop::Watch signal_watch_;
  EventLoop::Watch bell_watch_;
  std::optional<Child> program_;
  std::optional<Child> shared_;  ///< a server of the pool's fields, or its spare
  Clock::time_point shared_at_;
  std::string trouble_;
  ScrapeNotes scrape_notes_;
  std::unique_ptr<Scraper> scraper_;
  EventLoop::Watch scrape_watch_;
  std::string scrape_trouble_;
  Clock::time_point look_at_;
  Clock::time_point send_at_;
  Ending ending_;
};

}  // namespace bellows::pool
