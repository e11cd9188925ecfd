// SPDX-License-Identifier: Apache-2.0
// What the plugin gives a rank: variables of its launch kind, and CPUs near its GPU.
#include <criterion/criterion.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "spank/cpu_binding.h"
#include "spank/gpu_addresses.h"
#include "spank/rank_variables.h"
#include "tests/unit/spank/spank_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::spank;
namespace fs = std::filesystem;

TestSuite(ranks, .timeout = 30);

namespace {

void write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

const Map kMaster = {{"BELLOWS_MASTER_ADDR", "198.18.0.11"}, {"BELLOWS_MASTER_PORT", "40123"}};
// Rank 5 of 6, the second of two on the last of three nodes.
const RankPlace kPlace = {5, 6, 1, 2, 2, 3};

Cpus cpus(const char* list) {
  auto parsed = parse_cpu_list(list);
  cr_assert(parsed.ok(), "%s", list);
  return *parsed;
}

std::vector<Cpus> each(const Cpus& set) {
  std::vector<Cpus> cores;
  for (unsigned cpu : set) cores.push_back({cpu});
  return cores;
}

/// GPU i has CPUs `near[i]`; without hyperthreads.
NodeCpus node_of(const char* allowed, const std::vector<const char*>& near) {
  NodeCpus node{cpus(allowed), true, each(cpus(allowed)), {}};
  for (const char* list : near) node.near.push_back(cpus(list));
  return node;
}

std::string shares(const NodeCpus& node, unsigned ranks, unsigned least = 1) {
  std::string text;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    const auto share = cpus_near_gpu(node, ranks, rank, least);
    text += rank > 0 ? " " : "";
    if (!share) text += "-";
    if (share)
      for (unsigned cpu : *share) text += (cpu == *share->begin() ? "" : ",") + std::to_string(cpu);
  }
  return text;
}

void expect_text(const std::string& got, const std::string& wanted) {
  cr_expect(got == wanted, "got:\n%s\nwanted:\n%s", got.c_str(), wanted.c_str());
}

}  // namespace

Test(ranks, torch_gets_what_torchrun_sets) {
  Map environment = kMaster;
  environment["RANK"] = "0";
  environment["MASTER_ADDR"] = "elsewhere";
  environment["SLURM_CPUS_ON_NODE"] = "9";
  cr_expect(as_map(rank_variables(LaunchKind::torch, kPlace, {"", true}, lookup_in(environment))) ==
            Map({{"RANK", "5"},
                 {"WORLD_SIZE", "6"},
                 {"LOCAL_RANK", "1"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"GROUP_RANK", "2"},
                 {"GROUP_WORLD_SIZE", "3"},
                 {"ROLE_RANK", "5"},
                 {"ROLE_WORLD_SIZE", "6"},
                 {"ROLE_NAME", "default"},
                 {"MASTER_ADDR", "198.18.0.11"},
                 {"MASTER_PORT", "40123"},
                 {"OMP_NUM_THREADS", "4"}}));
  environment["OMP_NUM_THREADS"] = "7";
  cr_expect(!as_map(rank_variables(LaunchKind::torch, kPlace, {"", true}, lookup_in(environment)))
                 .contains("OMP_NUM_THREADS"));
}

Test(ranks, torch_gets_no_place_that_is_none) {
  for (const auto& [name, value] : std::map<std::string, std::vector<std::string>>{
           {"BELLOWS_MASTER_ADDR", {"", "n1 n2", "$(id)", "n1\nx", std::string(256, 'a')}},
           {"BELLOWS_MASTER_PORT", {"", "0", "-1", "65536", "80x", "99999999999999999999"}}})
    for (const std::string& bad : value) {
      Map environment = kMaster;
      environment[name] = bad;
      cr_expect(!check_master(lookup_in(environment)).ok(), "%s", bad.c_str());
      const Map map =
          as_map(rank_variables(LaunchKind::torch, kPlace, {"", true}, lookup_in(environment)));
      cr_expect(map.at("MASTER_ADDR") == "(unset)" && map.at("MASTER_PORT") == "(unset)");
      cr_expect(map.at("RANK") == "5");
    }
  cr_expect(check_master(lookup_in(kMaster)).ok());
}

Test(ranks, nccl_gets_the_way_to_the_other_nodes) {
  const Fabric fabric = {"eth1", false};
  cr_expect(as_map(rank_variables(LaunchKind::nccl, kPlace, fabric, lookup_in({}))) ==
            Map({{"NCCL_SOCKET_IFNAME", "=eth1"}, {"NCCL_IB_DISABLE", "1"}}));
  const Map torch = as_map(rank_variables(LaunchKind::torch, kPlace, fabric, lookup_in({})));
  cr_expect(torch.at("GLOO_SOCKET_IFNAME") == "eth1");
  cr_expect(torch.at("NCCL_SOCKET_IFNAME") == "=eth1");
  // What the user, or the image, says stays.
  const Map own = {
      {"NCCL_SOCKET_IFNAME", "ib"}, {"NCCL_IB_DISABLE", "0"}, {"GLOO_SOCKET_IFNAME", "ib0"}};
  cr_expect(rank_variables(LaunchKind::nccl, kPlace, fabric, lookup_in(own)).empty());
  cr_expect(!as_map(rank_variables(LaunchKind::torch, kPlace, fabric, lookup_in(own)))
                 .contains("GLOO_SOCKET_IFNAME"));
  // On one node any interface will do, and InfiniBand may be what is fast.
  cr_expect(
      rank_variables(LaunchKind::nccl, {1, 2, 1, 2, 0, 1}, {"eth1", true}, lookup_in({})).empty());
}

Test(ranks, plain_gets_its_own_gpu) {
  const Map environment = {{"CUDA_VISIBLE_DEVICES", "2,5"}, {"GPU_DEVICE_ORDINAL", "0,1,2"}};
  cr_expect(as_map(rank_variables(LaunchKind::plain, kPlace, {}, lookup_in(environment))) ==
            Map({{"CUDA_VISIBLE_DEVICES", "5"}}));
  cr_expect(rank_variables(LaunchKind::mpi, kPlace, {}, lookup_in(environment)).empty());
  // Lists of which one counts what another leaves.
  const Map all = {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"ROCR_VISIBLE_DEVICES", "0,1"}};
  cr_expect(as_map(rank_variables(LaunchKind::plain, kPlace, {}, lookup_in(all))) ==
            Map({{"CUDA_VISIBLE_DEVICES", "1"}}));
  const Map of_amd = {{"ROCR_VISIBLE_DEVICES", "0,1"}, {"GPU_DEVICE_ORDINAL", "0,1"}};
  cr_expect(as_map(rank_variables(LaunchKind::plain, kPlace, {}, lookup_in(of_amd))) ==
            Map({{"ROCR_VISIBLE_DEVICES", "1"}, {"GPU_DEVICE_ORDINAL", "0"}}));
}

Test(ranks, infiniband_counts_where_the_task_can_open_it) {
  ScratchDir scratch;
  const std::string root = scratch.path();
  cr_expect(!find_fabric(root, "127.0.0.1").infiniband);
  fs::create_directories(root + "/sys/class/infiniband/mlx5_0");
  cr_expect(!find_fabric(root, "127.0.0.1").infiniband);
  write(root + "/dev/infiniband/uverbs0", "");
  cr_expect(find_fabric(root, "127.0.0.1").infiniband);
  cr_expect(find_fabric(root, "127.0.0.1").interface == "lo");
  cr_expect(find_fabric(root, "$(id)").interface.empty());
}

Test(ranks, reads_lists_of_cpus) {
  cr_expect(cpus("") == Cpus() && cpus("3") == Cpus({3}));
  cr_expect(cpus("0-2,8,10-11") == Cpus({0, 1, 2, 8, 10, 11}));
  for (const char* bad : {",", "1,", "2-1", "a", "1-", "-1", "0-65536", "0x1", "1 2"})
    cr_expect(!parse_cpu_list(bad).ok(), "%s", bad);
}

Test(ranks, share_the_cpus_near_their_gpus) {
  const auto two_sides = {"0-3", "0-3", "4-7", "4-7"};
  expect_text(shares(node_of("0-7", two_sides), 4), "0,1 2,3 4,5 6,7");
  // Fewer ranks than GPUs: those that are there get it all.
  expect_text(shares(node_of("0-7", two_sides), 3), "0,1 2,3 4,5,6,7");
  // The job has not all CPUs of the node.
  expect_text(shares(node_of("1-2,4,6-7", two_sides), 4), "1 2 4 6,7");
  // One side for all, as on a virtual machine.
  expect_text(shares(node_of("0-5", {"0-5", "0-5", "0-5", "0-5"}), 4), "0 1,2 3 4,5");
  // CPUs that other jobs may use too are not shared out.
  NodeCpus others = node_of("0-7", two_sides);
  others.own = false;
  expect_text(shares(others, 4), "0,1,2,3 0,1,2,3 4,5,6,7 4,5,6,7");
}

Test(ranks, keep_threads_of_a_core_together) {
  NodeCpus node = node_of("0-7", {"0-7", "0-7"});
  node.cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  expect_text(shares(node, 2), "0,1,4,5 2,3,6,7");
  // More ranks than cores: a thread each.
  node = node_of("0-3", {"0-3", "0-3", "0-3"});
  node.cores = {{0, 2}, {1, 3}};
  expect_text(shares(node, 3), "0 1 2,3");
}

Test(ranks, stay_as_slurm_bound_them_where_little_is_known) {
  // No GPU, more ranks than GPUs, a GPU whose side is not known.
  expect_text(shares(node_of("0-7", {}), 2), "- -");
  expect_text(shares(node_of("0-7", {"0-7"}), 2), "- -");
  expect_text(shares(node_of("0-7", {"0-3", ""}), 2), "- -");
  // The job has no CPU on a side, or too few.
  expect_text(shares(node_of("0-3", {"0-3", "4-7"}), 2), "- -");
  expect_text(shares(node_of("0-4", {"0-3", "4-7", "4-7"}), 3), "- - -");
  expect_text(shares(node_of("0-5", {"0-3", "4-7"}), 2, 3), "- -");
  expect_text(shares(node_of("0-5", {"0-3", "4-7"}), 2, 2), "0,1,2,3 4,5");
  // Sides that overlap.
  expect_text(shares(node_of("0-7", {"0-5", "4-7"}), 2), "- -");
  cr_expect(!cpus_near_gpu(node_of("0-7", {"0-7"}), 1, 1, 1));
}

// The order on the bus, which is CUDA's, is not that of the minor numbers.
Test(ranks, find_their_gpus_on_the_bus) {
  ScratchDir scratch;
  const std::string root = scratch.path();
  const auto gpu = [&](const char* place, const char* minor, const char* local) {
    write(root + "/proc/driver/nvidia/gpus/" + place + "/information",
          std::string("Model: \t\t NVIDIA H100\nBus Location: \t ") + place +
              "\nDevice Minor: \t " + minor + "\nGPU Excluded:\t No\n");
    write(root + "/sys/bus/pci/devices/" + place + "/local_cpulist", local);
  };
  cr_expect(cpus_near_gpus(root, {0}).empty() && cpus_near_gpus(root, {}).empty());
  gpu("0000:1b:00.0", "3", "0-3\n");
  gpu("0000:5d:00.0", "2", "0-3\n");
  gpu("0000:9d:00.0", "1", "4-7\n");
  gpu("0000:dd:00.0", "0", "\n");
  cr_expect(cpus_near_gpus(root, {1, 3}) == std::vector<Cpus>({cpus("0-3"), cpus("4-7")}));
  cr_expect(cpus_near_gpus(root, {0, 1}) == std::vector<Cpus>({cpus("4-7"), cpus("")}));
  cr_expect(cpus_near_gpus(root, {1, 9}).empty());
  write(root + "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,4\n");
  write(root + "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,5\n");
  cr_expect(by_core(root, cpus("0-1,4")) == std::vector<Cpus>({cpus("0,4"), cpus("1")}));
}

Test(ranks, know_gpus_that_are_divided) {
  ScratchDir scratch;
  const std::string driver = scratch.path() + "/proc/driver/nvidia";
  write(driver + "/gpus/0000:1b:00.0/information", "Device Minor: \t 0\n");
  write(driver + "/gpus/0000:5d:00.0/information", "Device Minor: \t 1\n");
  write(driver + "/gpus/0000:9d:00.0/information", "Device Minor: \t 10\n");
  write(driver + "/capabilities/gpu0/mig/monitor", "");
  write(driver + "/capabilities/gpu1/mig/gi1/access", "");
  const std::map<unsigned, std::string> whole = {{0, "0000:1b:00.0"}, {10, "0000:9d:00.0"}};
  cr_expect(whole_gpus(scratch.path()) == whole);
  cr_expect_eq(gpu_addresses(scratch.path()).size(), 3);
}
