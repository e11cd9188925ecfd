// SPDX-License-Identifier: Apache-2.0
/// Which calls of sacctmgr give Slurm a policy's tenants, and what is read of its answers.

#include <criterion/criterion.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/text.h"
#include "launcher/base/program_output.h"
#include "launcher/policy/tenant_plan.h"
#include "tests/unit/jobsubmit/policy_support.h"

using namespace bellows;

namespace {

/// What a new cluster has.
const std::string kFresh = "root||||normal\nroot|root|||normal\n";

SlurmAccounts present(const std::string& accounts, const std::string& qos) {
  auto found = parse_accounts(accounts, qos);
  cr_assert(found.ok(), "%s", found.ok() ? "" : found.error().text.c_str());
  return *std::move(found);
}

Policy policy_of(const std::string& tenants) {
  return good("version: 1\ntenants:\n  " + tenants + "\n");
}

/// The commands, without what all of them share.
std::string commands(const TenantPlan& plan) {
  const std::string program = "sacctmgr --immediate ";
  std::string text;
  for (const TenantChange& change : plan.changes) {
    const std::string line = shell_line(change.command);
    cr_assert(line.starts_with(program), "%s", line.c_str());
    cr_expect(not change.why.empty());
    text += line.substr(program.size()) + "\n";
  }
  return text;
}

std::string notes(const TenantPlan& plan) {
  std::string text;
  for (const std::string& note : plan.notes) text += note + "\n";
  return text;
}

TenantPlan plan_for(const std::string& tenants, const SlurmAccounts& slurm) {
  auto plan = plan_tenants(policy_of(tenants), slurm, "c");
  cr_assert(plan.ok(), "%s: %s", tenants.c_str(), plan.ok() ? "" : plan.error().text.c_str());
  return *std::move(plan);
}

void expect_text(const std::string& got, const std::string& wanted) {
  cr_expect(got == wanted, "got:\n%s\nwanted:\n%s", got.c_str(), wanted.c_str());
}

std::string value_of(const std::vector<std::string>& command, const std::string& key) {
  for (const std::string& word : command)
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  return "";
}

/// Does a command as slurmdbd would, or fails.
void obey(SlurmAccounts& slurm, const std::vector<std::string>& command) {
  const std::string name = value_of(command, "name");
  const std::string parent = value_of(command, "parent");
  if (command[3] == "qos") {
    cr_assert(slurm.qos.insert(name).second, "QOS %s is there already", name.c_str());
    return;
  }
  cr_assert(value_of(command, "cluster") == "c");
  if (command[2] == "add") {
    cr_assert(slurm.accounts.count(parent), "%s comes before its parent", name.c_str());
    SlurmAccount account{parent, std::nullopt, slurm.accounts[parent].qos};
    cr_assert(slurm.accounts.emplace(name, account).second, "%s is there already", name.c_str());
    return;
  }
  cr_assert(slurm.accounts.count(name), "%s is not there", name.c_str());
  SlurmAccount& account = slurm.accounts[name];
  if (!parent.empty()) account.parent = parent;
  if (const std::string gpus = value_of(command, "GrpTRES"); !gpus.empty())
    account.gpus = parse_uint(gpus.substr(std::string("gres/gpu=").size()));
  const std::string added = value_of(command, "QOS+");
  for (std::string_view qos : split(added, ','))
    if (!qos.empty()) {
      cr_assert(slurm.qos.count(std::string(qos)), "there is no such QOS");
      account.qos.insert(std::string(qos));
    }
}

struct Case {
  const char* about;
  const char* tenants;
  const char* accounts;  ///< after those of a new cluster
  const char* commands;
};

const char* const kAdd = "add account name=vision cluster=c parent=root\n";
const Case kCases[] = {
    {"nothing", "{}", "", ""},
    {"a new account", "vision:", "", kAdd},
    {"an account that is there", "vision:", "vision||root||normal\n", ""},
    {"a user of that name is no account", "vision:", "x||root||\nx|vision|||normal\n", kAdd},
    {"upper case is the same", "Vision: {accounts: [VISION]}", "vision||root||normal\n", ""},
    {"several accounts", "v: {accounts: [vision, b]}", "b||root||\n", kAdd},
    {"an account of two tenants", "a: {accounts: [vision], users: [u]}\n  vision:", "", kAdd},
    {"a tenant without accounts", "others: {accounts: []}", "", ""},
    {"a quota on a new account", "vision: {quota: {gpus: 8}}", "",
     "add account name=vision cluster=c parent=root\n"
     "modify account where name=vision cluster=c set GrpTRES=gres/gpu=8\n"},
    {"a quota that is there", "vision: {quota: {gpus: 8}}", "vision||root|gres/gpu=8|normal\n", ""},
    {"among other limits", "vision: {quota: {gpus: 8}}",
     "vision||root|cpu=9,gres/gpu=8,gres/gpu:a100=1,mem=1G|normal\n", ""},
    {"a limit for a type is another one", "vision: {quota: {gpus: 8}}",
     "vision||root|gres/gpu:a100=8|normal\n",
     "modify account where name=vision cluster=c set GrpTRES=gres/gpu=8\n"},
    {"another quota", "vision: {quota: {gpus: 8}}", "vision||root|gres/gpu=80|normal\n",
     "modify account where name=vision cluster=c set GrpTRES=gres/gpu=8\n"},
    {"no GPUs at all", "vision: {quota: {gpus: 0}}", "vision||root||normal\n",
     "modify account where name=vision cluster=c set GrpTRES=gres/gpu=0\n"},
    {"a quota that is gone stays", "vision: {quota: }", "vision||root|gres/gpu=8|normal\n", ""},
    {"a quota for new accounts together",
     "v: {accounts: [vision, b], quota: {gpus: 8, parent: All}}", "",
     "add account name=all cluster=c parent=root\nadd account name=vision cluster=c parent=all\n"
     "add account name=b cluster=c parent=all\n"
     "modify account where name=all cluster=c set GrpTRES=gres/gpu=8\n"},
    {"an account comes below the parent", "vision: {quota: {gpus: 8, parent: all}}",
     "all||root|gres/gpu=8|normal\nvision||root||normal\n",
     "modify account where name=vision cluster=c set parent=all\n"},
    {"the parent is where it is", "vision: {quota: {gpus: 8, parent: all}}",
     "top||root||\nall||top|gres/gpu=8|\nvision||all||\n", ""},
    {"a QOS that is there", "vision: {sizing: {qos: normal}}", "vision||root||normal\n", ""},
    {"a new QOS", "vision: {sizing: {qos: High}}", "vision||root||normal\n",
     "add qos name=high\nmodify account where name=vision cluster=c set QOS+=high\n"},
    {"names and no patterns",
     "vision: {sizing: {qos: low, qos_allowed: [\"hi*\", \"x?\", \"[y]\", low, normal]}}",
     "vision||root||normal\n",
     "add qos name=low\nmodify account where name=vision cluster=c set QOS+=low\n"},
    {"a new account inherits", "vision: {sizing: {qos_allowed: [normal, low, high]}}", "",
     "add qos name=high\nadd qos name=low\nadd account name=vision cluster=c parent=root\n"
     "modify account where name=vision cluster=c set QOS+=high,low\n"},
    {"a QOS of two tenants", "vision: {sizing: {qos: low}}\n  b: {sizing: {qos: low}}",
     "vision||root||normal,low\nb||root||normal\n",
     "add qos name=low\nmodify account where name=b cluster=c set QOS+=low\n"},
    {"a QOS that was taken away", "vision: {sizing: {qos: normal}}", "vision||root||-normal\n",
     "modify account where name=vision cluster=c set QOS+=normal\n"},
    {"a QOS that only the old parent allowed",
     "vision: {quota: {gpus: 1, parent: all}, sizing: {qos_allowed: [rare, normal]}}",
     "old||root||normal,rare\nvision||old||normal,rare\nall||root|gres/gpu=1|normal\n",
     "add qos name=rare\nmodify account where name=vision cluster=c set parent=all\n"
     "modify account where name=vision cluster=c set QOS+=rare\n"},
};

}  // namespace

Test(tenant_plan, commands, .timeout = 10) {
  for (const Case& one : kCases) {
    const SlurmAccounts slurm = present(kFresh + one.accounts, "normal\n");
    const std::string got = commands(plan_for(one.tenants, slurm));
    cr_expect(got == one.commands, "%s gave:\n%s", one.about, got.c_str());
  }
}

Test(tenant_plan, can_be_done_and_is_then_empty, .timeout = 10) {
  for (const Case& one : kCases) {
    SlurmAccounts slurm = present(kFresh + one.accounts, "normal\n");
    for (const TenantChange& change : plan_for(one.tenants, slurm).changes)
      obey(slurm, change.command);
    const std::string left = commands(plan_for(one.tenants, slurm));
    cr_expect(left.empty(), "%s leaves:\n%s", one.about, left.c_str());
  }
}

Test(tenant_plan, notes, .timeout = 10) {
  const SlurmAccounts slurm = present(
      kFresh + "vision||root|gres/gpu=4|normal,vip\nintern||vision|gres/gpu=1|\nold||root||\n",
      "normal\nvip\nx\n");
  const auto said = [&](const char* tenants) { return notes(plan_for(tenants, slurm)); };
  const std::string qos = "QOS that no tenant names: vip, x\n";
  const std::string limit = "account vision has a limit of 4 GPUs, which is no tenant's quota\n";
  expect_text(said("vision:"), ("accounts that no tenant lists: intern, old\n" + qos + limit));
  expect_text(said("vision: {children: true, quota: {gpus: 4}}\n  old:\ndefault_tenant: old"),
              (qos + "account intern has a limit of 1 GPU, which is no tenant's quota\n"));
  expect_text(said("vision: {quota: {gpus: 4}, sizing: {qos_allowed: [normal, \"X*\"]}}\n"
                   "default_tenant: vision"),
              "accounts that no tenant lists (tenant vision takes their jobs): intern, old\n"
              "QOS that no tenant names: vip\n"
              "account vision may use QOS vip in Slurm, but in no tenant of the policy\n");
  expect_text(said("vision: {accounts: [vision, intern], sizing: {qos: vip}}\n  "
                   "t: {accounts: [x], quota: {gpus: 1, parent: old}}"),
              ("QOS that no tenant names: x\n"
               "account intern has a limit of 1 GPU, which is no tenant's quota\n" +
               limit));
}

Test(tenant_plan, refuses_what_cannot_be, .timeout = 10) {
  const SlurmAccounts slurm = present(kFresh + "vision||root||\nb||vision||\nc||b||\n", "normal\n");
  const auto refused = [&](const char* tenants) {
    const auto plan = plan_tenants(policy_of(tenants), slurm, "c");
    cr_assert(not plan.ok(), "%s", tenants);
    return plan.error().text;
  };
  expect_text(refused("vision: {quota: {gpus: 1, parent: c}}"),
              "tenant vision: account vision cannot be placed below c, which is below it; name "
              "another parent or move c by hand");
  for (const char* name : {"a b", "a,b", "-a", "a=b", "a;b", "+a"}) {
    const std::string tenants = std::string("vision: {sizing: {qos_allowed: [\"") + name + "\"]}}";
    const std::string wanted = std::string("tenant vision: \"") + name +
                               "\" in qos_allowed is neither a pattern nor a name that sacctmgr "
                               "can take";
    expect_text(refused(tenants.c_str()), wanted);
  }
}

Test(tenant_plan, shell_line, .timeout = 10) {
  expect_text(shell_line({"a", "QOS+=x,y", "GrpTRES=gres/gpu=1"}), "a QOS+=x,y GrpTRES=gres/gpu=1");
  expect_text(shell_line({"", "a b", "$x", "it's", "~", "#"}), "'' 'a b' '$x' 'it'\\''s' '~' '#'");
}

Test(slurm_accounts, odd_answers_are_errors, .timeout = 10) {
  const char* const kAccounts[] = {
      "vision||root|",
      "vision||root|||",
      "||root||normal",
      "vis\x1bion||root||normal",
      "a,b||root||normal",
      "vision||root|gres/gpu|normal",
      "vision||root|=1|normal",
      "vision||root|gres/gpu=|normal",
      "vision||root|gres/gpu=-1|normal",
      "vision||root|gres/gpu=1x|normal",
      "vision||root|gres/gpu=99999999999999999999|normal",
      "vision||root|gres/gpu=1,gres/gpu=2|normal",
      "vision||root||normal,,x",
      "vision||root||+",
      "vision||ro,ot||normal",
      "root||||normal",
      " Problem talking to the database: Connection refused",
  };
  for (const char* line : kAccounts) {
    const auto found = parse_accounts(kFresh + line + "\n", "normal\n");
    cr_assert(not found.ok(), "accepted: %s", line);
    cr_expect(found.error().text.starts_with("sacctmgr gave a line that is not an account: \""),
              "%s", found.error().text.c_str());
    cr_expect(found.error().text.find('\x1b') == std::string::npos);
  }
  for (const char* line : {"a|b", "a,b", "a\tb"}) {
    const auto found = parse_accounts(kFresh, std::string("normal\n") + line + "\n");
    cr_assert(not found.ok(), "accepted: %s", line);
    cr_expect(found.error().text.starts_with("sacctmgr gave a line that is not a QOS"));
  }
}

Test(slurm_accounts, the_tree_must_be_one, .timeout = 10) {
  for (const char* lines : {"", "vision||root||\n"})
    cr_expect(parse_accounts(lines, "").error().text.starts_with("sacctmgr knows no account root"));
  for (const char* lines : {"a||b||\n", "a||b||\nb||a||\n", "a||a||\n"})
    cr_expect(parse_accounts(kFresh + lines, "").error().text ==
              "sacctmgr gave account a, but no path from it to the root");
}

Test(slurm_accounts, setup, .timeout = 10) {
  const auto found = parse_accounting(
      "Configuration data as of 2026-11-21T00:00:00\nAccountingStorageEnforce = "
      "associations,limits,qos\nAccountingStorageTRES   = cpu,mem,gres/gpu\n"
      "AccountingStorageType   = accounting_storage/slurmdbd\nClusterName             = bellows\n");
  cr_assert(found.ok());
  cr_expect(found->cluster == "bellows" && found->type == "accounting_storage/slurmdbd");
  cr_expect(found->tres.count("gres/gpu") && found->enforce.count("limits"));
  for (const char* text : {"", "ClusterName = c\n", "AccountingStorageType = x\n",
                           "ClusterName = -c\nAccountingStorageType = x\n",
                           "ClusterName = a b\nAccountingStorageType = x\n"})
    cr_expect(not parse_accounting(text).ok(), "accepted: %s", text);
  cr_expect(ask_accounting("")[1] == "show");
  cr_expect(ask_accounting("far")[1] == "--cluster=far");
}

Test(program_output, both_streams_status_and_limits, .timeout = 20) {
  using namespace std::chrono_literals;
  const auto shell = [](const char* script, std::chrono::milliseconds limit, std::size_t most) {
    return output_of({"sh", "-c", script}, limit, most);
  };
  auto both = shell("echo out; echo err >&2; exit 3", 10s, 1000);
  cr_assert(both.ok());
  cr_expect(both->out == "out\n" && both->err == "err\n" && both->exit.code() == 3);
  cr_expect(shell("cat", 10s, 1000)->exit.ok(), "there is nothing to read");
  auto wide = shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2", 10s, 1 << 20);
  cr_expect(wide.ok() && wide->out.size() == 300000 && wide->err.size() == 300000);
  cr_expect(shell("exec >&- 2>&-; sleep 0.1; exit 4", 10s, 1000)->exit.code() == 4);
  cr_expect(shell("sleep 100", 100ms, 1000).error().kind == ErrorKind::busy);
  cr_expect(shell("exec >&- 2>&-; sleep 100", 100ms, 1000).error().kind == ErrorKind::busy);
  cr_expect(shell("cat /dev/zero", 10s, 100000).error().kind == ErrorKind::invalid);
  cr_expect(shell("cat /dev/zero >&2", 10s, 100000).error().kind == ErrorKind::invalid);
  cr_expect(output_of({"/nowhere/at/all"}, 10s, 10).error().kind == ErrorKind::not_found);
}
