// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/answer_head.h"

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostTag = 512;
/// Sizes are signed in the end, in files and in curl.
constexpr std::uint64_t kMostSize = std::uint64_t{1} << 62;

bool is_size(const std::optional<std::uint64_t>& value) { return value && *value <= kMostSize; }

/// Strong, and fit to be sent back.
bool is_strong_tag(std::string_view text) {
  return text.size() >= 2 && text.size() <= kMostTag && text.front() == '"' && text.back() == '"' &&
         std::all_of(text.begin() + 1, text.end() - 1,
                     [](char c) { return c > ' ' && c < 0x7f && c != '"'; });
}

/// Goes into a request as it is.
bool is_date(std::string_view text) {
  return text.size() <= 40 && std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == ' ' || c == ',' || c == ':' || c == '-' || c == '+';
         });
}

}  // namespace

std::optional<ContentRange> ContentRange::parse(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (to_lower(text.substr(0, kUnit.size())) != kUnit) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto size = parse_uint(text.substr(slash + 1));
  if (!is_size(size)) return std::nullopt;
  const std::string_view part = text.substr(0, slash);
  if (part == "*") return ContentRange{0, 0, *size};
  const auto dash = part.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_uint(part.substr(0, dash));
  const auto last = parse_uint(part.substr(dash + 1));
  if (!first || !last || *first > *last || *last >= *size) return std::nullopt;
  return ContentRange{*first, *last + 1, *size};
}

const char* AnswerReader::take(std::string_view line) {
  taken_ += line.size();
  if (taken_ > kMostHeads) return "sends headers without end";
  // Behind the bytes more fields may come, which change nothing.
  if (complete_) return nullptr;
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (!begun_) return take_status(line);
  if (line.empty()) return end_head();
  if (line.front() == ' ' || line.front() == '\t') return "breaks a header over two lines";
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return "sends a header without a colon";
  const std::string_view value = trim(line.substr(colon + 1));
  if (value.size() > kMostValue) return "sends a header that is too long";
  return take_field(to_lower(line.substr(0, colon)), value);
}

const char* AnswerReader::take_status(std::string_view line) {
  const auto blank = line.find(' ');
  const bool is_http = line.rfind("HTTP/", 0) == 0 && blank != std::string_view::npos;
  const auto status = is_http ? parse_uint(line.substr(blank + 1, 3)) : std::nullopt;
  if (!status || *status < 100 || *status > 999) return "sends no status that HTTP knows";
  head_.status = static_cast<unsigned>(*status);
  begun_ = true;
  return nullptr;
}

const char* AnswerReader::take_field(std::string_view name, std::string_view value) {
  struct Field {
    std::string_view name;
    std::string& value;
  };
  const Field fields[] = {{"content-length", length_},
                          {"content-range", range_},
                          {"etag", etag_},
                          {"last-modified", head_.last_modified},
                          {"date", head_.date},
                          {"location", head_.location},
                          {"content-encoding", head_.encoding}};
  for (const Field& field : fields) {
    if (name != field.name || value.empty()) continue;
    if (!field.value.empty() && field.value != value) return "says one header twice, differently";
    field.value = value;
  }
  return nullptr;
}

const char* AnswerReader::end_head() {
  // Of a protocol that it would change to: nothing asked for one.
  if (head_.status == 101) return "changes to another protocol";
  if (head_.status < 200) {
    head_ = {};
    length_.clear(), range_.clear(), etag_.clear();
    begun_ = false;
    return nullptr;
  }
  complete_ = true;
  if (!length_.empty() && !is_size(head_.length = parse_uint(length_)))
    return "sends a Content-Length that is no number";
  if (!range_.empty() && !(head_.range = ContentRange::parse(range_)))
    return "sends a Content-Range that is none";
  if (is_strong_tag(etag_)) head_.etag = etag_;
  if (!is_date(head_.last_modified)) head_.last_modified.clear();
  return nullptr;
}

}  // namespace bellows
