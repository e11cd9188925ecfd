// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/contract.h"
#include "common/fd.h"
#include "common/gpus_range.h"
#include "common/text.h"
#include "jobsubmit/policy/yaml_tree.h"

using namespace bellows;

// Criterion's own comparison keeps a pointer into the temporary.
#define EXPECT_TEXT(got, want)                                               \
  do {                                                                       \
    const std::string got_ = (got);                                          \
    const std::string want_ = (want);                                        \
    cr_expect(got_ == want_, "got %s, not %s", got_.c_str(), want_.c_str()); \
  } while (false)

namespace {

std::string spelled(const char* text) {
  auto range = GpusRange::parse(text);
  return range ? range->to_string() : "error: " + range.error().text;
}

bool refused(const std::string& text) { return !GpusRange::parse(text).ok(); }

}  // namespace

Test(gpus_range, four_spellings, .timeout = 10) {
  EXPECT_TEXT(spelled("4"), "4");
  EXPECT_TEXT(spelled("1-8"), "1-8");
  EXPECT_TEXT(spelled("2-8:2"), "2-8:2");
  EXPECT_TEXT(spelled("1,2,4,8"), "1,2,4,8");
}

Test(gpus_range, one_set_has_one_spelling, .timeout = 10) {
  EXPECT_TEXT(spelled("3-3"), "3");
  EXPECT_TEXT(spelled("1,2,3"), "1-3");
  EXPECT_TEXT(spelled("2,4,6"), "2-6:2");
  EXPECT_TEXT(spelled("2-7:2"), "2-6:2");
  EXPECT_TEXT(spelled("1-4:3"), "1,4");
  EXPECT_TEXT(spelled("1-4096:4096"), "1");
  EXPECT_TEXT(spelled("007"), "7");
}

Test(gpus_range, spelling_reads_back_as_the_same_set, .timeout = 10) {
  for (const char* text :
       {"1", "4096", "1-4096", "1-4096:5", "1,4096", "1,2,4,8", "5,6", "9-9:4"}) {
    auto range = GpusRange::parse(text);
    cr_assert(range.ok(), "%s", text);
    auto again = GpusRange::parse(range->to_string());
    cr_assert(again.ok(), "%s -> %s", text, range->to_string().c_str());
    cr_expect(*again == *range, "%s -> %s", text, range->to_string().c_str());
  }
}

Test(gpus_range, refuses_what_is_not_a_range, .timeout = 10) {
  for (const char* text :
       {"",        "0",    "-",   "1-",  "-8",  "8-1",  "1-8:",   "1-8:0",
        "1-8:2:2", "1,,2", "1,1", "2,1", ",",   "1,",   "a",      "1-b",
        "1 - 8",   " 1",   "+1",  "0x1", "1.5", "4097", "1-4097", "99999999999999999999",
        "1-8,9",   "1:2"})
    cr_expect(refused(text), "\"%s\" was accepted", text);
  cr_expect(refused(std::string("1\0", 2)));
  cr_expect(refused(std::string(2000, '1')));
}

Test(gpus_range, error_names_the_part_and_the_forms, .timeout = 10) {
  EXPECT_TEXT(spelled("1-x"),
              "error: GPU range \"1-x\": \"x\" is not a number; write N, MIN-MAX, MIN-MAX:STEP "
              "or a list such as 1,2,4,8");
}

Test(gpus_range, contains_and_clamp, .timeout = 10) {
  const GpusRange range = *GpusRange::parse("2,4,8");
  cr_expect(range.contains(4));
  cr_expect(not range.contains(3));
  cr_expect(range.clamp(1) == 2);
  cr_expect(range.clamp(2) == 2);
  cr_expect(range.clamp(7) == 4);
  cr_expect(range.clamp(4000000000U) == 8);
}

Test(gpus_range, long_list_reads_back_from_the_contract, .timeout = 10) {
  // The longest list that a range may be spelled as.
  std::string text = "1";
  for (int i = 3; text.size() < 1000; i += 1 + i % 3) text += "," + std::to_string(i);
  auto range = GpusRange::parse(text);
  cr_assert(range.ok());
  Contract contract;
  contract.tenant = "t";
  contract.gpus = *range;
  auto back = Contract::parse(contract.to_string());
  cr_assert(back.ok(), "%s", back.ok() ? "" : back.error().text.c_str());
  cr_expect(*back == contract);
}

Test(contract, reads_back_what_it_writes, .timeout = 10) {
  Contract contract;
  contract.tenant = "vision";
  contract.framework = "digits";
  contract.framework_version = "1.0";
  contract.gpus = *GpusRange::parse("1-8");
  contract.checkpoint_dir = "/shared/my dir/%u/%j";
  EXPECT_TEXT(contract.to_string(),
              "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 "
              "ckpt=/shared/my%20dir/%25u/%25j");
  auto back = Contract::parse(contract.to_string());
  cr_assert(back.ok());
  cr_expect(*back == contract);
}

Test(contract, shares_admin_comment, .timeout = 10) {
  const std::string line = "bellows/1 tenant=vision gpus=1-8";
  const std::string both = Contract::admin_comment(line, "JS1:H4sI ; bellows/1");
  cr_expect(both == line + " ; JS1:H4sI ; bellows/1");
  cr_expect(Contract::line_in(both) == line);
  cr_expect(Contract::others_in(both) == "JS1:H4sI ; bellows/1");
  cr_expect(Contract::admin_comment(line, "") == line);
  cr_expect(Contract::line_in(line) == line);
  cr_expect(Contract::others_in(line) == "");
  cr_expect(Contract::admin_comment("", "JS1:x") == "JS1:x");
  cr_expect(Contract::line_in("JS1:x ; bellows/1 gpus=1") == "");
  cr_expect(Contract::others_in("JS1:x") == "JS1:x");
  cr_expect(Contract::others_in(line + " ; " + both) == "JS1:H4sI ; bellows/1");
  cr_expect(Contract::others_in(line + " ; " + line) == "");
}

Test(contract, of_a_job_without_gpus, .timeout = 10) {
  const char* line = "bellows/1 tenant=a gpus=0";
  auto contract = Contract::parse(line);
  cr_assert(contract.ok() && contract->gpus.is_none());
  EXPECT_TEXT(contract->to_string(), line);
  cr_expect(contract->gpus == GpusRange::none() && !contract->gpus.contains(1));
  cr_expect(!GpusRange::parse("0").ok(), "users may not ask for it");
}

Test(contract, keeps_unknown_keys_in_order, .timeout = 10) {
  const char* line = "bellows/1 tenant=a gpus=1 zebra=z%3D apple=";
  auto contract = Contract::parse(line);
  cr_assert(contract.ok());
  cr_expect(contract->extra.size() == 2);
  EXPECT_TEXT(contract->extra[0].second, "z=");
  EXPECT_TEXT(contract->to_string(), line);
}

Test(contract, survives_every_byte_that_a_value_may_hold, .timeout = 10) {
  Contract contract;
  contract.tenant = "t";
  for (int c = 0x20; c < 0x100; ++c) contract.checkpoint_dir += static_cast<char>(c);
  auto back = Contract::parse(contract.to_string());
  cr_assert(back.ok(), "%s", back.ok() ? "" : back.error().text.c_str());
  cr_expect(*back == contract);
}

Test(contract, refuses_what_is_not_a_contract, .timeout = 10) {
  for (const char* line :
       {"", "bellows/2 tenant=a gpus=1", "bellows/1", "bellows/1 tenant=a", "bellows/1 gpus=1",
        "bellows/1 tenant=a gpus=1 gpus=2", "bellows/1 tenant=a gpus=00", "bellows/1 tenant=a gpus",
        "bellows/1 tenant=a gpus=1 Ckpt=/x", "bellows/1 tenant=a  gpus=1",
        "bellows/1 tenant=a gpus=1 ckpt=%", "bellows/1 tenant=a gpus=1 ckpt=%4",
        "bellows/1 tenant=a gpus=1 ckpt=%00", "bellows/1 tenant=a gpus=1 ckpt=%0A",
        "bellows/1 tenant=a gpus=1 ckpt=a\tb", "bellows/1 tenant=a gpus=1 ckpt=%zz",
        "bellows/1 tenant= gpus=1",
        "bellows/1 tenant=a gpus=1 framework=", "bellows/1 tenant=a gpus=1 framework=:1"})
    cr_expect(not Contract::parse(line).ok(), "\"%s\" was accepted", line);
  cr_expect(not Contract::parse("bellows/1 tenant=a gpus=1 ckpt=" + std::string(5000, 'x')).ok());
}

Test(contract, expand_path_replaces_each_sign_once, .timeout = 10) {
  auto path = expand_path("/c/%u/%a/%j/100%%/%%u", "al%j", "vision", "17");
  cr_assert(path.ok());
  EXPECT_TEXT(path->c_str(), "/c/al%j/vision/17/100%/%u");
  cr_expect(not expand_path("/c/%", "u", "a", "1").ok());
  cr_expect(not expand_path("/c/%x", "u", "a", "1").ok());
}

Test(contract, the_fixed_part_of_a_path_is_above_what_varies, .timeout = 10) {
  for (const auto& [pattern, fixed] : {std::pair{"/c/k/%u/%j", "/c/k"},
                                       {"/c/k-%u/%j", "/c"},
                                       {"/%j", "/"},
                                       {"/c%%d/e/%a", "/c%d/e"},
                                       {"/c%%/%%%u", "/c%"},
                                       {"/c//%j", "/c/"},
                                       {"/c/%", "/c"},
                                       {"%j", "/"}})
    EXPECT_TEXT(fixed_part(pattern).c_str(), fixed);
}

Test(text, split_trim_lower_number, .timeout = 10) {
  cr_expect(split("", ',').size() == 1);
  cr_expect(split("a,,b", ',') == (std::vector<std::string_view>{"a", "", "b"}));
  cr_expect(trim(" \ta b\n") == "a b");
  cr_expect(trim("  ").empty());
  EXPECT_TEXT(to_lower("ViSION-9\xc3\x89"), "vision-9\xc3\x89");
  cr_expect(parse_uint("18446744073709551615") == 18446744073709551615ULL);
  for (const char* bad : {"", "18446744073709551616", "-1", "+1", " 1", "1 ", "1a"})
    cr_expect(not parse_uint(bad), "\"%s\" was accepted", bad);
}

Test(text, one_word_of_a_shell, .timeout = 10) {
  EXPECT_TEXT(shell_quoted(""), "''");
  EXPECT_TEXT(shell_quoted("it's $(here)\n"), "'it'\\''s $(here)\n'");
}

Test(text, names_of_variables, .timeout = 10) {
  for (const char* good : {"a", "_", "Z9", "_1_a"})
    cr_expect(is_variable_name(good), "\"%s\" was refused", good);
  for (const char* bad : {"", "1a", "a-b", "a b", "a=b", "\xc3\xa9"})
    cr_expect(not is_variable_name(bad), "\"%s\" was accepted", bad);
  cr_expect(not is_variable_name(std::string_view("a\0", 2)));
}

Test(text, harmless_to_a_terminal, .timeout = 10) {
  cr_expect(one_line("a\tb|") == "a b|");
  cr_expect(one_line(std::string(5000, 'x'), 10) == "xxxxxxx...");
  cr_expect(one_line("a\x1b[31m\n\x7f\xc3\xa9") == "a?[31m??\xc3\xa9");
}

Test(text, nearest_only_when_near, .timeout = 10) {
  const std::vector<std::string> known{"pytorch", "tensorflow", "jax"};
  EXPECT_TEXT(nearest("pytroch", known), "pytorch");
  EXPECT_TEXT(nearest("tensorflw", known), "tensorflow");
  EXPECT_TEXT(nearest("jx", known), "jax");
  EXPECT_TEXT(nearest("caffe", known), "");
  EXPECT_TEXT(nearest("", known), "");
  EXPECT_TEXT(nearest(std::string(100000, 'p'), known), "");
  EXPECT_TEXT(nearest("x", {"a", "b"}), "");  // nothing in common
}

namespace {

std::string yaml_error_of(const std::string& text) {
  auto tree = parse_yaml(text, "f");
  return tree ? "no error" : tree.error().text;
}

}  // namespace

Test(yaml, reads_nested_values_with_their_places, .timeout = 10) {
  auto tree = parse_yaml("a: 1\nb:\n  - x\n  - {c: 'null', d: }\n", "f");
  cr_assert(tree.ok());
  EXPECT_TEXT(tree->find("a")->scalar, "1");
  const YamlNode* b = tree->find("b");
  cr_assert(b && b->items.size() == 2);
  cr_expect(b->items[0].mark.line == 3);
  cr_expect(b->items[0].mark.column == 5);
  cr_expect(not b->items[1].find("c")->is_null(), "quoted null is a text");
  cr_expect(b->items[1].find("d")->is_null());
  cr_expect(tree->find("e") == nullptr);
}

Test(yaml, empty_text_is_an_empty_mapping, .timeout = 10) {
  for (const char* text : {"", "\n", "# only a comment\n"}) {
    auto tree = parse_yaml(text, "f");
    cr_assert(tree.ok(), "%s", text);
    cr_expect(tree->kind == YamlNode::Kind::mapping);
  }
}

Test(yaml, errors_name_the_place, .timeout = 10) {
  EXPECT_TEXT(yaml_error_of("a: 1\na: 2\n"), "f:2:1: key \"a\" appears twice");
  EXPECT_TEXT(yaml_error_of("a: &x 1\nb: *x\n"), "f:1:4: anchors and aliases are not allowed");
  EXPECT_TEXT(yaml_error_of("b: *x\n"), "f:1:4: anchors and aliases are not allowed");
  EXPECT_TEXT(yaml_error_of("a: !!int 1\n"), "f:1:4: tags are not allowed");
  EXPECT_TEXT(yaml_error_of("a: 1\n---\nb: 1\n"), "f:2:1: a second document is not allowed");
  EXPECT_TEXT(yaml_error_of("? [a]\n: 1\n"), "f:1:3: a key must be a plain word");
  cr_expect(yaml_error_of("a: [1\n").starts_with("f:2:1: "), "%s",
            yaml_error_of("a: [1\n").c_str());
  cr_expect(yaml_error_of("a: \"\\0\"\n").starts_with("f:1:4: a value may not hold a NUL"));
  cr_expect(yaml_error_of("a: \xff\n").starts_with("f:"));
}

Test(yaml, depth_and_size_are_bounded, .timeout = 10) {
  cr_expect(
      yaml_error_of(std::string(100, '[') + std::string(100, ']')).find("nested too deeply") !=
      std::string::npos);
  EXPECT_TEXT(yaml_error_of(std::string((1 << 20) + 1, ' ')), "f: larger than 1 MiB");
}

namespace {

class Dir {
 public:
  Dir() {
    char path[] = "/tmp/bellows-common-XXXXXX";
    cr_assert(mkdtemp(path));
    path_ = path;
  }
  ~Dir() {
    for (const char* name : {"/a", "/b"}) ::unlink((path_ + name).c_str());
    cr_expect(::rmdir(path_.c_str()) == 0, "something was left behind");
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

Test(fd, moves_and_closes, .timeout = 10) {
  int number = -1;
  {
    auto opened = open_file("/dev/null", O_RDONLY);
    cr_assert(opened.ok());
    Fd fd = *std::move(opened);
    number = fd.get();
    cr_expect(::fcntl(number, F_GETFD) == FD_CLOEXEC);
    Fd other = std::move(fd);
    cr_expect(not fd);
    cr_expect(other.get() == number);
    Fd& same = other;
    other = std::move(same);
    cr_expect(other.get() == number, "self-assignment keeps it");
  }
  cr_expect(::fcntl(number, F_GETFD) == -1, "closed");
}

Test(fd, read_file_has_a_limit_and_tells_missing_from_denied, .timeout = 10) {
  const Dir dir;
  cr_assert(replace_file(dir / "a", std::string(100, 'x'), 0600).ok());
  cr_expect(read_file(dir / "a", 100)->size() == 100);
  auto limited = read_file(dir / "a", 99);
  cr_assert(not limited.ok());
  cr_expect(limited.error().kind == ErrorKind::invalid);
  auto missing = read_file(dir / "b", 10);
  cr_assert(not missing.ok());
  cr_expect(missing.error().kind == ErrorKind::not_found);
  cr_expect(missing.error().text == "cannot open " + (dir / "b") + ": No such file or directory");
}

Test(fd, replace_file_replaces_whole_and_sets_the_mode, .timeout = 10) {
  const Dir dir;
  ::umask(077);
  cr_assert(replace_file(dir / "a", "old", 0644).ok());
  cr_assert(replace_file(dir / "a", "new", 0644).ok());
  EXPECT_TEXT(*read_file(dir / "a", 10), "new");
  struct stat s;
  cr_assert(::stat((dir / "a").c_str(), &s) == 0);
  cr_expect((s.st_mode & 0777) == 0644);
  cr_expect(not replace_file(dir.path() + "/no/such", "x", 0644).ok());
}

Test(fd, replace_file_does_not_follow_a_planted_link, .timeout = 10) {
  const Dir dir;
  cr_assert(replace_file(dir / "a", "mine", 0600).ok());
  cr_assert(::symlink((dir / "a").c_str(), (dir / "b").c_str()) == 0);
  cr_assert(replace_file(dir / "b", "theirs", 0600).ok());
  EXPECT_TEXT(*read_file(dir / "a", 10), "mine");
}
