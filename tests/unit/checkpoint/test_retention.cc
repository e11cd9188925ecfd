// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "checkpoint/store/retention.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

using Steps = std::vector<std::uint64_t>;

/// A directory in which steps exist, or not, are bad or not, named or not.
struct Case {
  Steps steps;
  std::set<std::uint64_t> bad;
  std::set<std::uint64_t> named;
  Retention rule;
  Steps removed;

  bool good(std::uint64_t step) const { return !bad.contains(step); }
  bool goes(std::uint64_t step) const {
    return std::find(removed.begin(), removed.end(), step) != removed.end();
  }
  /// How many good steps are newer.
  std::uint32_t good_above(std::uint64_t step) const {
    return static_cast<std::uint32_t>(std::count_if(
        steps.begin(), steps.end(), [&](std::uint64_t s) { return s > step && good(s); }));
  }
  std::string text() const {
    return fmt::format("steps {}, bad {}, named {}, keep {}, every {}: removes {}",
                       fmt::join(steps, " "), fmt::join(bad, " "), fmt::join(named, " "), rule.keep,
                       rule.keep_every, fmt::join(removed, " "));
  }
};

/// Six steps, each absent, good, bad, good and named, or bad and named.
Case make_case(unsigned number, std::uint32_t keep, std::uint64_t every) {
  Case c;
  for (std::uint64_t step = 0; step < 6; ++step, number /= 5) {
    const unsigned kind = number % 5;
    if (kind == 0) continue;
    c.steps.push_back(step);
    if (kind == 2 || kind == 4) c.bad.insert(step);
    if (kind >= 3) c.named.insert(step);
  }
  c.rule = {keep, every};
  c.removed = steps_to_remove(c.steps, c.bad, c.named, c.rule);
  return c;
}

constexpr unsigned kCases = 5 * 5 * 5 * 5 * 5 * 5;

/// What is wrong with the answer, or null. States the rule for each step by itself.
const char* wrong(const Case& c) {
  if (!std::is_sorted(c.removed.begin(), c.removed.end())) return "not oldest first";
  const std::uint32_t keep = std::max(c.rule.keep, 1u);
  for (std::uint64_t step : c.steps) {
    const bool among_newest = c.good_above(step) < keep;
    const bool nth = c.rule.keep_every && step % c.rule.keep_every == 0;
    if (c.goes(step) && c.named.contains(step)) return "a named step goes";
    if (c.goes(step) && among_newest) return "one of the newest goes, or a bad one beside them";
    if (c.goes(step) && nth && c.good(step)) return "an nth step goes";
    const bool stays = among_newest || (nth && c.good(step)) || c.named.contains(step);
    if (!stays && !c.goes(step)) return "a step stays for no reason";
  }
  for (std::uint64_t step : c.removed) {
    if (std::find(c.steps.begin(), c.steps.end(), step) == c.steps.end()) return "no such step";
  }
  return nullptr;
}

std::string slurp_link(const std::string& path) { return std::filesystem::read_symlink(path); }

/// A directory with the steps 10 and 20, as far as names need them.
struct NamedDir {
  NamedDir() {
    for (std::uint64_t step : {10, 20}) std::filesystem::create_directory(step_path(dir(), step));
  }
  const std::string& dir() const { return scratch.path(); }
  std::string named() const { return dir() + "/named"; }
  ScratchDir scratch;
  FileOps ops;
};

}  // namespace

Test(retention, every_small_directory_obeys_the_rule, .timeout = 60) {
  for (unsigned number = 0; number < kCases; ++number) {
    for (std::uint32_t keep = 0; keep < 4; ++keep) {
      for (std::uint64_t every = 0; every < 4; ++every) {
        const Case c = make_case(number, keep, every);
        if (const char* what = wrong(c)) cr_assert_fail("%s: %s", what, c.text().c_str());
      }
    }
  }
}

Test(retention, the_newest_good_step_survives_every_rule, .timeout = 60) {
  for (unsigned number = 0; number < kCases; ++number) {
    const Case c = make_case(number, 0, 0);
    auto newest = std::find_if(c.steps.rbegin(), c.steps.rend(),
                               [&](std::uint64_t step) { return c.good(step); });
    const std::uint64_t from = newest == c.steps.rend() ? 0 : *newest;
    for (std::uint64_t step : c.removed) cr_assert(step < from, "%s", c.text().c_str());
  }
}

Test(retention, a_second_pass_finds_nothing_to_do, .timeout = 60) {
  for (unsigned number = 0; number < kCases; ++number) {
    const Case c = make_case(number, 2, 3);
    Steps left;
    std::set_difference(c.steps.begin(), c.steps.end(), c.removed.begin(), c.removed.end(),
                        std::back_inserter(left));
    cr_assert(steps_to_remove(left, c.bad, c.named, c.rule).empty(), "%s", c.text().c_str());
  }
}

Test(retention, a_pass_interrupted_anywhere_ends_the_same, .timeout = 60) {
  for (unsigned number = 0; number < kCases; ++number) {
    const Case c = make_case(number, 1, 2);
    for (std::size_t done = 0; done <= c.removed.size(); ++done) {
      Steps left;
      std::set_difference(c.steps.begin(), c.steps.end(), c.removed.begin(),
                          c.removed.begin() + static_cast<std::ptrdiff_t>(done),
                          std::back_inserter(left));
      const Steps rest(c.removed.begin() + static_cast<std::ptrdiff_t>(done), c.removed.end());
      cr_assert(steps_to_remove(left, c.bad, c.named, c.rule) == rest, "%s", c.text().c_str());
    }
  }
}

// As where a node that was cut off still holds a file open over NFS.
class StuckOps : public FileOps {
 public:
  Status remove_tree(const std::string& path) override {
    if (has(path, ".tmp-gone-10")) return Error{ErrorKind::io, "cannot remove " + path};
    return FileOps::remove_tree(path);
  }
};

Test(retention, what_is_left_of_a_step_that_was_saved_twice_is_in_nobody_s_way, .timeout = 30) {
  ScratchDir scratch;
  StuckOps ops;
  StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{1});
  cr_assert(writer.take_ownership().ok());
  for (const std::uint64_t step : {10, 10, 20, 30}) {
    cr_assert(save_step(writer, ops, step).ok());
    const auto left = list_steps(scratch.path());
    cr_assert(left.ok());
    cr_expect(*left == std::vector<std::uint64_t>{step}, "after step %lu", step);
  }
}

Test(retention, the_default_keeps_three) {
  cr_expect(steps_to_remove({1, 2, 3, 4, 5}, {}, {}, Retention()) == (Steps{1, 2}));
  cr_expect(steps_to_remove({1, 2, 3}, {}, {}, Retention()).empty());
  cr_expect(steps_to_remove({}, {}, {}, Retention()).empty());
  const Steps far = {0, 1000, 1500, 2000, 2500, UINT64_MAX - 1};
  cr_expect(steps_to_remove(far, {}, {}, {1, 1000}) == (Steps{1500, 2500}));
}

Test(names, are_given_moved_and_taken_away) {
  NamedDir d;
  cr_assert(read_step_names(d.dir())->empty());
  cr_assert(add_step_name(d.ops, d.dir(), "best", 10).ok());
  cr_assert(add_step_name(d.ops, d.dir(), "v1.0", 10).ok());
  cr_expect(*read_step_names(d.dir()) == (StepNames{{"best", 10}, {"v1.0", 10}}));
  cr_expect(slurp_link(d.named() + "/best") == "../step-00000000000000000010");
  cr_expect(std::filesystem::exists(d.named() + "/best"));
  cr_assert(add_step_name(d.ops, d.dir(), "best", 20).ok());
  cr_expect(*named_steps(d.dir()) == (std::set<std::uint64_t>{10, 20}));
  cr_assert(remove_step_name(d.ops, d.dir(), "best").ok());
  cr_expect(*read_step_names(d.dir()) == (StepNames{{"v1.0", 10}}));
  auto again = remove_step_name(d.ops, d.dir(), "best");
  cr_expect(!again.ok() && again.error().kind == ErrorKind::not_found);
  cr_expect(std::filesystem::exists(step_path(d.dir(), 20)));
}

Test(names, of_no_step_or_no_sense_are_refused) {
  NamedDir d;
  auto missing = add_step_name(d.ops, d.dir(), "best", 30);
  cr_expect(!missing.ok() && missing.error().kind == ErrorKind::not_found);
  for (const std::string name : {"", ".", "..", "a/b", "../x", "12", "latest", "step-1", "-x", ".x",
                                 "a b", "a\nb", "\xc3\xa9", "_x"}) {
    auto status = add_step_name(d.ops, d.dir(), name, 10);
    cr_expect(!status.ok() && status.error().kind == ErrorKind::invalid, "%s", name.c_str());
    cr_expect(!remove_step_name(d.ops, d.dir(), name).ok(), "%s", name.c_str());
  }
  cr_expect(!is_step_name(std::string(129, 'a')) && is_step_name(std::string(128, 'a')));
  cr_expect(!std::filesystem::exists(d.named()));
}

Test(names, other_things_beside_them_do_no_harm) {
  NamedDir d;
  std::filesystem::create_directories(d.named() + "/folder");
  std::ofstream(d.named() + "/file") << "x";
  mkfifo((d.named() + "/pipe").c_str(), 0600);
  const auto link = [&](const std::string& target, const std::string& name) {
    std::filesystem::create_symlink(target, d.named() + "/" + name);
  };
  link("/etc/passwd", "outside");
  link("loop", "loop");
  link("../step-10", "short");
  link(std::string(4000, 'x'), "long");
  link("../step-00000000000000000010", ".tmp-cut-short");
  link("../step-00000000000000000099", "dangling");
  link("/elsewhere/step-00000000000000000020/", "by hand\x1b[31m");
  cr_expect(*read_step_names(d.dir()) == (StepNames{{"dangling", 99}, {"by hand\x1b[31m", 20}}));
  cr_expect(remove_step_name(d.ops, d.dir(), "by hand\x1b[31m").ok());
  cr_expect(!remove_step_name(d.ops, d.dir(), "folder").ok());
  // A name whose making was cut short can be made again.
  cr_expect(add_step_name(d.ops, d.dir(), "cut-short", 10).ok());
  cr_expect((*read_step_names(d.dir()))["cut-short"] == 10);
}

Test(names, a_place_that_is_not_a_directory_has_none) {
  NamedDir d;
  std::ofstream(d.named()) << "x";
  auto names = read_step_names(d.dir());
  cr_expect(names.ok() && names->empty());
  cr_expect(read_step_names("/nowhere/at/all")->empty());
  std::filesystem::remove(d.named());
  std::filesystem::create_symlink("named", d.named());
  cr_expect(!read_step_names(d.dir()).ok(), "names that can't be read are not none");
}

namespace {

/// Fails the nth change and all after it, and counts them.
class CutOps : public FileOps {
 public:
  std::size_t left = SIZE_MAX;
  std::size_t done = 0;

  Status make_directory(const std::string& path) override {
    return go() ? FileOps::make_directory(path) : cut();
  }
  Status sync_directory(const std::string& path) override {
    return go() ? FileOps::sync_directory(path) : cut();
  }
  Status rename(const std::string& from, const std::string& to) override {
    return go() ? FileOps::rename(from, to) : cut();
  }
  Status make_symlink(const std::string& target, const std::string& path) override {
    return go() ? FileOps::make_symlink(target, path) : cut();
  }
  Status remove_file(const std::string& path) override {
    return go() ? FileOps::remove_file(path) : cut();
  }

 private:
  bool go() { return ++done <= left; }
  static Error cut() { return Error{ErrorKind::io, "cut"}; }
};

}  // namespace

Test(names, a_crash_at_any_call_leaves_the_old_name_or_the_new) {
  for (std::size_t n = 0;; ++n) {
    NamedDir d;
    cr_assert(add_step_name(d.ops, d.dir(), "best", 10).ok());
    CutOps ops;
    ops.left = n;
    const bool ok = add_step_name(ops, d.dir(), "best", 20).ok();
    const std::uint64_t step = (*read_step_names(d.dir()))["best"];
    cr_expect(ok ? step == 20 : step == 10 || step == 20, "after %zu calls: %lu", n, step);
    cr_expect(read_step_names(d.dir())->size() == 1);
    if (ok) break;
    cr_assert(n < 20);
  }
}
