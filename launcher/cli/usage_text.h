// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace bellows {

/// What --help prints, in the width of the terminal.
class HelpText : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

/// What a wrong command line is told: what is wrong, the nearest word that would be right, and
/// whose
/// --help tells more.
std::string usage_error(const CLI::App& program, const CLI::Error& error);

}  // namespace bellows
