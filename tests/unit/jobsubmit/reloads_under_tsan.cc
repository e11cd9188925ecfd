// SPDX-License-Identifier: Apache-2.0
// Reloads while several threads decide, for ThreadSanitizer to watch: make tsan runs it. Not a
// Criterion test, since Criterion's shared memory has no place beside ThreadSanitizer's.
#include <slurm/slurm.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "jobsubmit/slurmctld/watcher.h"
#include "tests/bench/plugin_host.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

void want(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "reloads_under_tsan: not so: %s\n", what);
  std::_Exit(1);
}

/// A policy and a script that change all the time; each write is whole for a reader.
class Site {
 public:
  Site() { write(2); }
  void write(int start) const {
    put("rules.lua",
        "function submit(job) job.comment = 'seen " + std::to_string(start) + "' end\n");
    put("bellows.yaml",
        "version: 1\nframeworks: {framework7: }\nlua: {script: rules.lua}\n"
        "tenants: {vision: {users: [root], groups: [root]}, "
        "speech: {gpus: {max: 8, start: " +
            std::to_string(start) + "}}}\n");
  }
  std::string policy() const { return scratch_.path() + "/bellows.yaml"; }
  const std::string& directory() const { return scratch_.path(); }

 private:
  void put(const std::string& name, const std::string& text) const {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path + ".new") << text;
    want(std::rename((path + ".new").c_str(), path.c_str()) == 0, "a file is replaced");
  }
  ScratchDir scratch_;
};

/// Runs `work` in three threads for some seconds, and rewrites the policy meanwhile.
template <typename Work>
void during_reloads(const Site& site, std::chrono::milliseconds each, const Work& work) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (not done) work();
    });
  const auto end = std::chrono::steady_clock::now() + 4s;
  for (int i = 0; std::chrono::steady_clock::now() < end; ++i, std::this_thread::sleep_for(each))
    site.write(i % 2 ? 2 : 4);
  done = true;
  for (std::thread& thread : threads) thread.join();
}

void watch() {
  const Site site;
  std::ofstream(site.directory() + "/bellows.policy.west") << "bellows-policy/1 west 1 1234\n";
  std::atomic<int> reports = 0;
  std::atomic<bool> other_seen = false;
  const PolicyWatcher watcher(
      site.policy(), 1ms, [&](const std::string&, const std::string&) { ++reports; }, {}, 2ms,
      std::make_unique<Peers>(site.directory(), "east", Peers::Times{0ms, 0ms, 1h}));
  during_reloads(site, 3ms, [&] {
    const PolicyWatcher::State state = watcher.current();
    want(state.policy && state.policy->tenants.size() == 2, "there is always a whole policy");
    if (state.people) state.people->find(0, 0);
    if (state.other && state.other->host == "west") other_seen = true;
    std::this_thread::sleep_for(100us);
  });
  want(reports > 10, "the policy is read many times");
  want(other_seen, "a second controller's policy is compared");
}

void submit() {
  const Site site;
  const PluginHost host(PLUGIN, site.policy());
  want(host.init() == SLURM_SUCCESS, "init");
  std::atomic<int> calls = 0;
  during_reloads(site, 100ms, [&] {
    const HostJob job = sample_job("speech");
    char* message = nullptr;
    if (host.submit(*job, &message) != SLURM_SUCCESS) std::fprintf(stderr, "%s\n", message);
    want(job->admin_comment && job->comment, "each job is admitted and seen by the script");
    release(message);
    ++calls;
  });
  want(calls > 100, "many calls");
  want(host.fini() == SLURM_SUCCESS, "fini");
}

}  // namespace

int main() {
  watch();
  submit();
  std::puts("reloads_under_tsan: no race was seen");
}
