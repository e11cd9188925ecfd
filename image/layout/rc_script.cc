// SPDX-License-Identifier: Apache-2.0
#include "image/layout/rc_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/text.h"

namespace bellows::image {
namespace {

/// In double quotes, as enroot has them.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (std::string_view("\"\\$`").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out + '"';
}

/// Each after a blank.
std::string words(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& word : list) out += ' ' + shell_quoted(word);
  return out;
}

}  // namespace

bool has_workdir(const ImageConfig& config) {
  return config.workdir.starts_with('/') &&
         std::none_of(config.workdir.begin(), config.workdir.end(), is_control);
}

std::string rc_text(const ImageConfig& config) {
  const std::string directory = has_workdir(config) ? config.workdir : "/";
  std::string text = fmt::format("mkdir -p {0} 2> /dev/null\ncd {0} && unset OLDPWD || exit 1\n\n",
                                 quoted(directory));
  text += "if [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n\n";
  const std::string entrypoint = words(config.entrypoint);
  const std::string other = entrypoint + words(config.command);
  text += fmt::format("if [ $# -gt 0 ]; then\n    exec{} \"$@\"\nelse\n    exec{}\nfi\n",
                      entrypoint, other.empty() ? " '/bin/sh'" : other);
  return text;
}

}  // namespace bellows::image
