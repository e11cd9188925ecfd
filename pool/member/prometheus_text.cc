// SPDX-License-Identifier: Apache-2.0
#include "pool/member/prometheus_text.h"

#include <charconv>

#include "common/text.h"

namespace bellows::pool {
namespace {

/// Milliseconds: 30,000 years, so that no difference of two overflows.
constexpr std::int64_t kMostTimestamp = 1'000'000'000'000'000;

enum class Kind { counter, gauge, parts, untyped };
using Kinds = std::map<std::string, Kind, std::less<>>;

struct Sample {
  std::string_view name;
  double value = 0;
  bool part = false;  ///< a bucket or a quantile
  std::optional<std::int64_t> timestamp_ms;
};

bool is_blank(char c) { return c == ' ' || c == '\t'; }

bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

/// Takes one line apart, from its beginning.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
  }
  bool at_end() const { return rest_.empty(); }

  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  /// Empty: there is none here.
  std::string_view name() {
    std::size_t length = 0;
    while (length < rest_.size() && (starts_name(rest_[length]) ||
                                     (length > 0 && rest_[length] >= '0' && rest_[length] <= '9')))
      ++length;
    return cut(length);
  }

  std::string_view word() {
    std::size_t length = 0;
    while (length < rest_.size() && !is_blank(rest_[length])) ++length;
    return cut(length);
  }

  /// Between quotes; a backslash, a quote or an end of line in it is escaped.
  bool quoted() {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (c == '\\' && !take('\\') && !take('"') && !take('n')) return false;
    }
    return false;
  }

 private:
  std::string_view cut(std::size_t length) {
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return taken;
  }

  std::string_view rest_;
};

std::optional<double> read_value(std::string_view word) {
  if (word.starts_with('+') && !word.starts_with("+-")) word.remove_prefix(1);
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

bool read_timestamp(std::string_view word, Sample& sample) {
  std::int64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, value);
  sample.timestamp_ms = value;
  return read.ec == std::errc() && read.ptr == end && value <= kMostTimestamp &&
         value >= -kMostTimestamp;
}

bool read_labels(LineReader& line, Sample& sample) {
  for (std::size_t count = 0; !line.take('}'); ++count) {
    const std::string_view label = line.name();
    if (label.empty() || count == PrometheusText::kMostLabels) return false;
    sample.part |= label == "le" || label == "quantile";
    line.skip_blanks();
    if (!line.take('=')) return false;
    line.skip_blanks();
    if (!line.quoted()) return false;
    line.skip_blanks();
    const bool more = line.take(',');
    line.skip_blanks();
    if (!more) return line.take('}');
  }
  return true;
}

/// False: the line is wrong, with its name where that could be read.
bool read_sample(std::string_view text, Sample& sample) {
  LineReader line(text);
  line.skip_blanks();
  sample.name = line.name();
  if (sample.name.empty()) return false;
  line.skip_blanks();
  if (line.take('{')) {
    line.skip_blanks();
    if (!read_labels(line, sample)) return false;
    line.skip_blanks();
  }
  const auto value = read_value(line.word());
  if (!value) return false;
  sample.value = *value;
  line.skip_blanks();
  if (line.at_end()) return true;
  if (!read_timestamp(line.word(), sample)) return false;
  line.skip_blanks();
  return line.at_end();
}

bool is_wanted(std::string_view name, const MetricNames& names) {
  return names.contains(name) || names.contains(std::string(name) + "_sum") ||
         names.contains(std::string(name) + "_count");
}

/// HELP is for people, and any other comment is one. False: TYPE is wrong.
bool read_comment(std::string_view text, const MetricNames& names, Kinds& kinds) {
  LineReader line(text);
  line.skip_blanks();
  if (line.word() != "TYPE") return true;
  line.skip_blanks();
  const std::string_view name = line.name();
  line.skip_blanks();
  const std::string_view word = line.word();
  line.skip_blanks();
  Kind kind = Kind::untyped;
  if (word == "counter")
    kind = Kind::counter;
  else if (word == "gauge")
    kind = Kind::gauge;
  else if (word == "histogram" || word == "summary")
    kind = Kind::parts;
  else if (word != "untyped")
    return false;
  if (name.empty() || !line.at_end()) return false;
  return !is_wanted(name, names) || kinds.emplace(name, kind).second;
}

bool is_counter(std::string_view name, const Kinds& kinds) {
  if (const auto own = kinds.find(name); own != kinds.end() && own->second != Kind::untyped)
    return own->second == Kind::counter;
  for (const std::string_view ending : {"_sum", "_count"}) {
    if (!name.ends_with(ending)) continue;
    const auto whole = kinds.find(name.substr(0, name.size() - ending.size()));
    if (whole != kinds.end() && whole->second == Kind::parts) return true;
  }
  return name.ends_with("_total");
}

void add(const Sample& sample, bool right, PrometheusText& read) {
  PrometheusMetric& metric = read.metrics[std::string(sample.name)];
  if (!right) {
    metric.wrong = true;
    return;
  }
  metric.value += sample.value;
  if (sample.timestamp_ms && (!metric.oldest_ms || *sample.timestamp_ms < *metric.oldest_ms))
    metric.oldest_ms = sample.timestamp_ms;
}

}  // namespace

PrometheusText read_prometheus_text(std::string_view text, const MetricNames& names) {
  PrometheusText read;
  Kinds kinds;
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    // What has no end of line was cut off, and what is too long is not looked at further.
    const bool whole = end != std::string_view::npos && line.size() <= PrometheusText::kMostLine;
    line = line.substr(0, PrometheusText::kMostLine);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string_view said = trim(line);
    if (said.empty()) continue;
    if (said.front() == '#') {
      read.wrong_lines += !(read_comment(said.substr(1), names, kinds) && whole);
      continue;
    }
    Sample sample;
    const bool right = read_sample(line, sample) && whole;
    read.wrong_lines += !right;
    if (++read.samples > PrometheusText::kMostSamples) {
      read.metrics.clear();
      read.too_many = true;
      return read;
    }
    if (names.contains(sample.name) && !(right && sample.part)) add(sample, right, read);
  }
  for (auto& [name, metric] : read.metrics) metric.counter = is_counter(name, kinds);
  return read;
}

}  // namespace bellows::pool
