// SPDX-License-Identifier: Apache-2.0
/// What Slurm's configuration says, and which of its lines make Slurm load Bellows.

#include <criterion/criterion.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/setup/setup_plan.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

namespace {

using Files = std::map<std::string, std::string>;

ReadText reader_of(const Files& files) {
  return [files](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return Error{ErrorKind::not_found, "cannot open " + path};
    return found->second;
  };
}

SlurmConf conf_of(const std::string& text, Files files = {}) {
  files["/etc/slurm.conf"] = text;
  auto conf = SlurmConf::read("/etc/slurm.conf", reader_of(files));
  cr_assert(conf.ok(), "%s", conf.ok() ? "" : conf.error().text.c_str());
  return *std::move(conf);
}

/// "PLACE LINE" of each.
std::string entries(const SlurmConf& conf, const std::string& key) {
  std::vector<std::string> lines;
  for (const ConfEntry& entry : conf.all(key))
    lines.push_back(entry.place.to_string() + " " + entry.line());
  return fmt::format("{}", fmt::join(lines, "\n"));
}

void expect_text(const std::string& got, const std::string& wanted) {
  cr_expect(got == wanted, "got:\n%s\nwanted:\n%s", got.c_str(), wanted.c_str());
}

/// All that Bellows needs, and where.
const std::string kGood =
    "PluginDir=/slurm:/own\n"
    "JobSubmitPlugins=lua,bellows\n"
    "PrologFlags=contain\n"
    "TaskPlugin=affinity,cgroup\n"
    "GresTypes=gpu,nic\n"
    "SelectType=select/cons_tres\n"
    "SchedulerParameters=sched_interval=2,bf_continue,sched_min_interval=100000,batch_sched_delay="
    "0\n";

struct Machine {
  std::string slurm = kGood;
  std::string cgroup = "ConstrainDevices=yes\n";
  std::vector<std::string> plugstack = {"optional spank_bellows.so"};
  Files included = {};
  std::set<std::string> present = {"/own/job_submit_bellows.so", "/own/spank_bellows.so",
                                   "/etc/bellows.yaml"};
};

SetupPlan plan_of(const Machine& machine) {
  auto cgroup =
      SlurmConf::read("/etc/cgroup.conf", reader_of({{"/etc/cgroup.conf", machine.cgroup}}));
  cr_assert(cgroup.ok());
  SlurmSetup setup{conf_of(machine.slurm, machine.included),
                   *std::move(cgroup),
                   "/etc/plugstack.conf",
                   {},
                   "/slurm",
                   "/own"};
  for (const std::string& line : machine.plugstack)
    setup.plugstack.push_back(
        {line, line.substr(line.find(' ') + 1), {"/etc/plugstack.conf", 1, 1}});
  return plan_setup(setup,
                    [&](const std::string& path) { return machine.present.count(path) > 0; });
}

/// "PLACE: OLD -> NEW" of each change.
std::string changes(const SetupPlan& plan) {
  std::vector<std::string> lines;
  for (const ConfChange& change : plan.changes) {
    cr_expect(not change.why.empty());
    lines.push_back(fmt::format(
        "{}: {} -> {}", change.place.first > 0 ? change.place.to_string() : change.place.file,
        change.old_line, change.new_line));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string notes(const SetupPlan& plan) { return fmt::format("{}", fmt::join(plan.notes, "\n")); }

/// With one line of the good slurm.conf replaced.
std::string good_but(const std::string& key, const std::string& line) {
  std::string text = kGood;
  const auto at = text.find(key + "=");
  cr_assert(at != std::string::npos);
  return text.replace(at, text.find('\n', at) + 1 - at, line.empty() ? "" : line + "\n");
}

std::string changes_with(const std::string& key, const std::string& line) {
  Machine machine;
  machine.slurm = good_but(key, line);
  return changes(plan_of(machine));
}

}  // namespace

Test(slurm_conf, keys_have_no_case_and_the_last_value_counts) {
  const SlurmConf conf = conf_of("pluginDIR=/a\nother=x\nPluginDir = /b\n");
  expect_text(entries(conf, "PluginDir"),
              "/etc/slurm.conf:1 pluginDIR=/a\n/etc/slurm.conf:3 PluginDir=/b");
  expect_text(conf.value("plugindir"), "/b");
  expect_text(conf.value("Plugin"), "");
}

Test(slurm_conf, comments_quotes_continuations_and_escapes) {
  const SlurmConf conf = conf_of(
      "#A=1\nB=2 # C=3\n  D=\"two words\"\nE=a,\\\nb,\\ \nc\nF=x\\#y\nG=\n=H\nI+=5\nJ=last");
  expect_text(entries(conf, "A") + entries(conf, "C") + entries(conf, "G"), "");
  expect_text(entries(conf, "B"), "/etc/slurm.conf:2 B=2");
  expect_text(entries(conf, "D"), "/etc/slurm.conf:3 D=\"two words\"");
  expect_text(entries(conf, "E"), "/etc/slurm.conf:4-6 E=a,b,c");
  expect_text(entries(conf, "F"), "/etc/slurm.conf:7 F=x#y");
  expect_text(entries(conf, "I"), "/etc/slurm.conf:10 I=5");
  expect_text(entries(conf, "J"), "/etc/slurm.conf:11 J=last");
}

Test(slurm_conf, includes_are_read_where_they_stand) {
  const SlurmConf conf =
      conf_of("ClusterName=Big\nA=1\ninclude sub/%c.conf\nA=3\n Include not.read\n",
              {{"/etc/sub/big.conf", "Include more\nA=2\n"}, {"/etc/sub/more", "B=x\n"}});
  expect_text(entries(conf, "A"),
              "/etc/slurm.conf:2 A=1\n/etc/sub/big.conf:2 A=2\n/etc/slurm.conf:4 A=3");
  expect_text(entries(conf, "B"), "/etc/sub/more:1 B=x");
}

Test(slurm_conf, an_include_that_cannot_be_read_is_named) {
  const auto conf =
      SlurmConf::read("/s", reader_of({{"/s", "\nInclude /one\n"}, {"/one", "Include /two\n"}}));
  cr_assert(not conf.ok());
  expect_text(conf.error().text, "cannot open /two, included by /one:1");
  const auto loop = SlurmConf::read("/s", reader_of({{"/s", "Include /s\n"}}));
  cr_assert(not loop.ok());
  cr_expect(loop.error().text.find("does it include itself?") != std::string::npos, "%s",
            loop.error().text.c_str());
}

Test(slurm_conf, controllers) {
  const auto hosts = [](const std::string& text) {
    return fmt::format("{}", fmt::join(conf_of(text).controllers(), " "));
  };
  expect_text(hosts("SlurmctldHost=one(10.0.0.1)\nSlurmctldHost=two\n"), "one two");
  expect_text(hosts("ControlMachine=old\nBackupController=spare\n"), "old spare");
  expect_text(hosts("ClusterName=c\n"), "");
}

Test(slurm_conf, plugstack_is_read_as_spank_reads_it) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/plugstack.conf";
  const Files files = {
      {path, "# optional x.so\noptional a.so k=v # more\nwrong b.so\ninclude d/*.conf\n"},
      {dir.path() + "/d/1.conf", "required\t/p/spank_bellows.so\n"}};
  cr_assert(mkdir((dir.path() + "/d").c_str(), 0700) == 0);
  std::ofstream(dir.path() + "/d/1.conf") << "found by its name\n";
  const auto lines = read_plugstack(path, reader_of(files));
  cr_assert(lines.ok());
  cr_assert(lines->size() == 2);
  expect_text((*lines)[0].plugin, "a.so");
  expect_text((*lines)[1].plugin, "/p/spank_bellows.so");
  expect_text((*lines)[1].place.to_string(), dir.path() + "/d/1.conf:1");
  const auto none = read_plugstack("/none", reader_of({}));
  cr_expect(none.ok() && none->empty());
}

Test(setup, nothing_is_to_be_done_twice) {
  expect_text(changes(plan_of({})), "");
  expect_text(notes(plan_of({})), "");
}

Test(setup, an_empty_configuration_gets_all_lines) {
  Machine machine{"", "", {}, {}, {"/own/job_submit_bellows.so", "/own/spank_bellows.so"}};
  expect_text(changes(plan_of(machine)),
              "/etc/slurm.conf:  -> PluginDir=/slurm:/own\n"
              "/etc/slurm.conf:  -> JobSubmitPlugins=bellows\n"
              "/etc/slurm.conf:  -> PrologFlags=Contain\n"
              "/etc/slurm.conf:  -> TaskPlugin=task/cgroup\n"
              "/etc/slurm.conf:  -> GresTypes=gpu\n"
              "/etc/slurm.conf:  -> SelectType=select/cons_tres\n"
              "/etc/cgroup.conf:  -> ConstrainDevices=yes\n"
              "/etc/slurm.conf:  -> SchedulerParameters=batch_sched_delay=0,"
              "sched_min_interval=100000,sched_interval=2\n"
              "/etc/plugstack.conf:  -> required spank_bellows.so");
  expect_text(notes(plan_of(machine)),
              "there is no /etc/bellows.yaml on this machine; the controllers need it, see "
              "bellows.yaml(5)");
}

Test(setup, what_the_site_has_is_kept) {
  expect_text(changes_with("JobSubmitPlugins", "JobSubmitPlugins=lua"),
              "/etc/slurm.conf:2: JobSubmitPlugins=lua -> JobSubmitPlugins=lua,bellows");
  expect_text(changes_with("JobSubmitPlugins", "JobSubmitPlugins=job_submit/bellows"), "");
  expect_text(changes_with("PrologFlags", "PrologFlags=Serial"),
              "/etc/slurm.conf:3: PrologFlags=Serial -> PrologFlags=Serial,Contain");
  expect_text(changes_with("PrologFlags", "PrologFlags=X11"), "");
  expect_text(changes_with("PrologFlags", "PrologFlags=NoHold"),
              "/etc/slurm.conf:3: PrologFlags=NoHold -> PrologFlags=Contain");
  expect_text(changes_with("TaskPlugin", "TaskPlugin=task/affinity"),
              "/etc/slurm.conf:4: TaskPlugin=task/affinity -> "
              "TaskPlugin=task/affinity,task/cgroup");
  expect_text(changes_with("TaskPlugin", "TaskPlugin=task/none"),
              "/etc/slurm.conf:4: TaskPlugin=task/none -> TaskPlugin=task/cgroup");
  expect_text(changes_with("GresTypes", "GresTypes=nic"),
              "/etc/slurm.conf:5: GresTypes=nic -> GresTypes=nic,gpu");
  expect_text(changes_with("SelectType", "SelectType=select/linear"),
              "/etc/slurm.conf:6: SelectType=select/linear -> SelectType=select/cons_tres");
}

Test(setup, the_sites_own_scheduling_stays_and_is_noted) {
  Machine machine;
  machine.slurm = good_but("SchedulerParameters", "SchedulerParameters=sched_interval=30,bf_x");
  const SetupPlan plan = plan_of(machine);
  expect_text(changes(plan),
              "/etc/slurm.conf:7: SchedulerParameters=sched_interval=30,bf_x -> "
              "SchedulerParameters=sched_interval=30,bf_x,batch_sched_delay=0,"
              "sched_min_interval=100000");
  expect_text(notes(plan),
              "SchedulerParameters has sched_interval=30, which stays; with sched_interval=2 a "
              "resized job starts at once");
}

Test(setup, bellows_before_another_plugin_is_noted) {
  Machine machine;
  machine.slurm = good_but("JobSubmitPlugins", "JobSubmitPlugins=bellows,lua");
  expect_text(changes(plan_of(machine)), "");
  expect_text(notes(plan_of(machine)),
              "JobSubmitPlugins has bellows before lua: what that changes in a job is not checked "
              "against bellows.yaml");
}

/// The sample included into a file that has the keys already.
Test(setup, keys_that_stand_twice_are_merged_into_the_first) {
  Machine machine;
  machine.slurm = good_but("JobSubmitPlugins", "JobSubmitPlugins=lua\nInclude sample");
  machine.included = {{"/etc/sample", "JobSubmitPlugins=bellows\nPrologFlags=contain\n"}};
  expect_text(changes(plan_of(machine)),
              "/etc/slurm.conf:2: JobSubmitPlugins=lua -> JobSubmitPlugins=lua,bellows\n"
              "/etc/sample:1: JobSubmitPlugins=bellows -> \n"
              "/etc/sample:2: PrologFlags=contain -> ");
}

Test(setup, plugins_are_found_where_they_are) {
  Machine machine;
  machine.slurm = good_but("PluginDir", "PluginDir=/slurm");
  expect_text(changes(plan_of(machine)),
              "/etc/slurm.conf:1: PluginDir=/slurm -> PluginDir=/slurm:/own");
  // Installed among Slurm's own.
  machine.slurm = good_but("PluginDir", "");
  machine.present = {"/slurm/job_submit_bellows.so", "/slurm/spank_bellows.so",
                     "/etc/bellows.yaml"};
  expect_text(changes(plan_of(machine)), "");
  expect_text(notes(plan_of(machine)), "");
  // A SPANK plugin that its line names as a file.
  machine.slurm = kGood;
  machine.plugstack = {"required /far/spank_bellows.so"};
  machine.present = {"/own/job_submit_bellows.so", "/far/spank_bellows.so", "/etc/bellows.yaml"};
  expect_text(changes(plan_of(machine)) + notes(plan_of(machine)), "");
}

Test(setup, plugins_that_are_nowhere_are_noted) {
  Machine machine;
  machine.present = {"/etc/bellows.yaml"};
  expect_text(changes(plan_of(machine)), "");
  const std::string missing =
      " in /slurm:/own on this machine; install Bellows here, or name its directory with "
      "--plugin-dir";
  expect_text(notes(plan_of(machine)), "there is no job_submit_bellows.so" + missing +
                                           "\nthere is no spank_bellows.so" + missing);
}

Test(setup, a_second_line_of_spank_is_removed) {
  Machine machine;
  machine.plugstack = {"optional spank_bellows.so", "optional other.so",
                       "optional /own/spank_bellows.so"};
  expect_text(changes(plan_of(machine)),
              "/etc/plugstack.conf:1: optional /own/spank_bellows.so -> ");
}

Test(setup, devices_are_constrained) {
  Machine machine;
  for (const char* on : {"ConstrainDevices=YES\n", "constraindevices=true\n"}) {
    machine.cgroup = on;
    expect_text(changes(plan_of(machine)), "");
  }
  machine.cgroup = "ConstrainRAMSpace=yes\nConstrainDevices=no\n";
  expect_text(changes(plan_of(machine)),
              "/etc/cgroup.conf:2: ConstrainDevices=no -> ConstrainDevices=yes");
}
