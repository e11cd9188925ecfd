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

/// The message for a wrong command line: what is wrong, the nearest correct word, and which --help
/// says more.
std::string usage_error(const CLI::App& program, const CLI::Error& error);

}  // namespace bellows
