// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <fstream>
#include <thread>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "common/text.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/launcher/ckpt_support.h"

using namespace bellows;
using namespace bellows::ckpt_test;

namespace {

/// Three steps of a small model, saved by two ranks.
struct Training : Checkpoints {
  Training() {
    unsetenv("BELLOWS_CHECKPOINT_DIR");
    for (std::uint64_t step : {10, 20, 30}) add(step, arrays(step));
  }
  static std::vector<WholeArray> arrays(std::uint64_t step) {
    return {count_up("model/w", {6, 5}, wire::kSharded), count_up("model/b", {6}),
            make_array<std::int64_t>("epoch", 8, {}, {static_cast<std::int64_t>(step)})};
  }
  std::string step_dir(std::uint64_t step) const { return step_path(dir(), step); }
  void damage(std::uint64_t step) const {
    const std::string path = step_dir(step) + "/" + shard_name(1, 2);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto at = static_cast<std::streamoff>(file.tellg()) / 2;
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(at);
    file.put(byte);
  }
  std::vector<std::uint64_t> left() const { return *list_steps(dir()); }
};

using Steps = std::vector<std::uint64_t>;

/// Puts a program named squeue before all others that says what Slurm would.
void fake_squeue(const Training& t, const std::string& script) {
  const std::string bin = t.scratch.path() + "/bin";
  std::filesystem::create_directories(bin);
  std::ofstream(bin + "/squeue") << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(bin + "/squeue", std::filesystem::perms::owner_all);
  setenv("PATH", (bin + ":" + getenv("PATH")).c_str(), 1);
}

/// As if job 1234 had saved the steps.
void owned_by_job(const Training& t) {
  std::ofstream(t.dir() + "/owner.json")
      << R"({"attempt":"1234.0.1795261859.0123456789abcdef.1","time":1.0})";
}

}  // namespace

#define expect_status(ran, wanted) \
  cr_expect((ran).status == (wanted), "wanted %d: %s", wanted, text_of(ran).c_str())

Test(list, shows_steps_names_and_the_newest, .timeout = 60) {
  Training t;
  expect_status(ckpt({"name", "20", "best", "-d", t.dir()}), 0);
  auto ran = ckpt({"list", t.dir()});
  expect_status(ran, 0);
  cr_expect(ran.says("committed, newest") && ran.says("best"), "%s", ran.out.c_str());
  const auto json = ckpt({"list", t.dir(), "--json"}).json();
  cr_assert(json["steps"].size() == 3);
  cr_expect(json["steps"][1]["step"] == 20 && json["steps"][1]["names"][0] == "best");
  cr_expect(json["steps"][1]["newest"] == false && json["steps"][2]["newest"] == true);
  cr_expect(json["steps"][2]["world"] == 2 && json["steps"][2]["bytes"] > 100);
  cr_expect(json["steps"][2]["attempt"] == "node.1.1" && json["steps"][2]["time"] > 1e9);
}

Test(list, tells_what_is_damaged_or_gone, .timeout = 60) {
  Training t;
  expect_status(ckpt({"name", "10", "first", "-d", t.dir()}), 0);
  std::filesystem::remove_all(t.step_dir(10));
  std::ofstream(t.step_dir(30) + "/manifest.json") << "{\"\x1b[31m";
  auto ran = ckpt({"list", t.dir()});
  cr_expect(!ran.says("\x1b"), "text of a file steers the terminal");
  expect_status(ran, 0);
  cr_expect(ran.says("damaged, newest") && ran.says("step 30: ") && ran.says("manifest.json"));
  cr_expect(ran.says("the name first belongs to step 10, which is gone"), "%s", ran.out.c_str());
  const auto json = ckpt({"list", t.dir(), "--json"}).json();
  cr_expect(json["steps"][1]["state"] == "damaged" && json["steps"][1]["error"].is_string());
  cr_expect(json["names_of_no_step"]["first"] == 10);
}

Test(list, finds_the_directory_by_itself, .timeout = 60) {
  Training t;
  setenv("BELLOWS_CHECKPOINT_DIR", t.dir().c_str(), 1);
  cr_expect(ckpt({"list"}).says("newest"));
  unsetenv("BELLOWS_CHECKPOINT_DIR");
  std::filesystem::rename(t.dir(), t.scratch.path() + "/bellows-checkpoints");
  std::filesystem::current_path(t.scratch.path());
  cr_expect(ckpt({"list"}).says("newest"));
  auto ran = ckpt({"list", "elsewhere"});
  expect_status(ran, 1);
  cr_expect(ran.complains("elsewhere") && ran.complains("BELLOWS_CHECKPOINT_DIR"));
}

Test(show, tells_types_values_and_who_stores_what, .timeout = 60) {
  Training t;
  auto ran = ckpt({"show", t.dir()});
  expect_status(ran, 0);
  for (const char* part : {"step 30", "2 ranks", "model/w", "f32[6,5]", "sharded along axis 0",
                           "rank 0 0-2, rank 1 3-5", "120 bytes", "replicated", "= 30"}) {
    cr_expect(ran.says(part), "%s is not in %s", part, ran.out.c_str());
  }
  const auto json = ckpt({"show", "10", "-d", t.dir(), "--json"}).json();
  cr_expect(json["step"] == 10 && json["world"] == 2);
  cr_assert(json["arrays"].size() == 3);
  cr_expect(json["arrays"][0]["name"] == "epoch" && json["arrays"][0]["values"] == 10);
  cr_expect(json["arrays"][1]["values"] == (std::vector<double>{0, 1, 2, 3, 4, 5}));
  const auto& w = json["arrays"][2];
  cr_expect(w["dtype"] == "f32" && w["shape"] == (std::vector<int>{6, 5}) && w["bytes"] == 120);
  cr_expect(w["layout"] == "sharded" && w["pieces"].size() == 2 && !w.contains("values"));
  cr_expect(w["pieces"][1]["rank"] == 1 && w["pieces"][1]["first"] == 3);
}

Test(show, takes_a_step_in_every_spelling, .timeout = 60) {
  Training t;
  expect_status(ckpt({"name", "20", "best", "-d", t.dir()}), 0);
  std::filesystem::copy(t.step_dir(20), t.scratch.path() + "/step-00000000000000000020",
                        std::filesystem::copy_options::recursive);
  std::filesystem::current_path(t.scratch.path());
  for (const std::string& spelling :
       {std::string("20"), std::string("00020"), std::string("step-00000000000000000020"),
        std::string("best"), t.step_dir(20), t.step_dir(20) + "/", t.dir() + "/named/best",
        std::string("./step-00000000000000000020")}) {
    auto ran = ckpt({"show", spelling, "-d", t.dir()});
    cr_expect(ran.says("step 20"), "%s: %s", spelling.c_str(), text_of(ran).c_str());
  }
  for (const std::string& newest : {std::string("latest"), t.dir(), t.dir() + "/latest"}) {
    cr_expect(ckpt({"show", newest, "-d", t.dir()}).says("step 30"), "%s", newest.c_str());
  }
}

Test(show, says_what_it_cannot_find, .timeout = 60) {
  Training t;
  for (const auto& [spelling, part] : std::vector<std::pair<std::string, std::string>>{
           {"40", "no step 40"}, {"worst", "\"worst\" is not a step"}, {"/nowhere", "/nowhere"}}) {
    auto ran = ckpt({"show", spelling, "-d", t.dir()});
    expect_status(ran, 1);
    cr_expect(ran.complains(part) && ran.out.empty(), "%s", text_of(ran).c_str());
  }
  std::filesystem::rename(t.step_dir(10), t.dir() + "/mine");
  auto ran = ckpt({"show", t.dir() + "/mine"});
  cr_expect(ran.complains("was renamed"), "%s", text_of(ran).c_str());
  t.damage(20);
  ran = ckpt({"show", "20", "-d", t.dir()});
  expect_status(ran, 1);
  cr_expect(ran.complains(shard_name(1, 2)) && ran.complains("damaged"), "%s", ran.err.c_str());
}

Test(verify, finds_a_flipped_bit, .timeout = 60) {
  Training t;
  auto ran = ckpt({"verify", "--all", "-d", t.dir()});
  expect_status(ran, 0);
  cr_expect(ran.says("step 10 is good") && ran.says("step 30 is good") && ran.err.empty());
  t.damage(20);
  ran = ckpt({"verify", "--all", "-d", t.dir()});
  expect_status(ran, 1);
  cr_expect(ran.says("step 30 is good") && ran.complains("step 20 is bad: "));
  cr_expect(ran.complains(shard_name(1, 2)), "%s", ran.err.c_str());
  expect_status(ckpt({"verify", "10", "30", "-d", t.dir()}), 0);
  expect_status(ckpt({"verify", t.dir()}), 0);
  ran = ckpt({"verify", "10", "20", "-d", t.dir(), "--json"});
  expect_status(ran, 1);
  const auto json = ran.json();
  cr_expect(json["good"] == false && json["steps"][0]["good"] == true);
  cr_expect(json["steps"][1]["error"].is_string() && json["steps"][1]["bytes"].is_null());
}

Test(verify, calls_no_step_bad_that_cannot_be_read, .timeout = 60) {
  Training t;
  const checkpoint_test::OpenBlock blocked(t.step_dir(20) + "/" + shard_name(1, 2));
  auto ran = ckpt({"verify", "20", "-d", t.dir()});
  expect_status(ran, 1);
  cr_expect(ran.complains("step 20 cannot be read: ") && !ran.complains("is bad"), "%s",
            ran.err.c_str());
  ran = ckpt({"verify", "--all", "-d", t.dir(), "--json"});
  expect_status(ran, 1);
  cr_expect(ran.json()["good"] == false && ran.json()["steps"][1]["good"].is_null());
}

Test(verify, of_a_directory_without_steps_fails, .timeout = 60) {
  Checkpoints empty;
  auto ran = ckpt({"verify", empty.dir()});
  expect_status(ran, 1);
  cr_expect(ran.complains("no committed checkpoint"));
}

Test(prune, keeps_what_the_rule_says, .timeout = 60) {
  Training t;
  for (std::uint64_t step : {40, 50, 60}) t.add(step, Training::arrays(step));
  expect_status(ckpt({"name", "10", "first", "-d", t.dir()}), 0);
  auto ran = ckpt({"prune", t.dir(), "--keep", "2", "--keep-every", "40", "--dry-run"});
  expect_status(ran, 0);
  cr_expect(ran.says("would remove step 20\nwould remove step 30\n4 of 6 steps would stay"), "%s",
            ran.out.c_str());
  cr_expect(t.left().size() == 6);
  std::filesystem::create_directories(t.dir() + "/.tmp-gone-5-prune.77/x");
  ran = ckpt({"prune", t.dir(), "--keep", "2", "--keep-every", "40"});
  expect_status(ran, 0);
  cr_expect(ran.says("removed step 20\nremoved step 30\n4 of 6 steps stay"), "%s", ran.out.c_str());
  cr_expect(t.left() == (Steps{10, 40, 50, 60}));
  for (const auto& entry : std::filesystem::directory_iterator(t.dir())) {
    cr_expect(!entry.path().filename().string().starts_with(".tmp-"), "%s", entry.path().c_str());
  }
  expect_status(ckpt({"verify", "--all", "-d", t.dir()}), 0);
  expect_status(ckpt({"name", "--remove", "first", "-d", t.dir()}), 0);
  expect_status(ckpt({"prune", t.dir(), "--keep", "1"}), 0);
  cr_expect(t.left() == (Steps{60}));
}

Test(prune, prints_json, .timeout = 60) {
  Training t;
  t.damage(30);
  for (const char* dry : {"true", "false"}) {
    std::vector<std::string> arguments{"prune", t.dir(), "--keep", "1", "--json"};
    if (*dry == 't') arguments.push_back("--dry-run");
    auto ran = ckpt(arguments);
    expect_status(ran, 0);
    const auto json = ran.json();
    cr_expect(json["dir"] == t.dir() && json["dry_run"].dump() == dry, "%s", ran.out.c_str());
    cr_expect(json["removed"] == (Steps{10}) && json["kept"] == (Steps{20, 30}), "%s",
              ran.out.c_str());
    cr_expect(json["bad"] == (Steps{30}), "%s", ran.out.c_str());
  }
  cr_expect(t.left() == (Steps{20, 30}));
}

Test(prune, never_counts_on_a_bad_step, .timeout = 60) {
  Training t;
  t.damage(30);
  auto ran = ckpt({"prune", t.dir(), "--keep", "1"});
  expect_status(ran, 0);
  cr_expect(ran.says("step 30 does not verify"), "%s", ran.out.c_str());
  cr_expect(t.left() == (Steps{20, 30}));
  t.damage(20);
  expect_status(ckpt({"prune", t.dir(), "--keep", "1"}), 0);
  cr_expect(t.left() == (Steps{20, 30}));
}

// It may be whole, so nothing is removed for its sake, nor is it called bad.
Test(prune, never_counts_on_a_step_that_cannot_be_read, .timeout = 60) {
  Training t;
  {
    const checkpoint_test::OpenBlock blocked(t.step_dir(30) + "/" + shard_name(1, 2));
    auto ran = ckpt({"prune", t.dir(), "--keep", "1", "--dry-run", "--json"});
    expect_status(ran, 0);
    cr_expect(ran.json()["bad"].empty() && ran.json()["unread"] == (Steps{30}), "%s",
              ran.out.c_str());
    ran = ckpt({"prune", t.dir(), "--keep", "1"});
    expect_status(ran, 0);
    cr_expect(
        ran.says("step 30 could not be read, and is not counted: ") && !ran.says("does not verify"),
        "%s", ran.out.c_str());
    cr_expect(t.left() == (Steps{20, 30}));
    const checkpoint_test::OpenBlock other(t.step_dir(20) + "/" + shard_name(1, 2));
    expect_status(ckpt({"prune", t.dir(), "--keep", "1"}), 0);
    cr_expect(t.left() == (Steps{20, 30}), "the last step was removed");
  }
  expect_status(ckpt({"prune", t.dir(), "--keep", "1"}), 0);
  cr_expect(t.left() == (Steps{30}));
}

Test(prune, leaves_a_directory_in_use_alone, .timeout = 60) {
  Training t;
  {
    auto held = hold_store(t.dir());
    auto ran = ckpt({"prune", t.dir(), "--keep", "1"});
    expect_status(ran, 3);
    cr_expect(ran.complains("another program or job uses"), "%s", ran.err.c_str());
  }
  owned_by_job(t);
  fake_squeue(t, "echo RUNNING");
  auto ran = ckpt({"prune", t.dir(), "--keep", "1"});
  expect_status(ran, 3);
  cr_expect(ran.complains("job 1234") && ran.complains("RUNNING"), "%s", ran.err.c_str());
  fake_squeue(t, "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
  ran = ckpt({"prune", t.dir(), "--keep", "1"});
  expect_status(ran, 4);
  cr_expect(ran.complains("--job-is-over"), "%s", ran.err.c_str());
  cr_expect(t.left() == (Steps{10, 20, 30}));
  expect_status(ckpt({"prune", t.dir(), "--keep", "2", "--job-is-over"}), 0);
  cr_expect(t.left() == (Steps{20, 30}));
}

Test(prune, goes_on_when_slurm_says_the_job_is_over, .timeout = 60) {
  for (const char* answer :
       {"", "echo PENDING", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"}) {
    Training t;
    owned_by_job(t);
    fake_squeue(t, answer);
    expect_status(ckpt({"prune", t.dir(), "--keep", "1"}), 0);
    cr_expect(t.left() == (Steps{30}));
  }
}

Test(prune, waits_for_the_lock, .timeout = 60) {
  Training t;
  auto lock = lock_store(t.dir());
  std::atomic<int> status = -1;
  std::thread other([&] { status = ckpt({"prune", t.dir(), "--keep", "1"}).status; });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  cr_expect(status == -1 && t.left().size() == 3, "it did not wait");
  lock->fd.reset();
  other.join();
  cr_expect(status == 0);
  cr_expect(t.left() == (Steps{30}));
}

Test(name, survives_retention_and_refuses_nonsense, .timeout = 60) {
  Checkpoints c(1);
  c.add(10, Training::arrays(10));
  expect_status(ckpt({"name", "10", "best", "--dir", c.dir()}), 0);
  for (std::uint64_t step : {20, 30}) c.add(step, Training::arrays(step));
  cr_expect(*list_steps(c.dir()) == (Steps{10, 30}));
  auto ran = ckpt({"name", "10", "../../etc/passwd", "-d", c.dir()});
  expect_status(ran, 2);
  cr_expect(ran.complains("can't be a step's name"), "%s", ran.err.c_str());
  expect_status(ckpt({"name", "99", "x", "-d", c.dir()}), 1);
  expect_status(ckpt({"name", "--remove", "x", "-d", c.dir()}), 1);
  expect_status(ckpt({"name", "10", "-d", c.dir()}), 2);
  expect_status(ckpt({"name", "-d", c.dir()}), 2);
  expect_status(ckpt({"name", "--remove", "10", "best", "-d", c.dir()}), 2);
  cr_expect(ckpt({"show", "best", "-d", c.dir()}).says("step 10"));
}

Test(usage, is_checked_before_anything_is_done, .timeout = 60) {
  Training t;
  for (const auto& wrong :
       std::vector<std::vector<std::string>>{{},
                                             {"frob"},
                                             {"diff", "10"},
                                             {"prune", t.dir()},
                                             {"prune", t.dir(), "--keep", "0"},
                                             {"export", "10"},
                                             {"name", "10", "11", "12", "13"},
                                             {"show", "-d", t.dir(), "10", "20"},
                                             {"list", "-d", t.dir(), "10"},
                                             {"show", "-j", "x"},
                                             {"verify", "-d", t.dir(), "10", "--all"}}) {
    expect_status(ckpt(wrong), 2);
  }
  cr_expect(t.left().size() == 3);
  for (const char* name : {"list", "show", "verify", "diff", "prune", "name", "export"}) {
    auto ran = ckpt({name, "--help"});
    expect_status(ran, 0);
    cr_expect(ran.says("--dir"), "%s", ran.out.c_str());
  }
}

Test(job, stands_for_its_directory, .timeout = 120) {
  Training t;
  setenv("SLURM_CONF", "/nonexistent", 1);
  std::filesystem::rename(t.dir(), t.scratch.path() + "/bellows-17");
  std::filesystem::current_path(t.scratch.path());
  cr_expect(ckpt({"list", "17"}).says("newest"));
  cr_expect(ckpt({"show", "17"}).says("step 30 in bellows-17"));
  cr_expect(ckpt({"show", "17", "10"}).says("step 10 in bellows-17"));
  cr_expect(ckpt({"show", "-j", "17", "20"}).says("step 20 in bellows-17"));
  expect_status(ckpt({"verify", "17"}), 0);
  expect_status(ckpt({"verify", "17", "10", "20"}), 0);
  expect_status(ckpt({"verify", "17", "--all"}), 0);
  expect_status(ckpt({"diff", "17", "10", "20"}), 1);
  expect_status(ckpt({"name", "17", "10", "best"}), 0);
  cr_expect(ckpt({"show", "17", "best"}).says("step 10"));
  expect_status(ckpt({"name", "--remove", "17", "best"}), 0);
  cr_expect(ckpt({"prune", "17", "--keep", "1", "-n"}).says("would remove step 10"));
  expect_status(ckpt({"export", "17", "10", "--to", "x.safetensors"}), 0);
  auto unknown = ckpt({"list", "18"});
  cr_expect(unknown.status == 4 && unknown.complains("Slurm"), "%s", text_of(unknown).c_str());
  // Where the directory is known otherwise, a number is a step.
  std::filesystem::rename("bellows-17", "bellows-checkpoints");
  cr_expect(ckpt({"show", "10"}).says("step 10 in bellows-checkpoints"));
  expect_status(ckpt({"verify", "10", "20"}), 0);
  auto step = ckpt({"show", "17"});
  cr_expect(step.status == 1 && step.complains("there is no step 17"), "%s", text_of(step).c_str());
}

Test(usage, says_what_is_wrong_and_who_tells_more, .timeout = 60) {
  const auto expect_words = [](const std::vector<std::string>& arguments,
                               const std::vector<std::string>& words) {
    auto ran = bellows_with(arguments);
    expect_status(ran, 2);
    for (const std::string& word : words)
      cr_expect(ran.complains(word), "%s: %s", word.c_str(), text_of(ran).c_str());
  };
  expect_words({"stauts"}, {"'stauts' is not a command of bellows; did you mean 'status'?",
                            "Try 'bellows --help'."});
  expect_words({"ckpt", "lst"}, {"'lst' is not a command of bellows ckpt; did you mean 'list'?",
                                 "Try 'bellows ckpt --help'."});
  expect_words({"resize", "6", "abc"}, {"GPUS: 'abc' is not a whole number", "resize --help'"});
  expect_words({"resize", "6", "0"}, {"GPUS: '0' is not a number from 1 to 4096"});
  expect_words({"resize", "6", "99999999999"},
               {"'99999999999' is not a whole number of this size"});
  expect_words({"logs", "5", "--rnak", "3"}, {"bellows logs has no option '--rnak'; did you mean "
                                              "'--rank'?"});
  expect_words({"logs", "--jsn"}, {"did you mean '--json'?", "Try 'bellows logs --help'."});
  expect_words({"halt", "6", "7"}, {"unexpected argument '7'"});
  expect_words({"halt", "x\x1b["}, {"is not a job id", "Try 'bellows halt --help'."});
  expect_words({"run", "--kind=foo", "--", "x"}, {"--kind: 'foo' is not mpi"});
  expect_words({"ckpt"}, {"a command is missing: list, show"});
  expect_words({}, {"a command is missing: run, resize"});
}

Test(help, is_in_plain_words_and_fits, .timeout = 60) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {}, {"run"}, {"resize"}, {"logs"}, {"ckpt"}, {"ckpt", "diff"}, {"explain"}}) {
    auto arguments = command;
    arguments.push_back("--help");
    auto ran = bellows_with(arguments);
    expect_status(ran, 0);
    for (const char* jargon : {"TEXT", "UINT", "REQUIRED", "Positionals", "SUBCOMMAND", "(2x)"})
      cr_expect(!ran.says(jargon), "%s: %s", jargon, ran.out.c_str());
    std::size_t longest = 0;
    for (std::string_view line : split(ran.out, '\n')) longest = std::max(longest, line.size());
    cr_expect(longest <= 80, "%zu: %s", longest, ran.out.c_str());
  }
  auto resize = bellows_with({"resize", "--help"});
  cr_expect(resize.says("Usage: bellows resize [OPTION]... JOB GPUS\n"));
  cr_expect(resize.says("--timeout N") && resize.says("(default: 600)"));
  cr_expect(bellows_with({"ckpt", "diff", "--help"}).says("[JOB] STEP STEP\n"));
}
