// SPDX-License-Identifier: Apache-2.0
#include "elastic/wire/message.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "common/contract.h"
#include "common/pool_option.h"
#include "common/text.h"

namespace bellows {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostGpus = 1 << 20;
constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 40;
constexpr double kLongestStep = 30 * 86400.0;
constexpr double kShortestPause = 0.1;
constexpr double kLongestPause = 600;
constexpr std::size_t kMostText = 512;
constexpr std::array kStates = {"starting", "running", "stopping"};

/// Takes values out of an object and keeps the first complaint.
class Fields {
 public:
  Fields(std::string_view text, const char* what)
      : what_(what), object_(json::parse(text, nullptr, false)) {
    if (!object_.is_object()) fail("it is not a JSON object");
  }
  explicit Fields(const json& object, const char* what) : what_(what), object_(object) {
    if (!object_.is_object()) fail("it is not a JSON object");
  }

  std::uint64_t whole(const char* key, std::uint64_t most) {
    const json* value = find(key);
    if (!value) return 0;
    if (value->is_number_unsigned() && value->get<std::uint64_t>() <= most)
      return value->get<std::uint64_t>();
    fail(fmt::format("\"{}\" is not a whole number of {} at most", key, most));
    return 0;
  }
  double seconds(const char* key, double most) {
    const json* value = find(key);
    const double number = value && value->is_number() ? value->get<double>() : -1;
    // Also false for what is not a number.
    if (!value || (number >= 0 && number <= most)) return value ? number : 0;
    fail(fmt::format("\"{}\" is not a number of seconds from 0 to {}", key, most));
    return 0;
  }
  std::string text(const char* key) {
    const json* value = find(key);
    if (!value) return "";
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kMostText) {
      fail(fmt::format("\"{}\" is not a text of {} bytes at most", key, kMostText));
      return "";
    }
    return one_line(value->get_ref<const std::string&>());
  }
  bool flag(const char* key) {
    const json* value = find(key);
    if (value && !value->is_boolean()) fail(fmt::format("\"{}\" is not true or false", key));
    return value && value->is_boolean() && value->get<bool>();
  }
  /// Of numbers above 0.
  std::vector<std::uint32_t> numbers(const char* key, std::size_t most) {
    std::vector<std::uint32_t> numbers;
    const json* list = find(key);
    if (!list) return numbers;
    const bool fits = list->is_array() && list->size() <= most;
    if (!fits || !std::all_of(list->begin(), list->end(), is_number)) {
      fail(fmt::format("\"{}\" is not a list of {} numbers at most", key, most));
      return numbers;
    }
    for (const json& value : *list) numbers.push_back(value.get<std::uint32_t>());
    return numbers;
  }
  const json* object(const char* key) { return find(key); }
  bool has(const char* key) { return find(key) != nullptr; }
  void fail(std::string_view why) {
    if (!error_) error_ = Error{ErrorKind::invalid, fmt::format("{} is not valid: {}", what_, why)};
  }
  const std::optional<Error>& error() const { return error_; }
  void take_error(const Fields& inner) {
    if (inner.error_ && !error_) error_ = inner.error_;
  }

 private:
  static bool is_number(const json& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() > 0 &&
           value.get<std::uint64_t>() <= UINT32_MAX;
  }
  const json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto value = object_.find(key);
    return value == object_.end() || value->is_null() ? nullptr : &*value;
  }
  const char* what_;
  json object_;
  std::optional<Error> error_;
};

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

const char* path_of(Call call) {
  switch (call) {
    case Call::report:
      return "/v1/report";
    case Call::plan:
      return "/v1/plan";
    case Call::service:
      return "/v1/service";
  }
  return "";
}

Result<RunReport> parse_report(std::string_view text) {
  Fields in(text, "the report");
  RunReport report;
  report.job = static_cast<std::uint32_t>(in.whole("job", UINT32_MAX));
  report.restarts = static_cast<std::uint32_t>(in.whole("restarts", UINT32_MAX));
  report.gpus = static_cast<std::uint32_t>(in.whole("gpus", kMostGpus));
  report.nodes = static_cast<std::uint32_t>(in.whole("nodes", kMostGpus));
  report.step = in.whole("step", INT64_MAX);
  report.step_s = in.seconds("step_s", kLongestStep);
  report.batch = in.whole("batch", BatchRange::kMost);
  report.noise_scale = in.whole("noise_scale", kMostSamples);
  report.saving = in.flag("saving");
  const std::string state = in.text("state");
  std::size_t s = 0;
  while (s < kStates.size() && state != kStates[s]) ++s;
  if (s == kStates.size()) in.fail("\"state\" is none that is known");
  report.state = static_cast<RunReport::State>(s);
  if (report.job == 0) in.fail("it names no job");
  if (const json* answer = in.object("answer")) {
    Fields words(*answer, "the answer in the report");
    report.answer =
        OrderAnswer{words.text("order"), words.flag("committed"), std::nullopt, words.text("why")};
    if (words.has("step")) report.answer->step = words.whole("step", INT64_MAX);
    in.take_error(words);
  }
  if (in.error()) return *in.error();
  return report;
}

std::string to_json(const RunReport& report) {
  json out = {{"job", report.job},
              {"restarts", report.restarts},
              {"state", kStates[static_cast<std::size_t>(report.state)]},
              {"gpus", report.gpus},
              {"nodes", report.nodes},
              {"step", report.step},
              {"step_s", report.step_s},
              {"batch", report.batch},
              {"noise_scale", report.noise_scale},
              {"saving", report.saving}};
  if (const auto& answer = report.answer) {
    out["answer"] = {{"order", answer->order}, {"committed", answer->committed}};
    if (answer->step) out["answer"]["step"] = *answer->step;
    if (!answer->why.empty()) out["answer"]["why"] = one_line(answer->why, kMostText);
  }
  return dump(out);
}

Result<ReportReply> parse_reply(std::string_view text) {
  Fields in(text, "bellowsd's reply");
  ReportReply reply;
  reply.again_s = std::max(in.seconds("again_s", kLongestPause), kShortestPause);
  if (const json* order = in.object("order")) {
    Fields words(*order, "the order in bellowsd's reply");
    reply.order =
        Order{words.text("id"), static_cast<std::uint32_t>(words.whole("gpus", kMostGpus)),
              words.whole("batch", BatchRange::kMost)};
    if (reply.order->id.empty() || reply.order->gpus == 0) words.fail("it names no id or no GPUs");
    in.take_error(words);
  }
  if (in.error()) return *in.error();
  return reply;
}

std::string to_json(const ReportReply& reply) {
  json out = {{"again_s", reply.again_s}};
  if (reply.order)
    out["order"] = {
        {"id", reply.order->id}, {"gpus", reply.order->gpus}, {"batch", reply.order->batch}};
  return dump(out);
}

Result<ServiceReport> parse_service_report(std::string_view text) {
  Fields in(text, "the report of a pool");
  ServiceReport report;
  report.job = static_cast<std::uint32_t>(in.whole("job", UINT32_MAX));
  report.wanted = static_cast<std::uint32_t>(in.whole("wanted", kMostPoolMembers));
  report.leaving = in.numbers("leaving", ServiceReport::kMostLeaving);
  if (report.job == 0) in.fail("it names no job");
  if (in.error()) return *in.error();
  return report;
}

std::string to_json(const ServiceReport& report) {
  std::vector<std::uint32_t> leaving = report.leaving;
  leaving.resize(std::min(leaving.size(), ServiceReport::kMostLeaving));
  return dump({{"job", report.job}, {"wanted", report.wanted}, {"leaving", leaving}});
}

Result<ServiceReply> parse_service_reply(std::string_view text) {
  Fields in(text, "bellowsd's reply");
  ServiceReply reply;
  reply.again_s = std::max(in.seconds("again_s", kLongestPause), kShortestPause);
  if (in.has("members"))
    reply.members = static_cast<std::uint32_t>(in.whole("members", kMostPoolMembers));
  if (in.error()) return *in.error();
  return reply;
}

std::string to_json(const ServiceReply& reply) {
  json out = {{"again_s", reply.again_s}};
  if (reply.members) out["members"] = *reply.members;
  return dump(out);
}

}  // namespace bellows
