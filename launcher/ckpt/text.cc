// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/ckpt/progress.h"

namespace bellows {

std::string time_text(double seconds_since_1970) {
  // A clock that shows a year beyond 9999 was wrong.
  if (!(seconds_since_1970 >= 0 && seconds_since_1970 < 253402300800.0)) return "?";
  return fmt::format("{:%F %T}", fmt::localtime(static_cast<std::time_t>(seconds_since_1970)));
}

void print_json(const nlohmann::ordered_json& value) {
  fmt::print("{}\n", value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int complain(const char* what, const Error& error) {
  fmt::print(stderr, "bellows ckpt {}: {}\n", what, one_line(error.text));
  if (interrupted()) return kInterrupted;
  if (error.kind == ErrorKind::invalid) return kUsage;
  return error.kind == ErrorKind::busy ? kRefused : exit_status_of(error);
}

}  // namespace bellows
