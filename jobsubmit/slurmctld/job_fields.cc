// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/job_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "jobsubmit/slurmctld/job_desc.h"

namespace bellows {
namespace {

/// As much as a script can read of a field.
constexpr std::size_t kMostText = 4096;
constexpr std::int64_t kMostNumber = NO_VAL - 1;

using Value = std::optional<LuaValue>;

/// A field, how to read it and how to write it. Without `set` it is read only; `set` clears for
/// nothing.
struct Field {
  const char* name;
  LuaKind kind;
  Value (*get)(const job_desc_msg_t& desc, const JobFacts& facts);
  void (*set)(job_desc_msg_t& desc, const Value& value) = nullptr;
  std::int64_t least = 0;  ///< of a number
  bool unlimited = false;  ///< a number may also be INFINITE
};

LuaValue shown_as(const std::string& text) { return text; }
LuaValue shown_as(std::uint32_t number) { return std::int64_t{number}; }
LuaValue shown_as(bool flag) { return flag; }

template <auto Fact>
Value fact(const job_desc_msg_t&, const JobFacts& facts) {
  if (!(facts.*Fact)) return std::nullopt;
  return shown_as(*(facts.*Fact));
}

template <auto Text>
Value text(const job_desc_msg_t& desc, const JobFacts&) {
  if (!(desc.*Text)) return std::nullopt;
  return std::string(desc.*Text);
}

template <auto Text>
void write_text(job_desc_msg_t& desc, const Value& value) {
  set_text(desc.*Text, value ? std::get<std::string>(*value) : "");
}

template <auto Number>
Value number(const job_desc_msg_t& desc, const JobFacts&) {
  const std::uint32_t number = desc.*Number;
  if (number == NO_VAL || number == INFINITE) return std::nullopt;
  return std::int64_t{number};
}

/// Slurm has 0 in these where nothing was said.
template <auto Number>
Value count(const job_desc_msg_t& desc, const JobFacts& facts) {
  return desc.*Number == 0 ? std::nullopt : number<Number>(desc, facts);
}

template <auto Number>
void write_number(job_desc_msg_t& desc, const Value& value) {
  desc.*Number = value ? static_cast<std::uint32_t>(std::get<std::int64_t>(*value)) : NO_VAL;
}

/// No limit is more than any: a script that compares must not take it for nothing.
Value time_limit(const job_desc_msg_t& desc, const JobFacts&) {
  if (desc.time_limit == NO_VAL) return std::nullopt;
  return std::int64_t{desc.time_limit};
}

Value requeue(const job_desc_msg_t& desc, const JobFacts&) {
  if (desc.requeue == NO_VAL16) return std::nullopt;
  return desc.requeue != 0;
}

void write_requeue(job_desc_msg_t& desc, const Value& value) {
  desc.requeue = value ? static_cast<std::uint16_t>(std::get<bool>(*value)) : NO_VAL16;
}

/// What --constraint asks for together. What is in brackets is one: [rack1|rack2]&fast.
Value features(const job_desc_msg_t& desc, const JobFacts&) {
  if (!desc.features) return std::nullopt;
  LuaList list;
  std::string item;
  int depth = 0;
  const auto end_item = [&] {
    if (!item.empty()) list.push_back(std::exchange(item, ""));
  };
  for (const char c : std::string_view(desc.features)) {
    depth += (c == '[' || c == '(') - (c == ']' || c == ')');
    if (depth <= 0 && (c == '&' || c == ','))
      end_item();
    else
      item += c;
  }
  end_item();
  return list;
}

void write_features(job_desc_msg_t& desc, const Value& value) {
  set_text(desc.features,
           value ? fmt::format("{}", fmt::join(std::get<LuaList>(*value), "&")) : "");
}

/// As slurmctld itself does when a job starts, this may ask the name service.
Value name_of_user(const job_desc_msg_t&, const JobFacts& facts) {
  if (!facts.user_id) return std::nullopt;
  std::string name = facts.user_name.empty() ? owner_name(*facts.user_id) : facts.user_name;
  if (name.empty()) return std::nullopt;
  return name;
}

using D = job_desc_msg_t;
using F = JobFacts;

constexpr Field kFields[] = {
    {"account", LuaKind::text, fact<&F::account>, write_text<&D::account>},
    {"array", LuaKind::text, fact<&F::array>},
    {"batch", LuaKind::flag, fact<&F::batch>},
    {"comment", LuaKind::text, text<&D::comment>, write_text<&D::comment>},
    {"features", LuaKind::list, features, write_features},
    {"framework", LuaKind::text, fact<&F::framework>},
    {"framework_version", LuaKind::text, fact<&F::framework_version>},
    {"gpus", LuaKind::number, fact<&F::gpus>},
    {"gpus_min", LuaKind::number, fact<&F::gpus_min>},
    {"gpus_max", LuaKind::number, fact<&F::gpus_max>},
    {"gpus_range", LuaKind::text, fact<&F::gpus_range>},
    {"min_nodes", LuaKind::number, count<&D::min_nodes>, write_number<&D::min_nodes>, 1},
    {"max_nodes", LuaKind::number, count<&D::max_nodes>, write_number<&D::max_nodes>, 1},
    {"name", LuaKind::text, text<&D::name>, write_text<&D::name>},
    {"num_tasks", LuaKind::number, count<&D::num_tasks>, write_number<&D::num_tasks>, 1},
    {"partition", LuaKind::text, text<&D::partition>, write_text<&D::partition>},
    {"priority", LuaKind::number, number<&D::priority>, write_number<&D::priority>},
    {"qos", LuaKind::text, text<&D::qos>, write_text<&D::qos>},
    {"requeue", LuaKind::flag, requeue, write_requeue},
    {"reservation", LuaKind::text, text<&D::reservation>, write_text<&D::reservation>},
    {"time_limit", LuaKind::number, time_limit, write_number<&D::time_limit>, 1, true},
    {"user_id", LuaKind::number, fact<&F::user_id>},
    {"user_name", LuaKind::text, name_of_user},
};

std::vector<LuaField> shown_fields() {
  std::vector<LuaField> shown;
  for (const Field& field : kFields)
    shown.push_back({field.name, field.kind, field.set != nullptr});
  return shown;
}

/// Into Slurm's heap and its state file goes nothing that would end a text or a line of a log.
bool is_plain(std::string_view text) {
  return text.size() <= kMostText && std::none_of(text.begin(), text.end(), is_control);
}

/// Why a field cannot have a value, or "".
struct Check {
  const Field& field;
  std::string operator()(const std::string& text) const {
    return is_plain(text)
               ? ""
               : fmt::format("a text of a job has at most {} bytes, and no control bytes",
                             kMostText);
  }
  std::string operator()(std::int64_t number) const {
    const bool fits = number >= field.least && number <= kMostNumber;
    return fits || (field.unlimited && number == INFINITE)
               ? ""
               : fmt::format("a number from {} to {}, not {}", field.least, kMostNumber, number);
  }
  std::string operator()(bool) const { return ""; }
  std::string operator()(const LuaList& list) const {
    std::size_t size = 0;
    for (const std::string& item : list) {
      size += item.size() + 1;
      if (item.empty() || !is_plain(item) || size > kMostText)
        return fmt::format(
            "a list of a job has texts of at most {} bytes together, none of them "
            "empty, and no control bytes",
            kMostText);
    }
    return "";
  }
};

/// Slurm has no empty texts: they are as if there were none.
struct IsEmpty {
  bool operator()(const std::string& text) const { return text.empty(); }
  bool operator()(const LuaList& list) const { return list.empty(); }
  bool operator()(std::int64_t) const { return false; }
  bool operator()(bool) const { return false; }
};

}  // namespace

std::span<const LuaField> JobFields::table() {
  static const std::vector<LuaField> fields = shown_fields();
  return fields;
}

JobFields::JobFields(const job_desc_msg_t& desc, JobFacts facts, Access access)
    : desc_(desc), facts_(std::move(facts)), access_(access) {}

std::optional<LuaValue> JobFields::get(std::size_t index) const {
  const auto written = written_.find(index);
  return written == written_.end() ? kFields[index].get(desc_, facts_) : written->second;
}

Status JobFields::set(std::size_t index, std::optional<LuaValue> value) {
  if (access_ == Access::read)
    return Error{ErrorKind::invalid, "the job as it stands can't be changed; write to change"};
  if (value && std::visit(IsEmpty{}, *value)) value.reset();
  if (value) {
    std::string wrong = std::visit(Check{kFields[index]}, *value);
    if (!wrong.empty()) return Error{ErrorKind::invalid, std::move(wrong)};
  }
  written_[index] = std::move(value);
  return {};
}

std::vector<std::string> JobFields::written() const {
  std::vector<std::string> names;
  for (const auto& [index, value] : written_) names.emplace_back(kFields[index].name);
  return names;
}

bool JobFields::any() const {
  return std::any_of(std::begin(kFields), std::end(kFields),
                     [&](const Field& field) { return field.get(desc_, facts_).has_value(); });
}

void JobFields::apply(job_desc_msg_t& desc) const {
  for (const auto& [index, value] : written_) kFields[index].set(desc, value);
}

}  // namespace bellows
