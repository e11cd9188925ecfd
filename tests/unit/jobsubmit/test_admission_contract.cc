// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include "common/pool_option.h"
#include "tests/unit/jobsubmit/admission_support.h"

using namespace bellows;
using namespace bellows::admission_test;

namespace {

Contract read_back(const Contract& contract) {
  auto again = Contract::parse(contract.to_string());
  cr_assert(again.ok(), "%s: %s", contract.to_string().c_str(),
            again.ok() ? "" : again.error().text.c_str());
  return *std::move(again);
}

/// What a job of a framework with so long a prefix is told.
Decision with_prefix(std::size_t length, const char* range) {
  Policy policy;
  policy.frameworks["long"].versions.emplace_back().prefix = std::string(length, 'x');
  Tenant& tenant = policy.tenants.emplace_back();
  tenant.name = "vision";
  tenant.accounts = {"vision"};
  tenant.frameworks = {"*"};
  policy.index();
  Request request = parse_job("--framework=long");
  request.gpus_range = range;
  return decide(&policy, "", request);
}

std::string plain(const char* partition, const char* normal = "") {
  Origin origin;
  origin.partition = partition;
  origin.default_partition = normal;
  return refuse_plain(policy(), origin).value_or("passes");
}

}  // namespace

Test(contract, image_and_batch_range, .timeout = 10) {
  const auto contract = Contract::parse(
      "bellows/1 tenant=t gpus=1-8 image=/images/a%20b.sqsh batch=256-2147483648 new=1");
  cr_assert(contract.ok());
  cr_expect(contract->image == "/images/a b.sqsh");
  cr_expect(contract->batch == (BatchRange{256, BatchRange::kMost}));
  cr_expect(contract->extra_value("new") == "1");
  cr_expect(contract->extra_value("old") == "");
  cr_expect(read_back(*contract) == *contract);
  cr_expect(not Contract::parse("bellows/1 tenant=t gpus=1")->batch);
  for (const char* bad : {"batch=0-1", "batch=2-1", "batch=1", "batch=", "batch=1-2147483649",
                          "batch=1-2 batch=1-2", "image=a b", "image=%0a"})
    cr_expect(not Contract::parse(std::string("bellows/1 tenant=t gpus=1 ") + bad), "%s", bad);
}

Test(contract, job_class, .timeout = 10) {
  const auto contract = Contract::parse("bellows/1 tenant=t gpus=1-8 class=bert-base new=1");
  cr_assert(contract.ok());
  cr_expect(contract->job_class == "bert-base" && contract->extra_value("class").empty());
  cr_expect(read_back(*contract) == *contract);
  cr_expect(Contract::parse("bellows/1 tenant=t gpus=1")->job_class.empty());
  cr_expect(parse_job_class(std::string(64, 'x')).ok());
  for (const std::string& bad : {std::string(), std::string("-a"), std::string("a b"),
                                 std::string("a/b"), std::string(65, 'x'), std::string("\xc3\xa9")})
    cr_expect(!parse_job_class(bad).ok(), "%s", bad.c_str());
  for (const char* bad : {"class=", "class=a%20b", "class=.a", "class=a class=a"})
    cr_expect(not Contract::parse(std::string("bellows/1 tenant=t gpus=1 ") + bad), "%s", bad);
}

Test(contract, pools, .timeout = 10) {
  const auto member = PoolOption::parse("web_1-x");
  cr_assert(member.ok() && member->name == "web_1-x" && !member->is_keeper());
  const auto keeper = PoolOption::parse("web:0-010");
  cr_assert(keeper.ok() && keeper->is_keeper());
  cr_expect(keeper->min == 0 && keeper->max == 10 && keeper->to_string() == "web:0-10");
  cr_expect(PoolOption::parse("web:10000-10000").ok());
  cr_expect(PoolOption::parse(std::string(40, 'x')).ok());
  for (const std::string& bad : {std::string(),
                                 std::string(":1-2"),
                                 std::string("-a"),
                                 std::string("a b"),
                                 std::string("a/b"),
                                 std::string("a;b"),
                                 std::string("a\nb"),
                                 std::string("\xc3\xa9"),
                                 std::string(41, 'x'),
                                 std::string("a:"),
                                 std::string("a:1"),
                                 std::string("a:1-"),
                                 std::string("a:-1"),
                                 std::string("a:2-1"),
                                 std::string("a:0-0"),
                                 std::string("a:1-10001"),
                                 std::string("a:1-2-3"),
                                 std::string("a:1-2:3"),
                                 std::string("a:1-99999999999999999999"),
                                 std::string("a: 1-2")})
    cr_expect(!PoolOption::parse(bad).ok(), "%s", bad.c_str());
}

Test(contract, lists_read_back_whatever_is_in_them, .timeout = 10) {
  using List = std::vector<std::string>;
  for (const List& list :
       {List{}, List{"a"}, List{"/a:/b:ro", "/c:/d"}, List{"a,b", "c"},
        List{"50%", "%2C", "%252C,"}, List{"a", "", "b"}, List{" ", "\xc3\xa9"}}) {
    Contract contract;
    contract.tenant = "t";
    contract.extra.emplace_back(Contract::kMountsKey, Contract::join_list(list));
    cr_expect(Contract::split_list(read_back(contract).extra_value(Contract::kMountsKey)) == list);
  }
}

Test(contract, says_who_may_read_what_a_job_stores, .timeout = 10) {
  Policy policy;
  Tenant& tenant = policy.tenants.emplace_back();
  tenant.name = "vision";
  tenant.accounts = {"vision"};
  tenant.frameworks = {"*"};
  policy.index();
  Request request = parse_job("--gpus=1");
  request.gpus_range = "1-1";
  for (const auto& [access, word] :
       {std::pair{Access::owner, ""}, {Access::group, "group"}, {Access::all, "all"}}) {
    policy.checkpoint_access = access;
    const Decision decision = decide(&policy, "", request);
    cr_assert(!decision.refused, "%s", decision.message.c_str());
    cr_expect(read_back(decision.contract).extra_value(Contract::kAccessKey) == word);
  }
}

Test(contract, what_does_not_fit_is_refused, .timeout = 10) {
  cr_expect(not with_prefix(3000, "1-8").refused);
  cr_expect(told(with_prefix(5000, "1-8")) ==
            "policy: what bellows.yaml says about framework long does not fit into a job contract "
            "of 4096 "
            "bytes; ask the administrator to shorten its mounts, models and prefix");
  std::string ascending = "1,2";
  for (int i = 4; ascending.size() < 1000; i += 1 + i % 3) ascending += "," + std::to_string(i);
  cr_expect(told(with_prefix(3500, ascending.c_str())) ==
            "option: --gpus-range lists too many sizes for a job contract of 4096 bytes; write it "
            "as MIN-MAX or MIN-MAX:STEP");
}

Test(plain_jobs, go_by_the_partition, .timeout = 10) {
  const std::string refusal =
      "partition gpu takes only jobs of Bellows; give the job --framework=NAME or "
      "--gpus-range=RANGE, or name another partition with --partition";
  cr_expect(plain("") == "passes");
  cr_expect(plain("cpu") == "passes");
  cr_expect(plain("gpu") == refusal);
  cr_expect(plain("cpu,gpu") == refusal, "Slurm may start it in either");
  cr_expect(plain("gpu2") == "passes", "these are names, not patterns");
  cr_expect(plain("", "gpu") == refusal, "that is where it goes");
  cr_expect(plain("cpu", "gpu") == "passes");
}

Test(plain_jobs, name_a_partition_with_a_reservation, .timeout = 10) {
  Origin origin;
  origin.default_partition = "cpu";
  origin.reserved = true;
  cr_expect(refuse_plain(policy(), origin)
                .value_or("")
                .starts_with("the job names a reservation and no partition"));
  origin.partition = "cpu";
  cr_expect(not refuse_plain(policy(), origin));
  origin.partition.clear();
  cr_expect(not refuse_plain(Policy(), origin), "all partitions are alike");
}

Test(plain_jobs, may_be_refused_everywhere_but_somewhere, .timeout = 10) {
  Policy policy;
  policy.plain_jobs = Fallback::refuse;
  policy.plain_jobs_by_partition["cpu"] = Fallback::pass;
  Origin origin;
  cr_expect(refuse_plain(policy, origin)->starts_with("the default partition takes only jobs"));
  origin.partition = "cpu";
  cr_expect(not refuse_plain(policy, origin));
  origin.partition = "cpu,other";
  cr_expect(refuse_plain(policy, origin)->starts_with("partition other takes only"));
  origin.partition = "\033[2J";
  cr_expect(refuse_plain(policy, origin)->starts_with("partition ?[2J takes only"));
}

Test(contract, says_where_the_controller_is_of_jobs_that_it_may_resize, .timeout = 10) {
  const auto contract_of = [](const char* gpus, const char* range, bool batch) {
    const auto policy = load_policy(
        std::string("version: 1\ncontroller: {addresses: [\"c:1\"]}\nframeworks: {f: }\n"
                    "tenants: {vision: {gpus: {") +
            gpus + "}}}\n",
        "bellows.yaml");
    cr_assert(policy.ok());
    Request request = parse_job("--framework=f");
    request.gpus_range = range;
    request.batch = batch;
    const Decision decision = decide(&*policy, "", request);
    cr_assert(!decision.refused, "%s", decision.message.c_str());
    return decision.contract;
  };
  const auto controller = [&](const char* gpus, const char* range, bool batch) {
    return std::string(contract_of(gpus, range, batch).extra_value(Contract::kControllerKey));
  };
  cr_expect(controller("elastic: auto", "1-4", true) == "@c:1");
  cr_expect(controller("elastic: auto", "4", true) == "");
  cr_expect(controller("elastic: auto", "1-4", false) == "");
  cr_expect(controller("elastic: manual", "1-4", true) == "");
  cr_expect(contract_of("elastic: manual", "1-4", true).gpus.to_string() == "1-4");
  cr_expect(contract_of("elastic: off", "1-4", true).gpus.to_string() == "1");
}

Test(contract, says_where_the_controller_is_to_the_keeper_of_a_pool, .timeout = 10) {
  const auto controller = [](const char* site, const char* options) {
    const auto policy =
        load_policy(std::string("version: 1\n") + site + "tenants: {vision: }\n", "bellows.yaml");
    cr_assert(policy.ok());
    const Decision decision = decide(&*policy, "", parse_job(options));
    cr_assert(!decision.refused, "%s", decision.message.c_str());
    return std::string(decision.contract.extra_value(Contract::kControllerKey));
  };
  constexpr const char* kController = "controller: {addresses: [\"c:1\"]}\n";
  cr_expect(controller(kController, "--pool=web:1-8") == "@c:1");
  cr_expect(controller(kController, "--pool=web") == "");
  cr_expect(controller("", "--pool=web:1-8") == "");
}
