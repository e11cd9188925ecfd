// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace bellows {

/// An option of a command, to be described further. This header hides CLI11 from the commands,
/// since each source that includes it takes seconds to compile.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}
  CommandOption& required();
  CommandOption& show_default();
  CommandOption& one_value_each();             ///< what follows the value is not another one
  CommandOption& values(int least, int most);  ///< how many; most -1: any number
  CommandOption& value_name(const std::string& name);
  CommandOption& between(std::uint32_t least, std::uint32_t most);
  /// `complaint` says what is wrong with a value, or nothing.
  CommandOption& check(std::function<std::string(const std::string&)> complaint);
  CommandOption& needs(const std::string& other);
  CommandOption& excludes(const std::string& other);

 private:
  CLI::Option* option_;
};

/// A command line whose arguments contradict each other: thrown by what run() is given.
struct WrongUsage {
  std::string text;
};

/// A command, or the program itself. The values that its options fill in must outlive the parse:
/// what run() is given may own them.
class CommandLine {
 public:
  CommandLine(CLI::App* app, int* exit_status) : app_(app), exit_status_(exit_status) {}
  CommandLine add_command(const std::string& name, const std::string& text);
  CommandOption add_option(const std::string& name, std::string& value, const std::string& text);
  CommandOption add_option(const std::string& name, std::uint32_t& value, const std::string& text);
  CommandOption add_option(const std::string& name, std::uint64_t& value, const std::string& text);
  /// Nothing: it was not given.
  CommandOption add_option(const std::string& name, std::optional<std::uint32_t>& value,
                           const std::string& text);
  CommandOption add_option(const std::string& name, std::vector<std::string>& values,
                           const std::string& text);
  CommandOption add_option(const std::string& name, std::set<std::string>& values,
                           const std::string& text);
  CommandOption add_flag(const std::string& name, bool& value, const std::string& text);
  void require_command();
  void footer(const std::string& text);
  void positionals_at_end();  ///< from the first positional argument on, nothing is an option
  /// A script for bash that completes this program's command lines.
  std::string bash_completion() const;
  /// `body` is called when this command was given, and returns the program's exit status.
  void run(std::function<int()> body);
  /// Likewise, for a command that is a program of its own: all that stands behind its name is given
  /// to `body` as it is, --help too.
  void run_with_all(std::function<int(const std::vector<std::string>&)> body);

 private:
  CLI::App* app_;
  int* exit_status_;
};

struct ProgramText {
  std::string name;
  std::string description;
  std::string version;
  std::string footer;
};

/// Runs the command that the arguments name, and returns the exit status.
int run_command_line(const ProgramText& text, const std::function<void(CommandLine&)>& add_commands,
                     int argc, char** argv);

}  // namespace bellows
