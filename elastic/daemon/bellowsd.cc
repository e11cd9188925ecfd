// SPDX-License-Identifier: Apache-2.0
// bellowsd: changes the sizes of elastic jobs. See bellowsd(8).
#include <fmt/core.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "config.h"
#include "elastic/daemon/leadership.h"
#include "elastic/daemon/policy_source.h"
#include "elastic/daemon/server.h"
#include "slurm/conf_path.h"
#include "slurm/places_client.h"

namespace bellows {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr timespec kPeriod{0, 250'000'000};

struct Options {
  std::string config;
  std::string listen;
  std::string lock;
  bool dry_run = false;
};

/// Where the log can't be written, it goes on without.
void say(const std::string& text) {
  (void)std::fputs(fmt::format("bellowsd: {}\n", text).c_str(), stderr);
}

class SystemUsers final : public UserNames {
 public:
  std::string name_of(uid_t uid) override {
    std::array<char, 16384> buffer;
    passwd entry = {};
    passwd* found = nullptr;
    getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
    return found ? found->pw_name : "";
  }
};

/// Signals are taken by sigtimedwait, the loop's pause.
sigset_t block_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, number);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return ends;
}

/// True: a signal asks for the end.
bool pause_for_signal(const sigset_t& ends) {
  const int signal = sigtimedwait(&ends, nullptr, &kPeriod);
  return signal == SIGTERM || signal == SIGINT;
}

class Daemon {
 public:
  Daemon(const Options& options, const sigset_t& ends)
      : options_(options),
        ends_(ends),
        policy_(options.config),
        places_(slurm_),
        server_(Munge(munge_socket_of(slurm_.auth_info())), {book_, services_, board_, metrics_}),
        leadership_(options.lock.empty() ? slurm_.state_save_location() + "/bellowsd.lock"
                                         : options.lock),
        controller_({slurm_, places_, book_, services_, users_, board_, metrics_}, say,
                    stock_requeue_delay(slurm_.auth_info()), options.dry_run) {}

  int run() {
    const auto& policy = policy_.current();
    if (!policy) {
      say(policy_.trouble().value_or("there is no policy"));
      return kFailed;
    }
    const auto at = address(*policy);
    const Status listening = at ? server_.listen(*at) : Status(at.error());
    if (!listening) {
      say(listening.error().text);
      return kFailed;
    }
    say(fmt::format("{} listens on {}:{}", PACKAGE_VERSION, at->host, at->port));
    while (!pause_for_signal(ends_))
      if (!leads()) return kFailed;
    say("ends; jobs go on without it");
    return 0;
  }

 private:
  Result<HostPort> address(const Policy& policy) const {
    if (!options_.listen.empty()) return parse_host_port(options_.listen);
    return HostPort{"0.0.0.0", policy.controller->address.hosts.front().port};
  }

  /// One turn of the loop. False: it cannot go on.
  bool leads() {
    // One that orders nothing needs no lock, and must not get it when the other starts anew.
    const auto held = options_.dry_run ? Result<bool>(true) : leadership_.held();
    if (!held) {
      say(held.error().text);
      return false;
    }
    const auto& policy = policy_.current();
    if (const auto trouble = policy_.trouble()) say(*trouble + "; the policy before it stays");
    if (*held && !told_) say("decides");
    told_ |= *held;
    server_.set_active(*held);
    if (*held) controller_.tick(*policy, Controller::Clock::now());
    return true;
  }

  const Options& options_;
  const sigset_t& ends_;
  PolicySource policy_;
  SlurmClient slurm_;
  PlacesClient places_;
  JobBook book_;
  ServiceBook services_;
  PlanBoard board_;
  Metrics metrics_;
  SystemUsers users_;
  ControllerServer server_;
  Leadership leadership_;
  Controller controller_;
  bool told_ = false;
};

int run(int argc, char** argv) {
  Options options{.config = default_policy_path(), .listen = {}, .lock = {}};
  CLI::App app("bellowsd: changes the sizes of elastic jobs on Slurm");
  app.set_version_flag("--version", "bellowsd " PACKAGE_VERSION);
  app.add_option("--config", options.config, "bellows.yaml")->capture_default_str();
  app.add_option("--listen", options.listen,
                 "HOST:PORT to listen on (default: every address, the port of bellows.yaml)");
  app.add_option("--lock", options.lock,
                 "File whose lock decides which of several bellowsd acts (default: bellowsd.lock "
                 "in StateSaveLocation)");
  app.add_flag("--dry-run", options.dry_run, "Plan and show, but order nothing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (geteuid() == 0) {
    say("it does not run as root; start it as SlurmUser");
    return kFailed;
  }
  const sigset_t ends = block_signals();
  if (const Status usable = SlurmClient::usable(); !usable) {
    say(usable.error().text);
    return kFailed;
  }
  return Daemon(options, ends).run();
}

}  // namespace
}  // namespace bellows

int main(int argc, char** argv) {
  try {
    return bellows::run(argc, argv);
  } catch (const std::exception& error) {
    bellows::say(error.what());
  }
  return bellows::kFailed;
}
