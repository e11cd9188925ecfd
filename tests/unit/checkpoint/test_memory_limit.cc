// SPDX-License-Identifier: Apache-2.0
// What a job may still take of memory, from files as Linux shows them.
#include <criterion/criterion.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/system/memory_limit.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

namespace {

class Machine {
 public:
  Machine() {
    write("/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n");
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(
        std::filesystem::path(scratch_.path() + path).parent_path());
    std::ofstream(scratch_.path() + path) << text;
  }
  void group(const std::string& path, const std::string& limit, const std::string& used,
             const std::string& cache) {
    const std::string dir = "/sys/fs/cgroup" + path;
    write(dir + "/memory.max", limit);
    write(dir + "/memory.current", used);
    write(dir + "/memory.stat", "anon 5\ninactive_file " + cache + "\nactive_file 7\n");
  }
  std::uint64_t available() const { return available_memory(scratch_.path()); }

 private:
  ScratchDir scratch_;
};

}  // namespace

Test(memory_limit, is_what_the_machine_has_without_cgroups, .timeout = 10) {
  Machine machine;
  cr_expect(machine.available() == 8000 * 1024);
  machine.write("/proc/self/cgroup", "nonsense\n::\n0::/gone\n");
  cr_expect(machine.available() == 8000 * 1024);
}

Test(memory_limit, is_the_least_of_all_cgroups_above, .timeout = 10) {
  Machine machine;
  machine.write("/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  machine.group("/slurm/job_7/step_0", "max\n", "100\n", "0");
  cr_expect(machine.available() == 8000 * 1024);
  machine.group("/slurm/job_7", "1000000\n", "300000\n", "100000");
  cr_expect(machine.available() == 800000);
  machine.group("/slurm", "500000\n", "400000\n", "0");
  cr_expect(machine.available() == 100000);
  // Over its limit, as for a moment after the limit was lowered.
  machine.group("/slurm", "500000\n", "600000\n", "0");
  cr_expect(machine.available() == 0);
}

Test(memory_limit, knows_version_1_too, .timeout = 10) {
  Machine machine;
  machine.write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/slurm/uid_0/job_7\n0::/\n");
  const std::string dir = "/sys/fs/cgroup/memory/slurm/uid_0";
  machine.write(dir + "/memory.limit_in_bytes", "700000\n");
  machine.write(dir + "/memory.usage_in_bytes", "300000\n");
  machine.write(dir + "/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
  machine.write(dir + "/job_7/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write(dir + "/job_7/memory.usage_in_bytes", "300000\n");
  cr_expect(machine.available() == 450000);
}
