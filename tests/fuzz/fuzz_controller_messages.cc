// SPDX-License-Identifier: Apache-2.0
/// What launchers, keepers and bellowsd may be told by anybody on the network: a report, a reply or
/// an address is refused with a sentence, or is within its limits and reads back as it is.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/controller_address.h"
#include "elastic/wire/message.h"

namespace {

using namespace bellows;

void require(bool holds) {
  if (!holds) std::abort();
}

void refused(const Error& error) {
  require(error.kind == ErrorKind::invalid && !error.text.empty());
  require(error.text.find('\n') == std::string::npos);
}

void check_report(std::string_view text) {
  const auto report = parse_report(text);
  if (!report) return refused(report.error());
  require(report->job != 0 && std::isfinite(report->step_s) && report->step_s >= 0);
  require(!report->answer || report->answer->order.find('\n') == std::string::npos);
  const std::string line = to_json(*report);
  require(line.size() < kMostBody);
  const auto back = parse_report(line);
  require(back.ok() && to_json(*back) == line);
}

void check_reply(std::string_view text) {
  const auto reply = parse_reply(text);
  if (!reply) return refused(reply.error());
  require(reply->again_s >= 0.1 && reply->again_s <= 600);
  require(!reply->order || (reply->order->gpus > 0 && !reply->order->id.empty()));
  const auto back = parse_reply(to_json(*reply));
  require(back.ok() && to_json(*back) == to_json(*reply));
}

void check_service(std::string_view text) {
  if (const auto report = parse_service_report(text)) {
    require(report->job != 0 && report->leaving.size() <= ServiceReport::kMostLeaving);
    const std::string line = to_json(*report);
    require(line.size() < kMostBody);
    const auto back = parse_service_report(line);
    require(back.ok() && to_json(*back) == line);
  } else {
    refused(report.error());
  }
  const auto reply = parse_service_reply(text);
  if (!reply) return refused(reply.error());
  require(reply->again_s >= 0.1 && reply->again_s <= 600);
  const auto back = parse_service_reply(to_json(*reply));
  require(back.ok() && back->members == reply->members);
}

void check_address(std::string_view text) {
  const auto address = ControllerAddress::parse(text);
  if (!address) return refused(address.error());
  require(!address->hosts.empty());
  // It is a word of a contract.
  const std::string word = address->to_string();
  require(word.find_first_of(" \t\n=\"'") == std::string::npos);
  const auto back = ControllerAddress::parse(word);
  require(back.ok() && *back == *address);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_report(text);
  check_reply(text);
  check_service(text);
  check_address(text);
  return 0;
}
