// SPDX-License-Identifier: Apache-2.0
#include "pool/member/member_command.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>

#include "common/fd.h"
#include "common/own_process.h"
#include "common/say_line.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/job_paths.h"
#include "pool/member/agent.h"
#include "pool/policy/pool_policy.h"
#include "pool/wire/node_place.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

struct Options {
  std::vector<std::string> command;
  std::optional<std::uint32_t> port;
  std::uint32_t drain = 25;
  std::string host;
  std::string scrape;
};

void say(const std::string& text) { say_line("bellows pool member", text); }

Fd open_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

int failed(const std::string& text) {
  say(text);
  return kFailed;
}

/// Those that the pool's policy has a target for: a pool without a policy needs none.
Result<MetricNames> read_scrape_names(const std::string& dir) {
  const std::string path = policy_file(dir);
  const auto text = read_file(path, kMostPolicyBytes);
  if (!text && text.error().kind == ErrorKind::not_found) return MetricNames();
  if (!text) return text.error();
  const auto policy = read_pool_policy(*text, path);
  if (!policy) return policy.error();
  MetricNames targets;
  for (const TargetRule& rule : policy->targets) targets.insert(rule.metric);
  if (policy->script)
    targets.insert(policy->script->names().begin(), policy->script->names().end());
  return names_to_scrape(targets);
}

int run(const Options& options) {
  const char* const dir = std::getenv("BELLOWS_POOL");
  const auto job = job_id_from_environment();
  if (!dir || !*dir || !job) {
    say("this is no member of a pool: it belongs into the batch script that is given to `bellows "
        "pool create`");
    return kUsage;
  }
  const auto key = read_key(dir);
  if (!key) return failed(key.error().text);
  auto names = options.scrape.empty() ? MetricNames() : read_scrape_names(dir);
  if (!names) return failed(names.error().text);
  if (!options.scrape.empty() && names->empty())
    say("the pool's policy has no target for a metric of the program, so --scrape does nothing");
  // Before gRPC has threads, which would take the signals.
  const Fd signals = open_signals();
  auto loop = EventLoop::make();
  if (!loop || !signals) return failed("can't make an epoll or a signalfd");
  const SocketFolder folder;
  if (folder.path().empty()) return failed(errno_error("make", "a folder for a socket").text);
  MemberAgent agent(**loop, signals,
                    {.command = options.command,
                     .pool_dir = dir,
                     .host = options.host.empty() ? own_host_name() : options.host,
                     .job = *job,
                     .port = static_cast<std::uint16_t>(options.port.value_or(0)),
                     .scrape_url = names->empty() ? "" : options.scrape,
                     .scrape_names = std::move(*names),
                     .drain = std::chrono::seconds(options.drain)},
                    say);
  if (const Status started = agent.start(*key, folder.path()); !started)
    return failed(started.error().text);
  return agent.run();
}

}  // namespace

void add_member_command(CommandLine& pool) {
  CommandLine command = pool.add_command(
      "member", "In a pool's batch script: run the program of a member, and its agent");
  const auto options = std::make_shared<Options>();
  command
      .add_option(
          "--port", options->port,
          "The program takes calls at this port, and is ready once it does (default: it says "
          "so itself)")
      .value_name("PORT")
      .between(1, 65535);
  command
      .add_option("--drain", options->drain,
                  "Seconds that the program has to end when Slurm ends the job; less than KillWait")
      .value_name("SECONDS")
      .show_default();
  command.add_option("--host", options->host,
                     "The name by which callers reach this node (default: its host name)");
  command
      .add_option("--scrape", options->scrape,
                  "Where on this node the program tells its metrics in Prometheus' text form; "
                  "those that the pool's policy names are taken each second")
      .value_name("URL")
      .check(scrape_url_complaint);
  command.add_option("CMD", options->command, "The program, behind --").required();
  command.positionals_at_end();
  command.run([options] { return run(*options); });
}

}  // namespace bellows::pool
