// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/rank_message.h"

#include <cstring>
#include <utility>

namespace bellows {
namespace {

Error bad(const char* what) {
  return Error{ErrorKind::invalid, std::string("a rank sent ") + what};
}

Result<RankMessage> parse_hello(std::string_view body) {
  request::Hello message;
  wire::Hello& hello = message.hello;
  if (body.size() < sizeof hello) return bad("a hello that is too short");
  std::memcpy(&hello, body.data(), sizeof hello);
  message.belongs = body.substr(sizeof hello);
  if (hello.world < 1 || hello.world > static_cast<std::int32_t>(wire::kMostWorld) ||
      hello.rank < 0 || hello.rank >= hello.world) {
    return bad("a rank outside its world");
  }
  if (message.belongs.empty()) return bad("a hello that names neither an attempt nor a directory");
  return RankMessage(std::move(message));
}

Result<RankMessage> parse_array(std::string_view body) {
  request::Array message;
  ArrayPart& part = message.part;
  if (body.size() < sizeof part.array) return bad("an array that is too short");
  std::memcpy(&part.array, body.data(), sizeof part.array);
  part.name = body.substr(sizeof part.array);
  if (auto status = check_part(part); !status) return status.error();
  return RankMessage(std::move(message));
}

wire::Bye bye_of(std::uint64_t value) {
  if (value == wire::Bye::exits) return wire::Bye::exits;
  return value == wire::Bye::finishes ? wire::Bye::finishes : wire::Bye::stops;
}

/// Of a message that is nothing but its head.
Result<RankMessage> parse_head(const wire::Head& head) {
  const bool no_step = head.step == wire::kNoStep;
  switch (head.op) {
    case wire::Op::layout:
      if (head.value > wire::kMostArrays) return bad("too many arrays");
      return RankMessage(request::Layout{head.value});
    case wire::Op::save_begin:
      if (no_step) return bad("an invalid step");
      return RankMessage(request::SaveBegin{head.step});
    case wire::Op::save_ready:
      if (no_step) return bad("an invalid step");
      return RankMessage(request::SaveReady{head.step, head.value != wire::Ready::could_not_copy});
    case wire::Op::restore:
      return RankMessage(request::Restore{head.value == wire::Restore::whole});
    case wire::Op::taken:
      return RankMessage(request::Taken{head.value == wire::Taken::all_blocks});
    case wire::Op::reserve:
      return RankMessage(request::Reserve{});
    case wire::Op::bye:
      return RankMessage(request::Bye{bye_of(head.value)});
    default:
      return bad("a message that only an agent may send");
  }
}

}  // namespace

Result<RankMessage> parse_rank_message(std::string_view bytes) {
  wire::Head head;
  if (bytes.size() < sizeof head) return bad("a message that is too short");
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::string_view body = bytes.substr(sizeof head);
  if (head.version != wire::kVersion) return bad("a message of another version of the protocol");
  if (head.length != body.size()) return bad("a message that is cut off");
  if (head.op == wire::Op::hello) return parse_hello(body);
  if (head.op == wire::Op::array) return parse_array(body);
  auto message = parse_head(head);
  if (message && !body.empty()) return bad("a message that is too long");
  return message;
}

std::optional<std::uint32_t> other_version(std::string_view bytes) {
  wire::Head head;
  if (bytes.size() < sizeof head) return {};
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.op != wire::Op::hello || head.version == wire::kVersion) return {};
  return head.version;
}

}  // namespace bellows
