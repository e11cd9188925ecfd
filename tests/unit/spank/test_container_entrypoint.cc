// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

#include "common/fd.h"
#include "spank/container/entrypoint.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(container_entrypoint, .timeout = 60);

const Variables kImage = {{"PATH", "/usr/bin:/bin"}, {"SAYS", "image"}};

Result<Variables> run(const ScratchDir& dir, const std::string& text,
                      const Variables& variables = kImage) {
  const std::string path = dir.path() + "/rc";
  std::ofstream(path) << text;
  return run_entrypoint(variables, EntrypointOutput::on_error, path);
}

/// The last value of a variable, or "unset".
std::string value(const Variables& variables, const std::string& name) {
  std::string found = "unset";
  for (const auto& entry : variables)
    if (entry.first == name) found = entry.second;
  return found;
}

Variables with(Variables variables, const std::string& name, const std::string& text) {
  variables.emplace_back(name, text);
  return variables;
}

std::optional<std::string> of_job(const char* name) {
  for (const auto& [known, text] : {std::pair("PATH", "/job"), {"KEPT", "job"}, {"OTHER", "job"}})
    if (std::string(name) == known) return text;
  return std::nullopt;
}

Test(container_entrypoint, what_it_exports) {
  const ScratchDir dir;
  const auto after = run(dir, "export MADE=yes SAYS=\"$SAYS.$#\"\nOWN=1\nexec \"$@\"\n");
  cr_assert(after.ok());
  cr_expect_eq(value(*after, "MADE"), "yes");
  cr_expect_eq(value(*after, "SAYS"), "image.3", "it is given a program with arguments");
  cr_expect_eq(value(*after, "OWN"), "unset");
  cr_expect_eq(value(*after, "HOME"), "unset", "it has only the given variables");
  const auto without = run(dir, "unset SAYS\nexec \"$@\"\n");
  cr_expect(without.ok() && value(*without, "SAYS") == "unset");
}

Test(container_entrypoint, all_that_a_variable_can_be) {
  const ScratchDir dir;
  const std::string odd = "a\n'b'\"c\" $d =\\";
  const std::string big(100000, 'x');
  Variables variables = with(kImage, "ODD", odd);
  for (int i = 0; i < 10; ++i) variables.emplace_back("BIG" + std::to_string(i), big);
  const auto after =
      run(dir, "exec /bin/bash -c 'f() { :; }; export -f f; exec \"$@\"' x \"$@\"\n", variables);
  cr_assert(after.ok(), "%s", after.ok() ? "" : after.error().text.c_str());
  cr_expect_eq(value(*after, "ODD"), odd);
  cr_expect_eq(value(*after, "BIG9"), big);
  cr_expect_neq(value(*after, "BASH_FUNC_f%%"), "unset", "a name that a shell does not hand on");
}

Test(container_entrypoint, too_much_to_start_with) {
  const ScratchDir dir;
  const auto after = run(dir, "exec \"$@\"\n", with(kImage, "BIG", std::string(200000, 'x')));
  cr_expect(!after && after.error().text.find("too long") != std::string::npos);
}

Test(container_entrypoint, ends_without_a_program) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/rc";
  const auto failed = run(dir, "exit 3\n");
  cr_assert(!failed);
  cr_expect_eq(
      failed.error().text,
      path +
          " exited with status 3 before it had started a program; correct what it reports, "
          "or leave out --container-entrypoint");
  const auto idle = run(dir, "exit 0\n");
  cr_assert(!idle);
  cr_expect(idle.error().text.find("without having started a program") != std::string::npos);
  cr_expect(!run(dir, "kill -9 $$\n"));
  const auto closed = run(dir,
                          "exec /bin/bash -c 'for n in {3..200}; do eval \"exec $n>&-\"; done; "
                          "exec \"$@\" 2>/dev/null' x \"$@\"\n");
  cr_expect(!closed, "it has closed what the answer goes to");
}

Test(container_entrypoint, what_it_leaves_running_is_not_waited_for) {
  const ScratchDir dir;
  const auto after = run(dir, "sleep 50 & export SERVER=$!\nexec \"$@\"\n");
  cr_assert(after.ok());
  const pid_t server = std::stoi(value(*after, "SERVER"));
  cr_expect_eq(::kill(server, SIGKILL), 0, "nor ended");
}

/// What a script with this text writes, with its error, to standard output and error.
std::string written(const ScratchDir& dir, EntrypointOutput output, const std::string& text) {
  const std::string path = dir.path() + "/said";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  std::ofstream(dir.path() + "/rc") << text;
  (void)run_entrypoint(kImage, output, dir.path() + "/rc");
  const auto said = read_file(path, 1 << 20);
  return said ? *said : said.error().text;
}

Test(container_entrypoint, what_it_writes) {
  const ScratchDir dir;
  const std::string speaks = "echo out\necho err >&2\n";
  const std::string starts = "exec \"$@\"\n";
  using Output = EntrypointOutput;
  cr_expect_eq(written(dir, Output::shown, speaks + starts), "out\nerr\n");
  cr_expect_eq(written(dir, Output::on_error, speaks + starts), "");
  cr_expect_eq(written(dir, Output::on_error, speaks + "exit 1\n"), "out\nerr\n");
  cr_expect_eq(written(dir, Output::shown, speaks + "exit 1\n"), "out\nerr\n", "once");
  cr_expect_eq(written(dir, Output::on_error, speaks + "echo more >/dev/stderr\nexit 1\n"),
               "more\n");
  const std::string much =
      written(dir, Output::on_error, "for i in $(seq 20000); do echo \"line $i\"; done\nexit 1\n");
  cr_expect(much.size() == 65536 && much.ends_with("line 20000\n"), "its end");
}

Test(container_entrypoint, its_input_is_empty) {
  const ScratchDir dir;
  int ends[2];
  cr_assert_eq(::pipe(ends), 0);
  ::dup2(ends[0], STDIN_FILENO);
  cr_assert_eq(::write(ends[1], "data\n", 5), 5);
  const auto after = run(dir, "export GOT=\"$(cat)\"\nexec \"$@\"\n");
  cr_assert(after.ok());
  cr_expect_eq(value(*after, "GOT"), "", "standard input is the program's alone");
}

Test(container_entrypoint, what_it_is_given) {
  Spec spec;
  spec.env = {"KEPT", "NONE"};
  const Variables given = entrypoint_variables(spec, {{"SAYS", "image"}}, of_job);
  cr_expect_eq(value(given, "KEPT"), "job");
  cr_expect_eq(value(given, "OTHER"), "unset", "not what the job has");
  cr_expect_eq(value(given, "NONE"), "unset");
  cr_expect_eq(value(given, "SAYS"), "image");
  cr_expect_eq(value(given, "PATH"), "/job", "without one of the image's");
  cr_expect_eq(value(entrypoint_variables(spec, kImage, of_job), "PATH"), "/usr/bin:/bin");
}

Test(container_entrypoint, what_is_kept) {
  Spec spec;
  spec.env = {"KEPT", "NONE"};
  const Variables program = variables_after(
      spec, {{"KEPT", "job"}, {"SAYS", "image"}},
      {{"KEPT", "entry"}, {"NONE", "entry"}, {"MADE", "yes"}, {"PWD", "/x"}, {"_", "x"}}, of_job);
  const Variables wanted = {{"NONE", "entry"}, {"MADE", "yes"}, {"KEPT", "job"}};
  cr_expect(program == wanted);
}

Test(container_entrypoint, environments_of_processes) {
  using namespace std::string_literals;
  const Variables wanted = {{"A", "b=\n"}, {"B%%", ""}};
  cr_expect(parse_process_environment("A=b=\n\0=x\0none\0B%%=\0"s) == wanted);
  cr_expect(parse_process_environment("").empty());
}

}  // namespace
