// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/time_text.h"

#include <fmt/core.h>

#include <cmath>
#include <ctime>

#include "common/text.h"

namespace bellows {
namespace {

constexpr double kLongest = 100.0 * 366 * 86400;

double unit_seconds(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return 60;
    case 'h':
      return 3600;
    case 'd':
      return 86400;
    default:
      return 0;
  }
}

std::optional<double> parse_duration(std::string_view text) {
  double sum = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const auto digits = text.find_first_not_of("0123456789");
    if (digits == std::string_view::npos) return std::nullopt;
    const auto number = parse_uint(text.substr(0, digits));
    const double unit = unit_seconds(text[digits]);
    if (!number || unit == 0) return std::nullopt;
    sum += static_cast<double>(*number) * unit;
    text.remove_prefix(digits + 1);
  }
  return sum <= kLongest ? std::optional(sum) : std::nullopt;
}

/// What strptime makes of the whole text but for a fraction of a second.
std::optional<double> parse_with(const std::string& text, const char* format, std::tm when,
                                 bool utc) {
  const char* rest = strptime(text.c_str(), format, &when);
  if (!rest) return std::nullopt;
  double fraction = 0;
  if (*rest == '.') {
    const std::string_view digits = rest + 1;
    const auto value = parse_uint(digits);
    if (!value || digits.size() > 9) return std::nullopt;
    fraction = static_cast<double>(*value) / std::pow(10, digits.size());
  } else if (*rest != '\0') {
    return std::nullopt;
  }
  when.tm_isdst = -1;
  const std::time_t seconds = utc ? timegm(&when) : mktime(&when);
  if (seconds < 0) return std::nullopt;
  return static_cast<double>(seconds) + fraction;
}

}  // namespace

std::optional<double> parse_since(const std::string& text, double now) {
  if (auto duration = parse_duration(text)) return now - *duration;
  const auto today = static_cast<std::time_t>(now);
  std::tm midnight{};
  localtime_r(&today, &midnight);
  midnight.tm_hour = midnight.tm_min = midnight.tm_sec = 0;
  for (const char* format : {"%H:%M:%S", "%H:%M"})
    if (auto time = parse_with(text, format, midnight, false)) return time;
  const bool utc = text.ends_with('Z');
  const std::string date = utc ? text.substr(0, text.size() - 1) : text;
  for (const char* format :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"})
    if (auto time = parse_with(date, format, std::tm{}, utc)) return time;
  return std::nullopt;
}

std::string duration_text(double seconds) {
  if (seconds < 0) seconds = 0;
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02} h", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string date_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%F %R", &parts));
}

}  // namespace bellows
