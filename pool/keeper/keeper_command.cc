// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/keeper_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "common/contract.h"
#include "common/controller_address.h"
#include "common/listen_at.h"
#include "common/munge/munge.h"
#include "common/own_process.h"
#include "common/say_line.h"
#include "common/text.h"
#include "elastic/wire/client.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/job_paths.h"
#include "pool/keeper/keeper.h"
#include "pool/keeper/proxy_members.h"
#include "pool/keeper/slurm_cluster.h"
#include "pool/keeper/supervisor.h"
#include "pool/proxy/proxy_config.h"
#include "pool/proxy/proxy_link.h"
#include "pool/wire/node_place.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

constexpr std::chrono::milliseconds kTurn{500};
constexpr std::chrono::seconds kAskAgain{1};
/// bellowsd, at each of its addresses.
constexpr std::chrono::seconds kAnswersWithin{3};
/// Members that drain are in a slot beside those that come in their place.
constexpr std::uint32_t kProxySlots = 2;

/// Set by a signal; nothing else may be done in its handler.
volatile std::sig_atomic_t stop_signal = 0;

void note_signal(int number) { stop_signal = number; }

void say(const std::string& text) { say_line("bellows pool keeper", text); }

int failed(const std::string& text) {
  say(text);
  return kFailed;
}

/// Whoever is stopped is to come back, so only the end of the pool is success.
int keep(PoolKeeper& keeper) {
  while (stop_signal == 0) {
    switch (keeper.turn(Clock::now())) {
      case KeeperTurn::pool_ended:
        say("the pool has ended");
        return kOk;
      case KeeperTurn::replaced:
        return kFailed;
      case KeeperTurn::goes_on:
        keeper.wait(kTurn);
    }
  }
  say("stops; the members go on, and the next keeper finds them");
  return 128 + stop_signal;
}

/// What is read once, before there are two processes.
struct Start {
  std::string dir;
  KeeperRun run;
  PoolKey key;
  PoolSettings settings;
  ProxyOptions proxy;
  std::string proxy_config;
};

/// Where the contract of the keeper's job says that bellowsd divides the GPUs.
std::optional<SizeLimit::Ask> limit_of(const SlurmCluster& cluster) {
  const char* const line = std::getenv(Contract::kVariable);
  const auto contract = Contract::parse(line ? line : "");
  if (!contract) return std::nullopt;
  const std::string_view text = contract->extra_value(Contract::kControllerKey);
  if (text.empty()) return std::nullopt;
  const auto address = ControllerAddress::parse(text);
  if (!address) {
    say(address.error().text + "; bellowsd does not limit this pool");
    return std::nullopt;
  }
  return [at = *address, user = cluster.slurm_user(),
          munge = Munge(munge_socket_of(cluster.auth_info()))](
             const ServiceReport& report) -> Result<ServiceReply> {
    const auto answer =
        ask_controller(at, user, munge, Call::service, to_json(report), kAnswersWithin);
    if (!answer) return answer.error();
    return parse_service_reply(answer->body);
  };
}

/// This run of the job, which is asked for until Slurm answers. Only then there is a term for it: a
/// run that was cut off must not pass for the newest.
Result<KeeperRun> begin_run(const std::string& dir) {
  const auto id = job_id_from_environment();
  if (!id) return KeeperRun{.term = next_term(dir)};
  SlurmClient slurm;
  std::string said;
  for (;; std::this_thread::sleep_for(kAskAgain)) {
    auto job = slurm.job(*id);
    if (!job && job.error().kind != ErrorKind::unavailable) return job.error();
    if (!job && std::exchange(said, job.error().text) != job.error().text) say(said);
    if (!job) continue;
    const char* const count = std::getenv("SLURM_RESTART_COUNT");
    const std::uint64_t restarts = count ? parse_uint(count).value_or(0) : 0;
    if (job->state == SlurmState::running && job->restarts <= restarts)
      return KeeperRun{.job = std::move(*job), .term = next_term(dir)};
    return Error{ErrorKind::busy,
                 fmt::format("Slurm has ended this run of job {}, or has started it again", *id)};
  }
}

int work(const Start& start) {
  const auto orders = read_orders(start.dir);
  if (!orders) return failed(orders.error().text);
  for (const int number : {SIGTERM, SIGINT}) signal(number, note_signal);
  auto policy = read_policy(start.dir, start.settings);
  if (!policy) return failed(policy.error().text);
  SlurmCluster cluster(start.settings.name, start.dir, start.run.job.id);
  PoolKeeper keeper(start.dir, start.settings, std::move(*policy), *orders, start.run, cluster,
                    say);
  if (auto limit = limit_of(cluster)) keeper.set_limit(*std::move(limit));
  ProxyMembers names;
  ProxyLink proxy(start.proxy, start.proxy_config, start.settings.max * kProxySlots);
  std::string trouble;
  if (start.settings.http_port != 0)
    keeper.set_proxy(fmt::format("{}:{}", own_host_name(), start.settings.http_port),
                     [&](const Members& members) {
                       const Status set = proxy.set(names.of(members));
                       if (!set && set.error().text != trouble) say(set.error().text);
                       trouble = set ? "" : set.error().text;
                       return set.ok();
                     });
  if (const Status open = keeper.open(start.key, own_host_name()); !open)
    return failed(open.error().text);
  say("keeps pool " + start.settings.name);
  return keep(keeper);
}

/// Debian has it in a folder that is not in the users' PATH.
std::string proxy_program() {
  constexpr const char* kUsual = "/usr/sbin/haproxy";
  return access(kUsual, X_OK) == 0 ? kUsual : "haproxy";
}

/// HAProxy beside the keeper. Its requests come by a socket that outlives it.
Result<Fd> prepare_proxy(const SocketFolder& folder, Start& start, SupervisorOptions& options) {
  auto listener = listen_on(start.settings.http_port);
  if (!listener) return listener.error();
  start.proxy.runtime_socket = folder.path() + "/haproxy";
  start.proxy_config = folder.path() + "/haproxy.cfg";
  const ProxyLink proxy(start.proxy, start.proxy_config, start.settings.max * kProxySlots);
  if (const Status written = proxy.begin(); !written) return written.error();
  // What it says of each change goes to a file of its own, and not beyond what one start says.
  const std::vector<std::string> command = {"sh",
                                            "-c",
                                            "exec \"$0\" -db -f \"$1\" 2>\"$2\"",
                                            proxy_program(),
                                            start.proxy_config,
                                            start.dir + "/log/haproxy.out"};
  options.helpers.push_back({"HAProxy", command, listener->get()});
  return std::move(*listener);
}

int run(const std::string& name) {
  Start start;
  const auto dir = find_pool(name);
  if (!dir) return failed(dir.error().text);
  start.dir = *dir;
  auto key = read_key(*dir);
  if (!key) return failed(key.error().text);
  start.key = std::move(*key);
  auto settings = read_settings(*dir);
  if (!settings) return failed(settings.error().text);
  start.settings = std::move(*settings);
  if (const Status usable = SlurmClient::usable(); !usable) return failed(usable.error().text);
  auto begun = begin_run(*dir);
  if (!begun) return failed(begun.error().text);
  start.run = std::move(*begun);
  signal(SIGPIPE, SIG_IGN);
  const SocketFolder folder;
  if (folder.path().empty()) return failed(errno_error("make", "a folder for sockets").text);
  SupervisorOptions options{.work = [&start] { return work(start); }, .helpers = {}, .say = say};
  Fd listener;
  if (start.settings.http_port != 0) {
    auto prepared = prepare_proxy(folder, start, options);
    if (!prepared) return failed(prepared.error().text);
    listener = std::move(*prepared);
  }
  if (access((start.dir + "/shared").c_str(), F_OK) == 0)
    options.helpers.push_back(
        {"the server of the shared fields",
         {helper_program("bellows-pool-shared"), start.dir, own_host_name()}});
  return Supervisor(std::move(options)).run();
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
