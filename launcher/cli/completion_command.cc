// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"

namespace bellows {
namespace {

// After "--" comes the command line of another program.
constexpr const char* kScript = R"sh(
_bellows_jobs() {
  squeue --noheader --me --array --format=%i 2>/dev/null | grep -v '\['
}

_bellows() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} path="" word i
  COMPREPLY=()
  # bash makes three words of --option=value.
  if [[ $current == = ]]; then
    current=""
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    [[ $word != -- ]] || return 0
    [[ " $(_bellows_commands "$path") " != *" $word "* ]] || path="${path:+$path }$word"
  done
  word=$(_bellows_values "$path $before")
  if [[ -n $word ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
    return 0
  fi
  if [[ " $(_bellows_valued "$path") " == *" $before "* ]]; then
    compopt -o default 2>/dev/null
    return 0
  fi
  if [[ $current == -* ]]; then
    word=$(_bellows_options "$path")
  else
    word=$(_bellows_commands "$path")
    ! _bellows_takes_job "$path" || word+=" $(_bellows_jobs)"
    [[ -n ${word// /} ]] || compopt -o default 2>/dev/null
  fi
  mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
}

complete -F _bellows bellows
)sh";

/// The branches of a case on the words of a command.
struct Tables {
  std::string commands;
  std::string options;
  std::string valued;
  std::string values;
  std::vector<std::string> with_job;
};

void add_branch(std::string& table, const std::string& path,
                const std::vector<std::string>& words) {
  if (!words.empty())
    table += fmt::format("    \"{}\") echo \"{}\" ;;\n", path, fmt::join(words, " "));
}

/// An option whose value is called "a|b" takes one of these.
void add_values(std::string& table, const std::string& path, const CLI::Option& option) {
  const std::string name = option.get_type_name();
  if (name.find('|') == std::string::npos) return;
  std::vector<std::string> values;
  for (std::string_view value : split(name, '|')) values.emplace_back(value);
  for (const std::string& option_name : option.get_lnames())
    add_branch(table, path + " --" + option_name, values);
}

void describe(const CLI::App& app, const std::string& path, Tables& tables) {
  std::vector<std::string> options;
  std::vector<std::string> valued;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      if (option->get_name(true) == "JOB") tables.with_job.push_back(path);
      continue;
    }
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    for (const std::string& name : option->get_snames()) options.push_back("-" + name);
    if (option->get_items_expected_max() == 0) continue;
    add_values(tables.values, path, *option);
    for (const std::string& name : option->get_lnames()) valued.push_back("--" + name);
    for (const std::string& name : option->get_snames()) valued.push_back("-" + name);
  }
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands(std::function<bool(const CLI::App*)>())) {
    commands.push_back(command->get_name());
    describe(*command, path.empty() ? command->get_name() : path + " " + command->get_name(),
             tables);
  }
  add_branch(tables.commands, path, commands);
  add_branch(tables.options, path, options);
  add_branch(tables.valued, path, valued);
}

std::string table_function(const std::string& name, const std::string& branches) {
  return fmt::format("{}() {{\n  case $1 in\n{}  esac\n}}\n", name, branches);
}

}  // namespace

std::string CommandLine::bash_completion() const {
  Tables tables;
  describe(*app_, "", tables);
  std::string jobs;
  for (const std::string& path : tables.with_job)
    jobs += fmt::format("    \"{}\") return 0 ;;\n", path);
  return "# SPDX-License-Identifier: Apache-2.0\n# shellcheck shell=bash\n" +
         table_function("_bellows_commands", tables.commands) +
         table_function("_bellows_options", tables.options) +
         table_function("_bellows_valued", tables.valued) +
         table_function("_bellows_values", tables.values) +
         table_function("_bellows_takes_job", jobs + "    *) return 1 ;;\n") + kScript;
}

void add_completion_command(CommandLine& program) {
  auto shell = std::make_shared<std::string>();
  CommandLine command =
      program.add_command("completion", "Print a script that completes command lines of bellows");
  command.add_option("SHELL", *shell, "bash, or zsh, which runs the same script")
      .required()
      .check([](const std::string& name) {
        return name == "bash" || name == "zsh" ? "" : "'" + name + "' is neither bash nor zsh";
      });
  command.run([program, shell] {
    if (*shell == "zsh")
      fmt::print("#compdef bellows\nautoload -U +X bashcompinit && bashcompinit\n");
    fmt::print("{}", program.bash_completion());
    return kOk;
  });
}

}  // namespace bellows
