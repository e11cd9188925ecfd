// SPDX-License-Identifier: Apache-2.0
#include "launcher/logs/log_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::string_view kTimePattern = "0000-00-00T00:00:00.000Z";

std::optional<double> parse_log_time(std::string_view text) {
  if (text.size() != kTimePattern.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kTimePattern[i] == '0' ? !digit : text[i] != kTimePattern[i]) return std::nullopt;
  }
  auto number = [text](std::size_t at, std::size_t size) {
    return static_cast<int>(parse_uint(text.substr(at, size)).value_or(0));
  };
  std::tm when{};
  when.tm_year = number(0, 4) - 1900;
  when.tm_mon = number(5, 2) - 1;
  when.tm_mday = number(8, 2);
  when.tm_hour = number(11, 2);
  when.tm_min = number(14, 2);
  when.tm_sec = number(17, 2);
  const std::time_t seconds = timegm(&when);
  if (seconds < 0) return std::nullopt;
  return static_cast<double>(seconds) + number(20, 3) / 1000.0;
}

std::string_view take_word(std::string_view& line) {
  const auto end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

std::optional<LogLine::Stream> parse_stream(std::string_view name) {
  for (auto stream : {LogLine::Stream::out, LogLine::Stream::err, LogLine::Stream::run})
    if (name == stream_name(stream)) return stream;
  return std::nullopt;
}

}  // namespace

const char* stream_name(LogLine::Stream stream) {
  static constexpr const char* kNames[] = {"out", "err", "run"};
  return kNames[static_cast<int>(stream)];
}

std::string log_time(double time) {
  const auto milliseconds = static_cast<std::int64_t>(std::floor(time * 1000 + 0.5));
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(milliseconds / 1000)),
                     milliseconds % 1000);
}

std::string LogLine::to_text() const {
  return fmt::format("{} {} {}{} {}", log_time(time), rank ? std::to_string(*rank) : "-",
                     stream_name(stream), whole ? "" : "+", text);
}

Result<LogLine> LogLine::parse(std::string_view line) {
  const Error wrong{ErrorKind::corrupt, "not a line of a log"};
  LogLine parsed;
  const auto time = parse_log_time(take_word(line));
  if (!time) return wrong;
  parsed.time = *time;
  const std::string_view rank = take_word(line);
  const auto number = parse_uint(rank);
  if (rank != "-" && (!number || *number > UINT32_MAX)) return wrong;
  if (number) parsed.rank = static_cast<std::uint32_t>(*number);
  std::string_view stream = take_word(line);
  parsed.whole = !stream.ends_with('+');
  if (!parsed.whole) stream.remove_suffix(1);
  const auto known = parse_stream(stream);
  if (!known) return wrong;
  parsed.stream = *known;
  parsed.text = line;
  return parsed;
}

std::string LogFile::name() const {
  return fmt::format("{}.{}.{}.{}.log", job, restart, attempt, part);
}

std::optional<LogFile> LogFile::parse(std::string_view name) {
  const std::vector<std::string_view> fields = split(name, '.');
  if (fields.size() != 5 || fields[4] != "log") return std::nullopt;
  std::uint32_t numbers[4];
  for (int i = 0; i < 4; ++i) {
    const auto number = parse_uint(fields[static_cast<std::size_t>(i)]);
    if (!number || *number > UINT32_MAX) return std::nullopt;
    numbers[i] = static_cast<std::uint32_t>(*number);
  }
  const LogFile file{numbers[0], numbers[1], numbers[2], numbers[3]};
  return file.name() == name ? std::optional(file) : std::nullopt;
}

std::string log_dir_of(const std::string& checkpoint_dir) { return checkpoint_dir + "/logs"; }

std::vector<LogFile> log_files(const std::string& log_dir, std::uint32_t job) {
  std::vector<LogFile> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(log_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto file = LogFile::parse(entry->path().filename().string());
    if (file && file->job == job) files.push_back(*file);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace bellows
