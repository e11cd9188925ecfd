// SPDX-License-Identifier: Apache-2.0
#include "launcher/logs/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kChunk = 1 << 20;
constexpr std::size_t kLongestLine = 1 << 20;
constexpr std::uint64_t kMostRank = 1 << 20;

/// "3" or "3-5".
bool add_ranks(std::string_view text, std::set<std::uint32_t>& ranks) {
  const auto dash = text.find('-');
  const auto first = parse_uint(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_uint(text.substr(dash + 1));
  if (!first || !last || *first > *last || *last >= kMostRank) return false;
  for (std::uint64_t rank = *first; rank <= *last; ++rank)
    ranks.insert(static_cast<std::uint32_t>(rank));
  return true;
}

}  // namespace

bool parse_ranks(const std::string& text, LogFilter& filter) {
  for (std::string_view part : split(text, ','))
    if (!add_ranks(part, filter.ranks)) return false;
  return true;
}

bool parse_attempt(const std::string& text, LogFilter& filter) {
  const auto parts = split(text, '.');
  const auto restart = parse_uint(parts[0]);
  if (parts.size() > 2 || !restart || *restart > UINT32_MAX) return false;
  filter.restart = static_cast<std::uint32_t>(*restart);
  if (parts.size() == 1) return true;
  const auto attempt = parse_uint(parts[1]);
  if (!attempt || *attempt > UINT32_MAX) return false;
  filter.attempt = static_cast<std::uint32_t>(*attempt);
  return true;
}

bool LogFilter::wants(const LogFile& file) const {
  return (!restart || file.restart == *restart) && (!attempt || file.attempt == *attempt);
}

bool LogFilter::wants(const LogLine& line) const {
  if (line.time < since) return false;
  return ranks.empty() || (line.rank && ranks.contains(*line.rank));
}

void LogReader::take_lines(const LogFile& file, const Take& take) {
  std::size_t begin = 0;
  for (std::size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto line = LogLine::parse(std::string_view(rest_).substr(begin, end - begin));
    if (!line)
      ++damaged_;
    else if (filter_.wants(*line))
      take(file, *line);
  }
  rest_.erase(0, begin);
  if (rest_.size() <= kLongestLine) return;
  ++damaged_;
  rest_.clear();
}

Status LogReader::read_file(const LogFile& file, const Take& take) {
  const std::string path = dir_ + "/" + file.name();
  // Another user's directory may hold anything.
  auto fd = open_file(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (!fd) return fd.error();
  struct stat info;
  if (fstat(fd->get(), &info) != 0) return errno_error("look at", path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorKind::invalid, path + " is not a plain file"};
  std::string chunk(kChunk, '\0');
  for (ssize_t got; (got = pread(fd->get(), chunk.data(), chunk.size(), offset_)) > 0;) {
    offset_ += got;
    rest_.append(chunk, 0, static_cast<std::size_t>(got));
    take_lines(file, take);
  }
  return {};
}

Status LogReader::read(const Take& take) {
  const std::vector<LogFile> files = log_files(dir_, job_);
  for (const LogFile& file : files) {
    if (at_ && file < *at_) continue;
    if (!filter_.wants(file)) continue;
    if (!at_ || *at_ < file) {
      // The launcher never goes back to an older file.
      if (!rest_.empty()) ++damaged_;
      at_ = file;
      offset_ = 0;
      rest_.clear();
    }
    Status status = read_file(file, take);
    // The oldest files go when a log is full.
    if (!status && status.error().kind != ErrorKind::not_found) return status;
  }
  if (files.empty()) return Error{ErrorKind::not_found, "there is no log in " + dir_};
  return {};
}

}  // namespace bellows
