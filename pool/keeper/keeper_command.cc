// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/keeper_command.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>

#include "common/say_line.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/job_paths.h"
#include "pool/keeper/keeper.h"
#include "pool/keeper/slurm_cluster.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

constexpr std::chrono::milliseconds kTurn{500};

/// Set by a signal; nothing else may be done in its handler.
volatile std::sig_atomic_t stop_signal = 0;

void note_signal(int number) { stop_signal = number; }

void say(const std::string& text) { say_line("bellows pool keeper", text); }

int failed(const std::string& text) {
  say(text);
  return kFailed;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// Whoever is stopped is to come back, so only the end of the pool is success.
int keep(PoolKeeper& keeper) {
  while (stop_signal == 0) {
    if (keeper.turn(Clock::now())) {
      say("the pool has ended");
      return kOk;
    }
    keeper.wait(kTurn);
  }
  say("stops; the members go on, and the next keeper finds them");
  return 128 + stop_signal;
}

int run(const std::string& name) {
  const auto dir = find_pool(name);
  if (!dir) return failed(dir.error().text);
  const auto key = read_key(*dir);
  const auto settings = read_settings(*dir);
  if (!key) return failed(key.error().text);
  if (!settings) return failed(settings.error().text);
  const auto orders = read_orders(*dir);
  if (!orders) return failed(orders.error().text);
  if (const Status usable = SlurmClient::usable(); !usable) return failed(usable.error().text);
  for (const int number : {SIGTERM, SIGINT}) signal(number, note_signal);
  signal(SIGPIPE, SIG_IGN);
  SlurmCluster cluster(name, *dir);
  PoolKeeper keeper(*dir, *settings, *orders, job_id_from_environment().value_or(0), cluster, say);
  if (const Status open = keeper.open(*key, host_name()); !open) return failed(open.error().text);
  say("keeps pool " + name);
  return keep(keeper);
}

}  // namespace

void add_keeper_command(CommandLine& pool) {
  CommandLine command =
      pool.add_command("keeper", "In the job of a pool's keeper: hold the pool at its size");
  const auto name = std::make_shared<std::string>();
  command.add_option("NAME", *name, "The pool").required();
  command.run([name] { return run(*name); });
}

}  // namespace bellows::pool
