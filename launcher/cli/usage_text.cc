// SPDX-License-Identifier: Apache-2.0
#include "launcher/cli/usage_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/text.h"
#include "launcher/base/terminal.h"

namespace bellows {
namespace {

constexpr std::size_t kUsualWidth = 80;
constexpr std::size_t kWidestHead = 26;
/// On a narrower terminal a description goes below its option.
constexpr std::size_t kNarrow = 60;
constexpr std::size_t kIndentBelow = 6;

struct Entry {
  std::string head;
  std::string text;
};

bool takes_many(const CLI::Option& option) {
  return option.get_expected_max() >= CLI::detail::expected_max_vector_size;
}

/// A placeholder for the value: "N" for a number, else the last word of the option's name.
std::string value_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "UINT") return "N";
  if (type != "TEXT") return type;
  const std::string name = option.get_lnames().empty() ? "value" : option.get_lnames().front();
  std::string word = name.substr(name.rfind('-') + 1);
  for (char& c : word)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return word;
}

/// "JOB", "[STEP]...", "STEP STEP"
std::string usage_of(const CLI::Option& positional) {
  std::string name = positional.get_name(true);
  const int most = positional.get_expected_max();
  if (!takes_many(positional) && most > 1) {
    const std::string one = name;
    for (int i = 1; i < most; ++i) name += " " + one;
  }
  if (!positional.get_required()) name = "[" + name + "]";
  return takes_many(positional) ? name + "..." : name;
}

std::string names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Entry entry_of(const CLI::Option& option) {
  if (option.get_positional()) return {option.get_name(true), option.get_description()};
  const bool valued = option.get_items_expected_max() > 0;
  Entry entry{names_of(option), option.get_description()};
  if (valued) entry.head += " " + value_of(option);
  if (valued && option.get_required()) entry.text += " (required)";
  if (valued && takes_many(option)) entry.text += "; may be given several times";
  if (!option.get_default_str().empty())
    entry.text += fmt::format(" (default: {})", option.get_default_str());
  return entry;
}

std::string section(const std::string& title, const std::vector<Entry>& entries,
                    std::size_t width) {
  if (entries.empty()) return "";
  std::size_t column = 0;
  for (const Entry& entry : entries)
    if (entry.head.size() <= kWidestHead) column = std::max(column, entry.head.size() + 4);
  if (width < kNarrow) column = kIndentBelow;
  std::string out = "\n" + title + ":\n";
  for (const Entry& entry : entries) {
    std::string line = "  " + entry.head;
    if (line.size() + 2 > column) line += "\n" + std::string(column, ' ');
    line.resize(std::max(line.size(), column), ' ');
    out += line + wrapped(entry.text, width, column) + "\n";
  }
  return out;
}

const std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const std::vector<const CLI::Option*> options_of(const CLI::App& app, bool positional) {
  return app.get_options(
      [positional](const CLI::Option* option) { return option->get_positional() == positional; });
}

std::vector<Entry> entries_of(const std::vector<const CLI::Option*>& options) {
  std::vector<Entry> entries;
  for (const CLI::Option* option : options) entries.push_back(entry_of(*option));
  return entries;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(app, false))
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string match = nearest(word, known);
  return match.empty() ? "" : fmt::format("; did you mean '{}'?", match);
}

/// On a word that the command line has no place for.
std::string unknown_word(const CLI::App& app, const std::string& path, const std::string& word) {
  const std::string shown = one_line(word);
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("{} has no option '{}'{}", path, one_line(name),
                       did_you_mean(name, option_names(app)));
  }
  if (commands_of(app).empty()) return fmt::format("unexpected argument '{}'", shown);
  return fmt::format("'{}' is not a command of {}{}", shown, path,
                     did_you_mean(word, command_names(app)));
}

}  // namespace

std::string HelpText::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const {
  const std::size_t terminal = terminal_width(STDOUT_FILENO);
  const std::size_t width = terminal == 0 ? kUsualWidth : terminal;
  const auto arguments = options_of(*app, true);
  std::string usage = name + " [OPTION]...";
  for (const CLI::Option* argument : arguments) usage += " " + usage_of(*argument);
  std::vector<Entry> commands;
  for (const CLI::App* command : commands_of(*app))
    commands.push_back({command->get_name(), command->get_description()});
  if (!commands.empty()) usage += " COMMAND";
  const std::string head = "Usage: ";
  std::string out = head + wrapped(usage, width, head.size()) + "\n";
  out += wrapped(app->get_description(), width, 0) + ".\n";
  out += section("Commands", commands, width);
  out += section("Arguments", entries_of(arguments), width);
  out += section("Options", entries_of(options_of(*app, false)), width);
  if (const std::string footer = app->get_footer(); !footer.empty())
    out += "\n" + wrapped(footer, width, 0) + "\n";
  return out;
}

std::string usage_error(const CLI::App& program, const CLI::Error& error) {
  const CLI::App* app = &program;
  std::string path = app->get_name();
  std::vector<std::string> left = app->remaining();
  while (left.empty() && !app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    path += " " + app->get_name();
    left = app->remaining();
  }
  std::erase(left, "--");
  const bool missing = error.get_name() == "RequiredError";
  std::string text = error.what();
  // A word that is unknown is why another is missing.
  const bool extra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!left.empty() && (missing || extra))
    text = unknown_word(*app, path, left.front());
  else if (missing && !commands_of(*app).empty())
    text = fmt::format("a command is missing: {}", fmt::join(command_names(*app), ", "));
  return fmt::format("{}: {}\nTry '{} --help'.\n", program.get_name(), text, path);
}

}  // namespace bellows
