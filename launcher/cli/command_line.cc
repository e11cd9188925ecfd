// SPDX-License-Identifier: Apache-2.0
#include "launcher/cli/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <utility>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/usage_text.h"

namespace bellows {
namespace {

/// An option for a number. The parser's own conversion does not say what was wrong with which text.
template <typename Number, typename Value>
CLI::Option* add_number(CLI::App* app, const std::string& name, Value& value,
                        const std::string& text) {
  CLI::Option* option = app->add_option(name, value, text);
  option->check([](const std::string& given) {
    const auto number = parse_uint(given);
    if (number && *number <= std::numeric_limits<Number>::max()) return std::string();
    return fmt::format("'{}' is not a whole number{}", one_line(given),
                       number ? " of this size" : "");
  });
  return option;
}

}  // namespace

CommandOption& CommandOption::required() {
  option_->required();
  return *this;
}

CommandOption& CommandOption::show_default() {
  option_->capture_default_str();
  return *this;
}

CommandOption& CommandOption::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

CommandOption& CommandOption::values(int least, int most) {
  option_->expected(least, most);
  return *this;
}

CommandOption& CommandOption::value_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

CommandOption& CommandOption::between(std::uint32_t least, std::uint32_t most) {
  option_->check([least, most](const std::string& given) {
    const auto number = parse_uint(given);
    if (number && *number >= least && *number <= most) return std::string();
    return fmt::format("'{}' is not a number from {} to {}", one_line(given), least, most);
  });
  return *this;
}

CommandOption& CommandOption::check(std::function<std::string(const std::string&)> complaint) {
  option_->check(std::move(complaint));
  return *this;
}

CommandOption& CommandOption::needs(const std::string& other) {
  option_->needs(other);
  return *this;
}

CommandOption& CommandOption::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

CommandLine CommandLine::add_command(const std::string& name, const std::string& text) {
  return {app_->add_subcommand(name, text), exit_status_};
}

CommandOption CommandLine::add_option(const std::string& name, std::string& value,
                                      const std::string& text) {
  return CommandOption(app_->add_option(name, value, text));
}

CommandOption CommandLine::add_option(const std::string& name, std::uint32_t& value,
                                      const std::string& text) {
  return CommandOption(add_number<std::uint32_t>(app_, name, value, text));
}

CommandOption CommandLine::add_option(const std::string& name, std::uint64_t& value,
                                      const std::string& text) {
  return CommandOption(add_number<std::uint64_t>(app_, name, value, text));
}

CommandOption CommandLine::add_option(const std::string& name, std::optional<std::uint32_t>& value,
                                      const std::string& text) {
  return CommandOption(add_number<std::uint32_t>(app_, name, value, text));
}

CommandOption CommandLine::add_option(const std::string& name, std::vector<std::string>& values,
                                      const std::string& text) {
  return CommandOption(app_->add_option(name, values, text));
}

CommandOption CommandLine::add_option(const std::string& name, std::set<std::string>& values,
                                      const std::string& text) {
  return CommandOption(app_->add_option(name, values, text));
}

CommandOption CommandLine::add_flag(const std::string& name, bool& value, const std::string& text) {
  return CommandOption(app_->add_flag(name, value, text));
}

void CommandLine::require_command() { app_->require_subcommand(1); }

void CommandLine::footer(const std::string& text) { app_->footer(text); }

void CommandLine::positionals_at_end() { app_->positionals_at_end(); }

void CommandLine::run(std::function<int()> body) {
  app_->callback([body = std::move(body), status = exit_status_] {
    try {
      *status = body();
    } catch (const WrongUsage& wrong) {
      throw CLI::ValidationError(wrong.text);
    }
  });
}

void CommandLine::run_with_all(std::function<int(const std::vector<std::string>&)> body) {
  app_->set_help_flag();
  app_->prefix_command();
  app_->callback([body = std::move(body), app = app_, status = exit_status_] {
    *status = body(app->remaining());
  });
}

int run_command_line(const ProgramText& text, const std::function<void(CommandLine&)>& add_commands,
                     int argc, char** argv) {
  CLI::App app(text.description, text.name);
  // Commands inherit these.
  app.formatter(std::make_shared<HelpText>());
  app.set_help_flag("-h,--help", "Print this text");
  app.set_version_flag("--version", text.version, "Print the version");
  app.footer(text.footer);
  app.failure_message([](const CLI::App* program, const CLI::Error& error) {
    return usage_error(*program, error);
  });
  int status = kOk;
  CommandLine program(&app, &status);
  program.require_command();
  add_commands(program);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return status;
}

}  // namespace bellows
