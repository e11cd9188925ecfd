// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/fd.h"
#include "common/local_address.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/slurm/step_environment.h"

using namespace bellows;

namespace {

using Words = std::vector<std::string>;

std::optional<Contract> contract_with(const Words& kinds) {
  Contract contract;
  contract.framework = "pytorch";
  contract.framework_version = "2.1";
  if (!kinds.empty()) contract.extra.emplace_back(Contract::kLaunchKey, Contract::join_list(kinds));
  return contract;
}

bool is_kind(const Result<LaunchKind>& chosen, LaunchKind wanted) {
  return chosen.ok() && *chosen == wanted;
}

bool says(const Result<LaunchKind>& chosen, const char* text) {
  return !chosen.ok() && chosen.error().kind == ErrorKind::denied &&
         chosen.error().text.find(text) != std::string::npos;
}

RankLayout layout_of(std::uint32_t cpus) {
  SlurmJob job;
  job.nodes = {{"n1", 2, cpus}, {"n2", 1, cpus}};
  return *RankLayout::of(job);
}

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool any_begins(const Words& words, const std::string& start) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word.starts_with(start); });
}

}  // namespace

Test(launch_kind, names_come_back) {
  for (LaunchKind kind : kLaunchKinds) cr_expect(parse_launch_kind(launch_kind_name(kind)) == kind);
  for (const char* bad : {"", "MPI", "mpi ", "torchrun"}) cr_expect(!parse_launch_kind(bad));
}

Test(launch_kind, is_the_users_then_the_frameworks_then_mpi) {
  cr_expect(is_kind(choose_launch_kind("", std::nullopt), LaunchKind::mpi));
  cr_expect(is_kind(choose_launch_kind("", contract_with({})), LaunchKind::mpi));
  cr_expect(is_kind(choose_launch_kind("plain", contract_with({})), LaunchKind::plain));
  cr_expect(is_kind(choose_launch_kind("plain", std::nullopt), LaunchKind::plain));
  cr_expect(is_kind(choose_launch_kind("", contract_with({"torch", "nccl"})), LaunchKind::torch));
  cr_expect(
      is_kind(choose_launch_kind("nccl", contract_with({"torch", "nccl"})), LaunchKind::nccl));
}

Test(launch_kind, that_the_framework_lacks_is_refused) {
  cr_expect(says(choose_launch_kind("mpi", contract_with({"torch", "nccl"})),
                 "framework pytorch:2.1 has no launch kind mpi; use --kind=torch or --kind=nccl"));
  // A later release may know more kinds.
  cr_expect(is_kind(choose_launch_kind("", contract_with({"warp", "nccl"})), LaunchKind::nccl));
  cr_expect(says(choose_launch_kind("", contract_with({"warp"})), "does not know"));
  cr_expect(says(choose_launch_kind("mpi", contract_with({"warp"})), "does not know"));
}

Test(launch_kind, torch_needs_the_plugin) {
  cr_expect(says(choose_launch_kind("torch", std::nullopt), "the plugin spank_bellows"));
}

Test(rank_command, has_the_frameworks_words_first) {
  cr_expect(framework_command(std::nullopt, {"./train"}) == Words({"./train"}));
  cr_expect(framework_command(contract_with({}), {"./train"}) == Words({"./train"}));
  auto contract = contract_with({});
  contract->extra.emplace_back(Contract::kPrefixKey, "numactl  --localalloc");
  cr_expect(framework_command(contract, {"./train", "a b"}) ==
            Words({"numactl", "--localalloc", "./train", "a b"}));
}

Test(rank_command, starts_each_kind_with_what_it_needs) {
  const RankLayout layout = layout_of(8);
  const Words program = {"./train", "--epochs", "3"};
  Words mpi = RankCommand(LaunchKind::mpi, "near", layout).words("ranks-4", program);
  cr_expect(mpi.front() == "srun" && has(mpi, "--mpi=pmix") && has(mpi, "--kill-on-bad-exit=1"));
  cr_expect(has(mpi, "--job-name=ranks-4") && has(mpi, "--nodelist=n1,n1,n2"));
  cr_expect(std::equal(program.rbegin(), program.rend(), mpi.rbegin()));
  cr_expect(
      has(RankCommand(LaunchKind::nccl, "near", layout).words("ranks", program), "--mpi=pmix"));
  cr_expect(
      has(RankCommand(LaunchKind::torch, "near", layout).words("ranks", program), "--mpi=none"));
  cr_expect(
      has(RankCommand(LaunchKind::plain, "near", layout).words("ranks", program), "--mpi=none"));
}

Test(rank_command, starts_a_server_with_all_cpus_for_kind_ps) {
  SlurmJob job;
  job.nodes = {{"n1", 2, 4}};
  const RankLayout layout = *RankLayout::one_of(job);
  const Words plain = param_server_command({}, "/s", layout, {"./train", "--x"});
  cr_expect(plain == Words({"bellows-ps", "--socket=/s", "--learners=2", "--", "./train", "--x"}));
  const Words told = param_server_command({3, "sync", 8, 60}, "/s", layout, {"./train"});
  cr_expect(told ==
            Words({"bellows-ps", "--socket=/s", "--learners=2", "--threads=3", "--staleness=8",
                   "--checkpoint-every=60", "--mode=sync", "--", "./train"}));
  const RankCommand command(LaunchKind::ps, "near", layout);
  const Words words = command.words("ranks", plain);
  cr_expect(has(words, "--mpi=none") && has(words, "--cpu-bind=none") && has(words, "--gpus=2"));
  const char* const script[] = {"PATH=/a:/b", nullptr};
  Words environment = command.environment(script, "/s", {});
  cr_expect(has(environment, "BELLOWS_LAUNCH=ps") && !any_begins(environment, "BELLOWS_CPU_BIND"));
  add_to_path(environment, "/c");
  cr_expect(has(environment, "PATH=/a:/b:/c"));
  Words none;
  add_to_path(none, "/c");
  cr_expect(none == Words({"PATH=/c"}));
}

Test(rank_command, leaves_the_binding_to_the_plugin_or_to_srun) {
  const RankLayout layout = layout_of(8);
  const char* script[] = {"BELLOWS_CPU_BIND=near", nullptr};
  const RankCommand near(LaunchKind::mpi, "near", layout);
  cr_expect(!any_begins(near.words("ranks", {"x"}), "--cpu-bind"));
  cr_expect(has(near.environment(script, "/s", {}), "BELLOWS_CPU_BIND=near"));
  const RankCommand own(LaunchKind::mpi, "map_cpu:0,1", layout);
  cr_expect(has(own.words("ranks", {"x"}), "--cpu-bind=map_cpu:0,1"));
  cr_expect(!any_begins(own.environment(script, "/s", {}), "BELLOWS_CPU_BIND"));
}

Test(rank_command, tells_ranks_the_batch_and_its_range) {
  auto contract = contract_with({});
  cr_expect(batch_variables(std::nullopt, 64) == Words() &&
            batch_variables(contract, 64) == Words());
  contract->batch = BatchRange{64, 512};
  cr_expect(batch_variables(contract, {}) == Words({"BELLOWS_BATCH_RANGE=64-512"}));
  cr_expect(batch_variables(contract, 128) ==
            Words({"BELLOWS_BATCH_RANGE=64-512", "BELLOWS_BATCH=128"}));
  const char* script[] = {"BELLOWS_BATCH=9", "BELLOWS_BATCH_RANGE=1-9", nullptr};
  cr_expect(srun_environment(script).empty(), "a script's own would be another job's");
}

Test(rank_command, tells_the_plugin_the_kind_and_nothing_stale) {
  const RankLayout layout = layout_of(8);
  const char* script[] = {"BELLOWS_LAUNCH=plain", "BELLOWS_MASTER_ADDR=evil",
                          "BELLOWS_MASTER_PORT=1", "HOME=/home/a", nullptr};
  Words mpi = RankCommand(LaunchKind::mpi, "none", layout).environment(script, "/s", {});
  cr_expect(mpi == Words({"HOME=/home/a", "BELLOWS_SOCKET=/s", "BELLOWS_LAUNCH=mpi"}));
  Words torch = RankCommand(LaunchKind::torch, "none", layout)
                    .environment(script, "/s", Rendezvous{"10.0.0.1", 40123});
  cr_expect(torch == Words({"HOME=/home/a", "BELLOWS_SOCKET=/s", "BELLOWS_LAUNCH=torch",
                            "BELLOWS_MASTER_ADDR=10.0.0.1", "BELLOWS_MASTER_PORT=40123"}));
  Words crowded = RankCommand(LaunchKind::mpi, "none", layout_of(1)).environment(script, "/s", {});
  cr_expect(has(crowded, "OMPI_MCA_mpi_yield_when_idle=1"));
}

Test(local_address, is_the_one_that_leads_to_a_peer) {
  auto own = address_towards("127.0.0.1");
  cr_assert(own.ok());
  cr_expect(*own == "127.0.0.1");
  auto interface = interface_with(*own);
  cr_assert(interface.ok());
  cr_expect(*interface == "lo");
  cr_expect(!address_towards("n1; rm -rf /").ok() && !address_towards("").ok());
  cr_expect(!interface_with("").ok() && !interface_with("203.0.113.77").ok());
}

Test(rendezvous, is_an_address_of_this_node) {
  unsetenv("SLURM_LAUNCH_NODE_IPADDR");
  cr_expect(own_address("n7") == "n7");
  setenv("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.9", 1);
  cr_expect(own_address("n7") == "127.0.0.1");
  setenv("SLURM_LAUNCH_NODE_IPADDR", "none", 1);
  cr_expect(own_address("n7") == "n7");
}

// As PyTorch's store listens, and as programs do that never heard of the port.
Test(rendezvous, port_is_kept_for_who_asks_for_it, .timeout = 10) {
  auto port = ReservedPort::take();
  cr_assert(port.ok());
  auto other = ReservedPort::take();
  cr_assert(other.ok());
  cr_expect(port->port() != 0 && port->port() != other->port());
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port->port());
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  Fd stranger(socket(AF_INET, SOCK_STREAM, 0));
  cr_expect(bind(stranger.get(), any, sizeof address) != 0);
  Fd store(socket(AF_INET, SOCK_STREAM, 0));
  const int yes = 1;
  setsockopt(store.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  cr_expect(bind(store.get(), any, sizeof address) == 0 && listen(store.get(), 5) == 0);
}
