// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/control_request.h"

#include <nlohmann/json.hpp>

namespace bellows {

using nlohmann::json;

Result<Input> parse_request(const ControlServer::Request& request) {
  const json message = json::parse(request.line, nullptr, false);
  const auto is = [&message](const char* key, const json& value) {
    return message.is_object() && message.contains(key) && message[key] == value;
  };
  if (is("cmd", "status")) return Input(input::StatusRequest{request.client});
  if (!is("cmd", "stop"))
    return Error{ErrorKind::invalid, "the launcher does not know this command"};
  input::StopRequest stop{
      .client = request.client, .hold = is("hold", true), .from_scratch = is("from_scratch", true)};
  // Neither is ever 0, so text that is not a number, which reads as 0, is refused too.
  if (auto gpus = message.find("gpus"); gpus != message.end())
    stop.gpus = gpus->is_number_unsigned() ? gpus->get<std::uint64_t>() : 0;
  if (auto batch = message.find("batch"); batch != message.end())
    stop.batch = batch->is_number_unsigned() ? batch->get<std::uint64_t>() : 0;
  return Input(stop);
}

}  // namespace bellows
