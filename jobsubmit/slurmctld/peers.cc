// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/peers.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "common/fd.h"
#include "common/text.h"

namespace bellows {
namespace {

constexpr std::string_view kMark = "bellows-policy/1";
constexpr std::string_view kPrefix = "bellows.policy.";
constexpr std::size_t kMostBytes = 1024;

bool is_host(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '.' || c == '-' || c == '_'; });
}

bool is_digest(std::string_view text) {
  return text.size() <= 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string line_of(const PolicyRecord& record) {
  return fmt::format("{} {} {} {}\n", kMark, record.host, record.since, record.digest);
}

/// Nothing: no record of this version, or not that of the host whose name the file has.
std::optional<PolicyRecord> parse_record(std::string_view text, std::string_view host) {
  const auto words = split(text.substr(0, text.find('\n')), ' ');
  if (words.size() != 4 || words[0] != kMark || words[1] != host || !is_host(host))
    return std::nullopt;
  const auto since = parse_uint(words[2]);
  if (!since || *since > INT64_MAX || !is_digest(words[3])) return std::nullopt;
  return PolicyRecord{std::string(host), std::string(words[3]), static_cast<std::int64_t>(*since)};
}

std::optional<std::chrono::nanoseconds> written_at(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) != 0) return std::nullopt;
  return std::chrono::seconds(s.st_mtim.tv_sec) + std::chrono::nanoseconds(s.st_mtim.tv_nsec);
}

/// A host's name comes from the system, and becomes a file's.
std::string usable(std::string host) { return is_host(host) ? std::move(host) : "unnamed"; }

}  // namespace

Peers::Peers(std::string directory, std::string host, Times times)
    : directory_(std::move(directory)), times_(times), self_{usable(std::move(host)), "", 0} {}

Result<std::shared_ptr<const PolicyRecord>> Peers::meet(const std::string& digest,
                                                        std::int64_t since) {
  const PolicyRecord now{self_.host, digest, since};
  if (now != self_ || Clock::now() >= due_) {
    const bool changed = now != self_;
    self_ = now;
    due_ = Clock::now() + times_.period;
    if (Status status = replace_file(own_path(), line_of(now), 0600); !status.ok())
      return status.error();
    auto other = find_other();
    if (!other) return other.error();
    // Whichever side's policy is new, its grace begins now.
    if (changed || !*other || !other_ || **other != *other_) differ_since_ = Clock::now();
    other_ = *std::move(other);
  }
  return other_ && Clock::now() - differ_since_ >= times_.grace ? other_ : nullptr;
}

std::string Peers::own_path() const {
  return fmt::format("{}/{}{}", directory_, kPrefix, self_.host);
}

Result<std::shared_ptr<const PolicyRecord>> Peers::find_other() const {
  const auto now = written_at(own_path());
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(directory_, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto written = written_at(entry->path().string());
    if (!now || !written || *now - *written > times_.stale) continue;
    const auto text = read_file(entry->path().string(), kMostBytes);
    const auto record = text ? parse_record(*text, name.substr(kPrefix.size())) : std::nullopt;
    if (record && record->host != self_.host && record->digest != self_.digest)
      return std::make_shared<const PolicyRecord>(*record);
  }
  if (failed)
    return Error{ErrorKind::io, fmt::format("cannot read {}: {}", directory_, failed.message())};
  return std::shared_ptr<const PolicyRecord>();
}

}  // namespace bellows
