// SPDX-License-Identifier: Apache-2.0
#include "launcher/slurm/conf.h"

#include <fmt/core.h>
#include <glob.h>
#include <slurm/slurm.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "common/text.h"
#include "slurm/conf_path.h"

namespace bellows {
namespace {

constexpr std::size_t kMostDepth = 16;

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

bool same_key(std::string_view one, std::string_view other) {
  return to_lower(one) == to_lower(other);
}

/// Cuts what a # begins, unless an odd number of backslashes stands before it.
void cut_comment(std::string& line) {
  std::size_t backslashes = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && backslashes % 2 == 0) {
      line.resize(i);
      return;
    }
    backslashes = line[i] == '\\' ? backslashes + 1 : 0;
  }
}

/// Removes the backslash with which a line continues in the next one. False: it does not continue.
bool cut_continuation(std::string& line) {
  std::size_t end = line.size();
  while (end > 0 && is_space(line[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] == '\\') --begin;
  if ((end - begin) % 2 == 0) return false;
  line.resize(end - 1);
  return true;
}

std::string without_escapes(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && ++i == line.size()) break;
    out += line[i];
  }
  return out;
}

/// KEY=VALUE or KEY="VALUE" at the start of a line. The operators of Slurm's parser mean nothing
/// for the keys of slurm.conf.
std::optional<ConfEntry> parse_entry(std::string_view line) {
  const auto skip = [&](auto&& what) {
    while (!line.empty() && what(line.front())) line.remove_prefix(1);
  };
  skip(is_space);
  ConfEntry entry;
  while (!line.empty() && (is_alphanumeric(line[0]) || line[0] == '_' || line[0] == '.')) {
    entry.key += line[0];
    line.remove_prefix(1);
  }
  skip(is_space);
  if (!line.empty() && std::string_view("-*+/").find(line[0]) != std::string_view::npos)
    line.remove_prefix(1);
  if (entry.key.empty() || line.empty() || line[0] != '=') return std::nullopt;
  line.remove_prefix(1);
  skip(is_space);
  const auto quote = line.starts_with('"') ? line.find('"', 1) : std::string_view::npos;
  if (quote != std::string_view::npos)
    entry.value = line.substr(1, quote - 1);
  else
    entry.value = line.substr(
        0,
        static_cast<std::size_t>(std::find_if(line.begin(), line.end(), is_space) - line.begin()));
  if (quote == std::string_view::npos && entry.value.empty()) return std::nullopt;
  return entry;
}

/// The file that an Include line names; the word begins the line.
std::optional<std::string> parse_include(std::string_view line) {
  constexpr std::string_view kWord = "include";
  if (line.size() <= kWord.size() || !same_key(line.substr(0, kWord.size()), kWord) ||
      !is_space(line[kWord.size()]))
    return std::nullopt;
  line = trim(line.substr(kWord.size()));
  return std::string(line.begin(), std::find_if(line.begin(), line.end(), is_space));
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words(1);
  for (char c : line)
    if (!is_space(c))
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  if (words.back().empty()) words.pop_back();
  return words;
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

Error too_deep(const std::string& path) {
  return Error{
      ErrorKind::invalid,
      fmt::format("{} is included {} files deep; does it include itself?", path, kMostDepth)};
}

Status read_plugstack_from(const std::string& path, const ReadText& read, std::size_t depth,
                           std::vector<PlugstackLine>& lines) {
  if (depth > kMostDepth) return too_deep(path);
  const auto text = read(path);
  if (!text) return text.error().kind == ErrorKind::not_found ? Status() : Status(text.error());
  int number = 0;
  for (std::string_view line : split(*text, '\n')) {
    ++number;
    const std::vector<std::string> words = words_of(line.substr(0, line.find('#')));
    if (words.size() < 2) continue;
    if (words[0] == "optional" || words[0] == "required")
      lines.push_back({std::string(trim(line)), words[1], {path, number, number}});
    if (words[0] != "include") continue;
    for (const std::string& match :
         matches_of(words[1].starts_with('/') ? words[1] : beside(path, words[1])))
      if (auto status = read_plugstack_from(match, read, depth + 1, lines); !status) return status;
  }
  return {};
}

}  // namespace

std::string ConfPlace::to_string() const {
  return last > first ? fmt::format("{}:{}-{}", file, first, last)
                      : fmt::format("{}:{}", file, first);
}

std::string ConfEntry::line() const {
  const bool quoted = value.empty() || std::any_of(value.begin(), value.end(), is_space);
  return fmt::format("{0}={1}{2}{1}", key, quoted ? "\"" : "", value);
}

Result<SlurmConf> SlurmConf::read(const std::string& path, const ReadText& read) {
  SlurmConf conf(path);
  if (auto status = conf.read_from(path, read, 0); !status) return status.error();
  return conf;
}

Status SlurmConf::read_from(const std::string& path, const ReadText& read, std::size_t depth) {
  if (depth > kMostDepth) return too_deep(path);
  const auto text = read(path);
  if (!text) return text.error();
  std::string line;
  ConfPlace place{path, 1, 0};
  for (std::string_view piece : split(*text, '\n')) {
    ++place.last;
    std::string part(piece);
    cut_comment(part);
    const bool goes_on = cut_continuation(part);
    line += part;
    if (goes_on) continue;
    if (auto status = take(without_escapes(line), place, read, depth); !status) return status;
    line.clear();
    place.first = place.last + 1;
  }
  return take(without_escapes(line), place, read, depth);
}

Status SlurmConf::take(const std::string& line, const ConfPlace& place, const ReadText& read,
                       std::size_t depth) {
  if (const auto name = parse_include(line)) {
    const Status status = read_from(included_path(*name, place.file), read, depth + 1);
    // The innermost place is the one to look at.
    if (!status && status.error().text.find(", included by ") == std::string::npos)
      return Error{status.error().kind,
                   fmt::format("{}, included by {}", status.error().text, place.to_string())};
    return status;
  }
  if (auto entry = parse_entry(line)) {
    entry->place = place;
    entries_.push_back(*std::move(entry));
  }
  return {};
}

/// %c is the cluster's name, if it has been set above.
std::string SlurmConf::included_path(std::string name, const std::string& from) const {
  const std::string cluster = to_lower(value("ClusterName"));
  for (std::size_t at = 0; (at = name.find("%c", at)) != std::string::npos; at += cluster.size())
    name.replace(at, 2, cluster);
  return name.starts_with('/') ? name : beside(from, name);
}

std::vector<ConfEntry> SlurmConf::all(std::string_view key) const {
  std::vector<ConfEntry> found;
  for (const ConfEntry& entry : entries_)
    if (same_key(entry.key, key)) found.push_back(entry);
  return found;
}

std::string SlurmConf::value(std::string_view key) const {
  const std::vector<ConfEntry> found = all(key);
  return found.empty() ? "" : found.back().value;
}

std::vector<std::string> SlurmConf::controllers() const {
  std::vector<std::string> hosts;
  // The one key that may stand several times.
  for (const ConfEntry& entry : all("SlurmctldHost"))
    hosts.push_back(entry.value.substr(0, entry.value.find('(')));
  if (!hosts.empty()) return hosts;
  for (const char* key : {"ControlMachine", "BackupController"})
    if (std::string host = value(key); !host.empty()) hosts.push_back(std::move(host));
  return hosts;
}

Result<std::vector<PlugstackLine>> read_plugstack(const std::string& path, const ReadText& read) {
  std::vector<PlugstackLine> lines;
  if (auto status = read_plugstack_from(path, read, 0, lines); !status) return status.error();
  return lines;
}

}  // namespace bellows
