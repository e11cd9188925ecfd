// SPDX-License-Identifier: Apache-2.0
#include "modelstore/format/strict_json.h"

#include <fmt/core.h>

#include "common/text.h"

namespace bellows {

Status StrictJson::read(std::string_view text, std::string_view what) {
  why_.clear();
  // Some readers of the format require it, and others would skip white space here.
  const bool begins = !text.empty() && text.front() == '{';
  if (!begins) why_ = "it does not begin with {";
  if (begins && nlohmann::json::sax_parse(text, this) && why_.empty()) return {};
  return Error{ErrorKind::corrupt, fmt::format("{} is not valid: {}", what, why_)};
}

bool StrictJson::parse_error(std::size_t position, const std::string&,
                             const nlohmann::json::exception&) {
  if (why_.empty()) why_ = fmt::format("it is not JSON at byte {}", position);
  return false;
}

bool StrictJson::refuse(std::string_view why) {
  if (why_.empty()) why_ = fmt::format("it has {}", why);
  return false;
}

std::string StrictJson::quoted(std::string_view name) {
  return fmt::format("\"{}\"", one_line(name, 80));
}

}  // namespace bellows
