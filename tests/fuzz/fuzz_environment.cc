// SPDX-License-Identifier: Apache-2.0
/// An image's /etc/environment as whoever made the image wrote it: each variable is one that its
/// line says, in the text's order, and can be handed to execve(); the lists of directories among
/// them take the host's. The same text as an /etc/rc, as the environment that an
/// entrypoint passes on, and as a list of hosts that a user forged.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/text.h"
#include "spank/container/driver_files.h"
#include "spank/container/entrypoint.h"
#include "spank/container/hook_variables.h"
#include "spank/container/image_variables.h"
#include "spank/container/working_directory.h"

namespace {

using namespace bellows;
using namespace bellows::container;

void require(bool holds) {
  if (!holds) std::abort();
}

bool says(std::string_view line, const Variables::value_type& variable) {
  for (const char* quote : {"", "'", "\""})
    if (line == variable.first + "=" + quote + variable.second + quote) return true;
  return false;
}

void check_order(std::string_view text, const Variables& variables) {
  const auto lines = split(text, '\n');
  auto line = lines.begin();
  for (const auto& variable : variables) {
    line = std::find_if(line, lines.end(),
                        [&](std::string_view other) { return says(other, variable); });
    require(line != lines.end());
    ++line;
  }
}

void check_list(const std::string& list) {
  const std::string first = with_first(list, kDriverDirectory);
  const std::string last = with_last(list, kDriverDirectory);
  const auto in_front = split(first, ':');
  const auto behind = split(last, ':');
  require(in_front.front() == kDriverDirectory && behind.back() == kDriverDirectory);
  require(std::count(in_front.begin(), in_front.end(), kDriverDirectory) == 1);
  require(std::equal(in_front.begin() + 1, in_front.end(), behind.begin(), behind.end() - 1));
}

void check_directory(std::string_view script) {
  const auto path = rc_directory(script);
  if (!path) return;
  require(path->starts_with('/'));
  for (const std::string_view part : split(*path, '/')) require(part != "." && part != "..");
  require(path->find_first_of("$`\\\"\n") == path->npos);
}

void check_process(std::string_view text) {
  for (const auto& [name, value] : parse_process_environment(text)) {
    require(!name.empty() && name.find('=') == name.npos);
    require((name + value).find('\0') == name.npos);
    require(text.find(name + "=" + value) != text.npos);
  }
}

void check_host(std::string_view list) {
  const std::string host = first_host(list);
  require(host.size() <= 255 && host.find_first_of("[], \n$") == host.npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Variables variables = parse_environment(text);
  check_order(text, variables);
  check_directory(text);
  check_host(text);
  check_process(text);
  std::string quoted;
  for (const auto& [name, value] : variables) {
    require(is_variable_name(name));
    require(value.find('\0') == value.npos && value.find('\n') == value.npos);
    check_list(value);
    quoted += name + "=\"" + value + "\"\n";
  }
  require(parse_environment(quoted) == variables);
  return 0;
}
