// SPDX-License-Identifier: Apache-2.0
// job_submit_bellows.so over many calls, reloads and lives: what would hurt a slurmctld that runs
// for months.
#include <criterion/criterion.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "tests/bench/plugin_host.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

/// With a sanitizer memory is held back and counted otherwise; it reports leaks by itself.
#ifdef SANITIZED
constexpr bool kCountsMemory = false;
constexpr int kCalls = 2000;
#else
constexpr bool kCountsMemory = true;
constexpr int kCalls = 100000;
#endif

/// More than this over many calls would be a leak; the libraries' own pools move by 4 KiB.
constexpr long kSlack = 16 * 1024;

std::string policy_starting_at(int start) {
  return "version: 1\n"
         "frameworks: {framework7: {env: {MODE: fast}}}\n"
         "defaults: {sizing: {per_gpu: {cpus: 4, memory: 16G}, time: {max: 1-0}}}\n"
         "tenants: {vision: {gpus: {max: 8, start: " +
         std::to_string(start) +
         "}}, speech: {gpus: {max: 4}}, music: {gpus: {max: 8}}}\n"
         "lua: {script: rules.lua}\n";
}

const char* const kRules =
    "function submit(job, tenant)\n"
    "  local words = {}\n"
    "  for i = 1, 50 do words[i] = 'word' .. i end\n"
    "  job.comment = table.concat(words, ' ')\n"
    "  if job.account == 'music' then refuse('no music') end\n"
    "end\n";

class Site {
 public:
  explicit Site(int start = 2) {
    std::ofstream(scratch_.path() + "/rules.lua") << kRules;
    write(start);
  }
  /// Each write is whole for a reader.
  void write(int start) const {
    std::ofstream(policy() + ".new") << policy_starting_at(start);
    cr_assert(std::rename((policy() + ".new").c_str(), policy().c_str()) == 0);
  }
  std::string policy() const { return scratch_.path() + "/bellows.yaml"; }

 private:
  ScratchDir scratch_;
};

/// A job that gives a range alone, so that its first size is the policy's.
HostJob job_of(const std::string& account) {
  HostJob job = sample_job(account);
  release(job->tres_per_job);
  return job;
}

bool submitted(const PluginHost& host, job_desc_msg_t& job) {
  char* message = nullptr;
  const bool admitted = host.submit(job, &message) == SLURM_SUCCESS;
  cr_assert(admitted || message, "every refusal has a reason");
  release(message);
  return admitted;
}

/// One of each: admitted, refused by the policy in two ways and by the script, nothing of Bellows.
void submit_each(const PluginHost& host) {
  cr_assert(submitted(host, *job_of("vision")));
  cr_assert(not submitted(host, *job_of("speech")));
  cr_assert(not submitted(host, *job_of("nobody")));
  cr_assert(not submitted(host, *job_of("music")));
  cr_assert(submitted(host, *plain_job()));
}

long heap_in_use() { return static_cast<long>(mallinfo2().uordblks + mallinfo2().hblkhd); }

long resident() {
  long pages = 0;
  std::ifstream("/proc/self/statm").ignore(32, ' ') >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

long entries_in(const char* directory) {
  return std::distance(std::filesystem::directory_iterator(directory), {});
}

/// What slurmctld would log about each refusal.
void drop_log() { cr_assert(std::freopen("/dev/null", "w", stderr)); }

/// Does it a few times, then many times more, and compares what the process holds.
void expect_no_growth(const std::function<void()>& once, int warm_up, int times) {
  for (int i = 0; i < warm_up; ++i) once();
  const long heap = heap_in_use();
  const long memory = resident();
  const long files = entries_in("/proc/self/fd");
  const long threads = entries_in("/proc/self/task");
  for (int i = 0; i < times; ++i) once();
  cr_expect(entries_in("/proc/self/fd") == files, "open files");
  // One that was joined is listed until the kernel has removed it.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (entries_in("/proc/self/task") > threads && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  cr_expect(entries_in("/proc/self/task") == threads, "threads");
  if (not kCountsMemory) return;
  cr_expect(heap_in_use() - heap < kSlack, "the heap grew by %ld bytes", heap_in_use() - heap);
  cr_expect(resident() - memory < 1024 * 1024, "by %ld bytes", resident() - memory);
}

}  // namespace

Test(endurance, calls_leave_nothing_behind, .timeout = 60) {
  drop_log();
  const Site site;
  const PluginHost host(PLUGIN, site.policy());
  cr_assert(host.init() == SLURM_SUCCESS);
  expect_no_growth([&] { submit_each(host); }, kCalls / 50, kCalls / 5);
  cr_expect(host.fini() == SLURM_SUCCESS);
}

Test(endurance, lives_leave_nothing_behind, .timeout = 60) {
  drop_log();
  const Site site;
  const PluginHost host(PLUGIN, site.policy());
  expect_no_growth(
      [&] {
        cr_assert(host.init() == SLURM_SUCCESS);
        submit_each(host);
        cr_assert(host.fini() == SLURM_SUCCESS);
      },
      10, 50);
}

/// As slurmctld does when its list of plugins changes.
Test(endurance, loading_again_leaves_nothing_behind, .timeout = 60) {
  drop_log();
  const Site site;
  const PluginHost first(PLUGIN, site.policy());  // keeps the libraries that the plugin needs
  expect_no_growth(
      [&] {
        const PluginHost host(PLUGIN, site.policy());
        cr_assert(host.init() == SLURM_SUCCESS);
        submit_each(host);
        cr_assert(host.fini() == SLURM_SUCCESS);
      },
      10, 50);
}

/// Each job is decided by one policy or the other, never by parts of both.
Test(endurance, reloads_during_calls, .timeout = 60) {
  const Site site(2);
  const PluginHost host(PLUGIN, site.policy());
  cr_assert(host.init() == SLURM_SUCCESS);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; not done; ++i, std::this_thread::sleep_for(300ms)) site.write(i % 2 ? 2 : 4);
  });
  const auto end = std::chrono::steady_clock::now() + 20s;
  int last = 0;
  int changes = 0;
  while (changes < 4 && std::chrono::steady_clock::now() < end) {
    const HostJob job = job_of("vision");
    cr_assert(submitted(host, *job));
    const int size = std::stoi(std::string(job->tres_per_job).substr(9));
    cr_assert(size == 2 || size == 4, "%d", size);
    cr_assert(job->num_tasks == static_cast<std::uint32_t>(size));
    changes += size != last;
    last = size;
  }
  done = true;
  writer.join();
  cr_expect(changes == 4, "the policy changed %d times in force", changes);
  cr_expect(host.fini() == SLURM_SUCCESS);
}
