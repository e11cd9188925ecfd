// SPDX-License-Identifier: Apache-2.0
#include "spank/container/working_directory.h"

#include <fmt/core.h>

#include "common/container/mount_grammar.h"
#include "common/text.h"
#include "spank/container/mount_api.h"
#include "spank/container/root_files.h"

namespace bellows::container {
namespace {

/// enroot writes the image's labels there too.
constexpr std::size_t kMostBytes = 1U << 20;
constexpr std::string_view kGoTo = "cd \"";

}  // namespace

std::optional<std::string> rc_directory(std::string_view script) {
  for (const std::string_view line : split(script, '\n')) {
    if (!line.starts_with(kGoTo)) continue;
    const std::string_view rest = line.substr(kGoTo.size());
    const auto end = rest.find('"');
    const std::string_view path = rest.substr(0, end);
    if (end == std::string_view::npos || path.find_first_of("$`\\") != std::string_view::npos ||
        !check_value(path).ok())
      return std::nullopt;
    return normal_path(path, "");
  }
  return std::nullopt;
}

Result<std::string> enter_working_directory(int root, const Spec& spec) {
  const auto enter = [root](const std::string& path) -> Result<std::string> {
    const auto status = enter_directory(root, path);
    return status.ok() ? Result<std::string>("") : status.error();
  };
  if (spec.workdir) return enter(*spec.workdir);
  const auto script = read_in_root(root, "/etc/rc", kMostBytes);
  const std::string path = script && *script ? rc_directory(**script).value_or("/") : "/";
  auto entered = enter(path);
  if (entered || path == "/") return entered;
  const std::string remark = fmt::format(
      "the image's working directory cannot be entered, so that tasks start in /: {}; name another "
      "in --container-workdir",
      entered.error().text);
  entered = enter("/");
  return entered ? remark : entered;
}

}  // namespace bellows::container
