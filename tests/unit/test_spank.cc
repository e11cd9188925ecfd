// SPDX-License-Identifier: Apache-2.0
// The node side of the plugin without Slurm: options, environment, the store on a node, rescues.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "spank/container/options.h"
#include "spank/controller.h"
#include "spank/environment.h"
#include "spank/job_store.h"
#include "spank/options.h"
#include "spank/rescue.h"

using namespace bellows;
using namespace bellows::spank;
namespace fs = std::filesystem;

TestSuite(spank, .timeout = 30);

namespace {

/// A directory that goes with the test.
struct TemporaryDir {
  TemporaryDir() {
    std::string path = (fs::temp_directory_path() / "bellows-spank-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    root = path;
  }
  ~TemporaryDir() {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }
  std::string operator/(const std::string& name) const { return root + "/" + name; }
  std::string root;
};

Contract contract_of(const std::string& line) {
  auto contract = Contract::parse(line);
  cr_assert(contract.ok(), "%s", line.c_str());
  return *std::move(contract);
}

const Contract kContract = contract_of(
    "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/ck/%25u/%25a/%25j user=alice "
    "account=dept");

JobStore store_in(const TemporaryDir& dir) { return JobStore(dir / "run", ::getuid()); }

Status store(const JobStore& jobs, std::uint32_t job = 17) {
  return jobs.store(job, ::getuid(), ::getgid(), kContract);
}

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::map<std::string, std::string> as_map(const std::vector<Change>& changes) {
  std::map<std::string, std::string> map;
  for (const Change& change : changes) map[change.name] = change.value.value_or("(unset)");
  return map;
}

Lookup lookup_in(const std::map<std::string, std::string>& environment) {
  return [environment](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
}

using Map = std::map<std::string, std::string>;

}  // namespace

Test(spank, framework_syntax) {
  cr_assert(*parse_framework("pytorch") == (Framework{"pytorch", ""}));
  cr_assert(*parse_framework("pytorch:2.1.0+cu118") == (Framework{"pytorch", "2.1.0+cu118"}));
  for (const char* bad : {"", ":1", "a:", "a:b:c", "a b", "../x", "-x", "a=b", "a,b", "a\nb", "é"})
    cr_expect(!parse_framework(bad).ok(), "\"%s\" must be refused", bad);
  cr_assert(*parse_framework("c++:_2") == (Framework{"c++", "_2"}));
  cr_expect(parse_framework(std::string(64, 'x')).ok());
  cr_expect(!parse_framework(std::string(65, 'x')).ok());
}

Test(spank, every_option_has_its_variables) {
  const auto& names = option_variables();
  const auto has = [&names](const std::string& name) {
    return std::count(names.begin(), names.end(), name) == 1;
  };
  cr_expect(option_variable("gpus-range") == "_SLURM_SPANK_OPTION_bellows_gpus_range");
  for (const char* option :
       {"framework", "gpus_range", "batch_range", "container", "container_image",
        "no_container_mount_home", "container_entrypoint_log"}) {
    const std::string bare = std::string("_SLURM_SPANK_OPTION_bellows_") + option;
    cr_expect(has(bare) && has("SLURM_SPANK_" + bare), "%s", option);
  }
  cr_expect(names.size() == 2 * (4 + container::kOptionCount));
}

Test(spank, settings_never_fail) {
  std::string good = "run_dir=/var/x", relative = "run_dir=x", dots = "run_dir=/a/../b";
  std::string other = "debug", empty = "run_dir=";
  std::vector<std::string> complaints;
  char* one[] = {good.data()};
  cr_assert(read_settings(1, one, complaints).run_dir == "/var/x");
  cr_assert(complaints.empty());
  char* wrong[] = {relative.data(), dots.data(), other.data(), empty.data()};
  cr_assert(read_settings(4, wrong, complaints).run_dir == "/run/bellows");
  cr_assert(complaints.size() == 4);
  cr_assert(read_settings(0, nullptr, complaints).run_dir == "/run/bellows");
}

Test(spank, variables_of_a_job) {
  const JobVariables variables = job_variables(kContract, 17, "/run/bellows/17/user");
  cr_assert(variables.status.ok());
  const Map map = as_map(variables.changes);
  cr_assert(map.at("BELLOWS_CONTRACT") ==
            "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/ck/%25u/%25a/%25j");
  cr_assert(map.at("BELLOWS_TENANT") == "vision");
  cr_assert(map.at("BELLOWS_FRAMEWORK") == "digits");
  cr_assert(map.at("BELLOWS_FRAMEWORK_VERSION") == "1.0");
  cr_assert(map.at("BELLOWS_GPUS_RANGE") == "1-8");
  cr_assert(map.at("BELLOWS_CHECKPOINT_DIR") == "/ck/alice/dept/17");
  cr_assert(map.at("BELLOWS_RUN_DIR") == "/run/bellows/17/user");
  cr_assert(map.size() == 7);
}

Test(spank, what_the_contract_leaves_out_is_unset) {
  const Map map = as_map(job_variables(contract_of("bellows/1 tenant=v gpus=2"), 1, "/r").changes);
  cr_assert(map.at("BELLOWS_FRAMEWORK") == "(unset)");
  cr_assert(map.at("BELLOWS_FRAMEWORK_VERSION") == "(unset)");
  cr_assert(map.at("BELLOWS_CHECKPOINT_DIR") == "(unset)");
  const Map none = as_map(no_job_variables());
  cr_assert(none.size() == 7);
  for (const auto& [name, value] : none) cr_expect(value == "(unset)", "%s", name.c_str());
}

Test(spank, a_wrong_checkpoint_pattern_spoils_only_itself) {
  const auto variables =
      job_variables(contract_of("bellows/1 tenant=v gpus=2 ckpt=/ck/%25x"), 1, "/r");
  cr_assert(!variables.status.ok());
  const Map map = as_map(variables.changes);
  cr_assert(map.at("BELLOWS_CHECKPOINT_DIR") == "(unset)");
  cr_assert(map.at("BELLOWS_TENANT") == "v");
}

Test(spank, gpus_are_counted) {
  cr_expect(count_gpus("cpu=4,mem=1G,node=2,billing=4,gres/gpu=6", "") == 6);
  cr_expect(count_gpus("cpu=4,gres/gpu=6,gres/gpu:a100=4,gres/gpu:h100=2", "") == 6);
  cr_expect(count_gpus("gres/gpu:a100=4,gres/gpu:h100=2", "") == 6);
  cr_expect(count_gpus("cpu=4", "gpu:a100:2,gpu:h100:1,nic:4") == 3);
  cr_expect(count_gpus("", "gpu:2(IDX:0-1)") == 2);
  cr_expect(count_gpus("cpu=4,mem=1G", "") == 0);
  cr_expect(count_gpus("gres/gpu=99999999999999", "gpu:x") == 0);
  cr_expect(count_gpus("gres/gpumem=80", "") == 0);
}

Test(spank, stale_sizes_are_corrected) {
  const Map map = as_map(size_corrections({8, 2}, true,
                                          lookup_in({{"SLURM_NTASKS", "2"},
                                                     {"SLURM_NPROCS", "2"},
                                                     {"SLURM_GPUS", "2"},
                                                     {"SLURM_NTASKS_PER_NODE", "2"},
                                                     {"SLURM_GPUS_PER_NODE", "a100:2"},
                                                     {"SLURM_GPUS_PER_TASK", "2"},
                                                     {"SLURM_NTASKS_PER_SOCKET", "1"}})));
  cr_assert(map == (Map{{"SLURM_NTASKS", "8"},
                        {"SLURM_NPROCS", "8"},
                        {"SLURM_GPUS", "8"},
                        {"BELLOWS_SIZE", "8/2"},
                        {"SLURM_NTASKS_PER_NODE", "(unset)"},
                        {"SLURM_GPUS_PER_NODE", "(unset)"},
                        {"SLURM_GPUS_PER_TASK", "(unset)"},
                        {"SLURM_NTASKS_PER_SOCKET", "(unset)"}}));
}

Test(spank, what_still_fits_stays) {
  const Map map = as_map(size_corrections({8, 2}, true,
                                          lookup_in({{"SLURM_NTASKS", "8"},
                                                     {"SLURM_NTASKS_PER_NODE", "4"},
                                                     {"SLURM_GPUS_PER_NODE", "gpu:4"},
                                                     {"SLURM_GPUS_PER_TASK", "1"},
                                                     {"SLURM_NTASKS_PER_SOCKET", "4"}})));
  cr_assert(map == (Map{{"SLURM_NTASKS", "8"}, {"SLURM_NPROCS", "8"}, {"BELLOWS_SIZE", "8/2"}}));
  // Three GPUs on two nodes: no number for each node fits.
  const Map odd = as_map(size_corrections(
      {3, 2}, true, lookup_in({{"SLURM_NTASKS_PER_NODE", "1"}, {"SLURM_GPUS_PER_NODE", "junk"}})));
  cr_assert(odd.at("SLURM_NTASKS_PER_NODE") == "(unset)");
  cr_assert(odd.at("SLURM_GPUS_PER_NODE") == "(unset)");
}

Test(spank, an_unknown_size_changes_nothing) {
  cr_assert(size_corrections({0, 2}, true, lookup_in({{"SLURM_NTASKS", "2"}})).empty());
  cr_assert(size_corrections({2, 0}, true, lookup_in({{"SLURM_NTASKS", "2"}})).empty());
}

Test(spank, a_fixed_job_keeps_its_number_of_tasks) {
  for (const char* name : {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU"})
    cr_expect(as_map(size_corrections({1, 1}, false, lookup_in({{name, "8"}}))) ==
                  (Map{{"BELLOWS_SIZE", "1/1"}}),
              "%s", name);
  cr_assert(as_map(size_corrections({4, 1}, false, lookup_in({{"SLURM_GPUS", "4"}}))) ==
            (Map{{"SLURM_NTASKS", "4"},
                 {"SLURM_NPROCS", "4"},
                 {"SLURM_GPUS", "4"},
                 {"BELLOWS_SIZE", "4/1"}}));
}

Test(spank, a_contract_is_stored_and_loaded) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(!jobs.load(17, ::getuid())->has_value());
  cr_assert(!jobs.exists(17));
  const Status stored = store(jobs);
  cr_assert(stored.ok(), "%s", stored.ok() ? "" : stored.error().text.c_str());
  const auto loaded = jobs.load(17, ::getuid());
  cr_assert(loaded.ok() && loaded->has_value());
  cr_assert(**loaded == kContract);
  struct stat info {};
  cr_assert(::stat((dir / "run/17/user").c_str(), &info) == 0);
  cr_assert((info.st_mode & 07777) == 0700);
  cr_assert(::stat((dir / "run/17/contract").c_str(), &info) == 0);
  cr_assert((info.st_mode & 07777) == 0644);
  // What the user keeps there survives the prolog of a requeue.
  write_file(dir / "run/17/user/socket", "x");
  cr_assert(store(jobs).ok());
  cr_assert(fs::exists(dir / "run/17/user/socket"));
}

Test(spank, the_umask_does_not_matter) {
  const TemporaryDir dir;
  ::umask(0077);
  const bool stored = store(store_in(dir)).ok();
  ::umask(0022);
  cr_assert(stored);
  struct stat info {};
  cr_assert(::stat((dir / "run/17").c_str(), &info) == 0 && (info.st_mode & 07777) == 0755);
  cr_assert(::stat((dir / "run/17/contract").c_str(), &info) == 0 &&
            (info.st_mode & 07777) == 0644);
}

Test(spank, a_contract_that_others_could_have_written_is_refused) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  for (const char* path : {"run", "run/17", "run/17/contract"}) {
    const std::string full = dir / path;
    struct stat before {};
    cr_assert(::stat(full.c_str(), &before) == 0);
    for (mode_t bit : {S_IWGRP, S_IWOTH}) {
      cr_assert(::chmod(full.c_str(), (before.st_mode & 07777) | bit) == 0);
      const auto loaded = jobs.load(17, ::getuid());
      cr_expect(!loaded.ok() && loaded.error().kind == ErrorKind::denied, "%s", path);
    }
    cr_assert(::chmod(full.c_str(), before.st_mode & 07777) == 0);
  }
  cr_assert(jobs.load(17, ::getuid())->has_value());
  // Another owner altogether.
  const auto foreign = JobStore(dir / "run", ::getuid() + 1).load(17, ::getuid());
  cr_assert(!foreign.ok() && foreign.error().kind == ErrorKind::denied);
  // The directory of another user's job of the same number.
  const auto stale = jobs.load(17, ::getuid() + 1);
  cr_assert(!stale.ok() && stale.error().kind == ErrorKind::denied);
}

Test(spank, links_and_fifos_are_not_followed) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  write_file(dir / "elsewhere", kContract.to_string());
  fs::remove(dir / "run/17/contract");
  fs::create_symlink(dir / "elsewhere", dir / "run/17/contract");
  cr_expect(!jobs.load(17, ::getuid()).ok());
  fs::remove(dir / "run/17/contract");
  cr_assert(::mkfifo((dir / "run/17/contract").c_str(), 0644) == 0);
  cr_expect(!jobs.load(17, ::getuid()).ok());
  // A link in place of the user's directory is replaced, and its target stays.
  fs::remove_all(dir / "run/17/user");
  fs::create_directory(dir / "target");
  write_file(dir / "target/precious", "x");
  fs::create_symlink(dir / "target", dir / "run/17/user");
  cr_assert(store(jobs).ok());
  cr_expect(fs::is_directory(fs::symlink_status(dir / "run/17/user")));
  cr_expect(fs::exists(dir / "target/precious"));
}

Test(spank, a_damaged_contract_names_its_file) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  for (const std::string& text : {std::string("garbage"), std::string(), std::string(5000, 'x'),
                                  std::string("bellows/2 tenant=v gpus=1")}) {
    write_file(dir / "run/17/contract", text);
    const auto loaded = jobs.load(17, ::getuid());
    cr_assert(!loaded.ok());
    cr_expect(loaded.error().text.find("run/17/contract") != std::string::npos, "%s",
              loaded.error().text.c_str());
  }
}

Test(spank, a_directory_that_can_not_be_made_is_an_error) {
  const TemporaryDir dir;
  write_file(dir / "run", "a file");
  const JobStore jobs = store_in(dir);
  cr_assert(!store(jobs).ok());
  cr_assert(!jobs.load(17, ::getuid()).ok());
  cr_assert(!jobs.launcher_active(17, ::getuid()));
}

Test(spank, the_launchers_marker) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  const std::string marker = dir / "run/17/user/launcher.active";
  cr_assert(!jobs.launcher_active(17, ::getuid()));
  cr_assert(store(jobs).ok());
  cr_assert(!jobs.launcher_active(17, ::getuid()));
  write_file(marker, "{}");
  cr_assert(jobs.launcher_active(17, ::getuid()));
  cr_assert(!jobs.launcher_active(17, ::getuid() + 1));
  jobs.clear_launcher_active(17, ::getuid());
  cr_assert(!fs::exists(marker));
  // Hostile markers: none counts, none blocks, none is followed.
  cr_assert(::mkfifo(marker.c_str(), 0600) == 0);
  cr_expect(!jobs.launcher_active(17, ::getuid()));
  fs::remove(marker);
  fs::create_symlink(dir / "run/17/contract", marker);
  cr_expect(!jobs.launcher_active(17, ::getuid()));
  jobs.clear_launcher_active(17, ::getuid());
  cr_expect(fs::exists(dir / "run/17/contract"));
  fs::create_directory(marker);
  cr_expect(!jobs.launcher_active(17, ::getuid()));
}

Test(spank, rescues_are_counted) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(!jobs.rescues(17).ok());
  cr_assert(store(jobs).ok());
  cr_assert(*jobs.rescues(17) == 0);
  cr_assert(jobs.set_rescues(17, 3).ok());
  cr_assert(*jobs.rescues(17) == 3);
  cr_assert(store(jobs).ok());
  cr_expect(*jobs.rescues(17) == 3, "a requeue must not start the count again");
  write_file(dir / "run/17/rescues", "x");
  cr_assert(!jobs.rescues(17).ok());
}

Test(spank, a_launchers_plan_is_read_and_nothing_followed) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  const auto uid = ::getuid();
  cr_expect(!jobs.planned_gpus(17, uid));
  const fs::path plan = dir / "run/17/user/launcher.plan";
  const auto planned = [&](const std::string& text) {
    fs::remove(plan);
    fs::create_symlink(text, plan);
    return jobs.planned_gpus(17, uid);
  };
  cr_expect(planned("6") == 6u);
  write_file(dir / "run/17/user/5", "x");
  for (const char* bad : {"-1", "x", "4294967296", "/etc/passwd", "1111111111111111111", "6 "})
    cr_expect(!planned(bad), "%s", bad);
  fs::remove(plan);
  write_file(plan, "6");
  cr_expect(!jobs.planned_gpus(17, uid), "a file is not opened");
  cr_expect(planned("6") == 6u);
  jobs.clear_launcher_active(17, uid);
  cr_expect(!jobs.planned_gpus(17, uid));
}

Test(spank, removal_stays_inside) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(jobs.remove(17).ok());
  cr_assert(store(jobs).ok());
  write_file(dir / "outside", "x");
  fs::create_directories(dir / "run/17/user/a/b/c");
  write_file(dir / "run/17/user/a/b/file", "x");
  fs::create_symlink(dir.root, dir / "run/17/user/a/link");
  cr_assert(jobs.remove(17).ok());
  cr_assert(!jobs.exists(17));
  cr_assert(fs::exists(dir / "outside"));
}

Test(spank, removal_has_a_budget) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(store(jobs).ok());
  for (int i = 0; i < 50; ++i) write_file(dir / ("run/17/user/" + std::to_string(i)), "x");
  cr_assert(!jobs.remove(17, 10).ok());
  cr_assert(jobs.exists(17));
  cr_assert(jobs.remove(17).ok());
}

Test(spank, old_directories_are_found) {
  const TemporaryDir dir;
  const JobStore jobs = store_in(dir);
  cr_assert(jobs.older_than(60, 10).empty());
  for (std::uint32_t job : {17U, 18U, 19U}) cr_assert(store(jobs, job).ok());
  fs::create_directory(dir / "run/not-a-job");
  cr_assert(jobs.older_than(60, 10).empty());
  const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  const struct timespec longer_ago[2] = {{500, 0}, {500, 0}};
  cr_assert(::utimensat(AT_FDCWD, (dir / "run/17").c_str(), long_ago, 0) == 0);
  cr_assert(::utimensat(AT_FDCWD, (dir / "run/19").c_str(), longer_ago, 0) == 0);
  cr_assert(::utimensat(AT_FDCWD, (dir / "run/not-a-job").c_str(), longer_ago, 0) == 0);
  cr_assert(jobs.older_than(60, 10) == (std::vector<std::uint32_t>{19, 17}));
  cr_assert(jobs.older_than(60, 1) == (std::vector<std::uint32_t>{19}));
  jobs.touch(19);
  cr_assert(jobs.older_than(60, 10) == (std::vector<std::uint32_t>{17}));
}

Test(spank, a_job_is_rescued_only_while_this_run_of_it_runs) {
  const BatchEnd end{2, "n1", 0};
  JobView view;
  view.running = true;
  view.restarts = 2;
  view.batch_host = "n1";
  cr_assert(plan_rescue(end, view).action == Rescue::requeue);
  JobView other = view;
  other.running = false;
  cr_expect(plan_rescue(end, other).action == Rescue::none);
  cr_expect(plan_rescue(end, other).reason != "");
  other = view;
  other.restarts = 3;
  cr_expect(plan_rescue(end, other).action == Rescue::none);
  other = view;
  other.batch_host = "n2";
  cr_expect(plan_rescue(end, other).action == Rescue::none);
  cr_expect(plan_rescue({2, "n1", kMostRescues - 1}, view).action == Rescue::requeue);
  cr_expect(plan_rescue({2, "n1", kMostRescues}, view).action == Rescue::none);
  cr_expect(plan_rescue({std::nullopt, "n1", 0}, view).action == Rescue::requeue);
  cr_expect(plan_rescue({std::nullopt, "n1", 0}, other).action == Rescue::none);
}

Test(spank, a_requeue_without_a_start_time_gets_one) {
  const BatchEnd end{2, "n1", kMostRescues};
  JobView view;
  view.requeued = true;
  view.restarts = 3;
  view.clock = 1000;
  view.begin = 900;
  cr_expect(plan_rescue(end, view).action == Rescue::start_soon);
  view.begin = 1000;
  cr_expect(plan_rescue(end, view).action == Rescue::start_soon);
  view.begin = 1001;
  cr_expect(plan_rescue(end, view).action == Rescue::none, "someone else has set it");
  view.begin = 900;
  view.restarts = 4;
  cr_expect(plan_rescue(end, view).action == Rescue::none, "that is not the run after this one");
}

Test(spank, a_run_that_slurmctld_lost_is_outlasted) {
  JobView view;
  view.requeued = true;
  view.restarts = 2;
  cr_expect(plan_rescue({2, "n1", 0}, view).action == Rescue::outlast);
  cr_expect(plan_rescue({3, "n1", kMostRescues}, view).action == Rescue::outlast);
  cr_expect(plan_rescue({std::nullopt, "n1", 0}, view).action != Rescue::outlast);
  view.begin = 1;
  cr_expect(plan_rescue({2, "n1", 0}, view).action == Rescue::none, "its launcher saw to it");
  view.begin = 0;
  view.completing = true;
  cr_expect(plan_rescue({2, "n1", 0}, view).action == Rescue::none, "slurmctld ends it");
  view.completing = false;
  view.requeued = false;
  cr_expect(plan_rescue({2, "n1", 0}, view).action == Rescue::none);
}

Test(spank, without_slurm_in_the_process_reads_fail_softly) {
  const auto view = read_job(1);
  cr_assert(!view.ok());
  cr_assert(view.error().kind == ErrorKind::unavailable);
  cr_assert(!requeue_running(1, {}).ok());
}
