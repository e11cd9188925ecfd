// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/rank_link.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include "checkpoint/include/bellows.h"
#include "common/plain/packet.h"

namespace bellows {

bool RankLink::send(wire::Head head, std::string_view text, int fd) {
  if (gone) return false;
  text = text.substr(0, wire::kMostText);
  head.length = static_cast<std::uint32_t>(text.size());
  const iovec pieces[2] = {{&head, sizeof head}, {const_cast<char*>(text.data()), text.size()}};
  return plain::send_packet(socket.get(), pieces, 2, fd, MSG_DONTWAIT) == 0;
}

bool RankLink::answer(wire::Op op, std::uint64_t step, std::uint64_t value, int fd) {
  wire::Head head;
  head.op = op;
  head.step = step;
  head.value = value;
  return send(head, {}, fd);
}

bool RankLink::answer_restored(std::uint64_t step, const SharedMemory& memory,
                               const BlockOffers& offers) {
  for (const OfferedSource& source : offers.sources) {
    if (!answer(wire::Op::source, 0, source.kind, source.fd.get())) return false;
  }
  memory.refuse_writers();
  wire::Head head;
  head.op = wire::Op::restored;
  head.step = step;
  head.value = 1;
  head.code = static_cast<std::int32_t>(offers.blocks.size());
  return send(head, {}, memory.fd());
}

bool RankLink::fail(std::int32_t code, std::string_view text, bool try_again) {
  wire::Head head;
  head.op = wire::Op::failed;
  head.code = code;
  head.value = try_again ? wire::Failure::try_again : wire::Failure::request;
  return send(head, text);
}

bool RankLink::fail_version(std::uint32_t version) {
  wire::Head head;
  head.version = version;
  head.op = wire::Op::failed;
  head.code = BELLOWS_ERR_AGENT;
  head.value = wire::Failure::request;
  const bool older = version < wire::kVersion;
  return send(head, fmt::format("the program's libbellows speaks version {} of the protocol, this "
                                "agent version {}: update {}",
                                version, wire::kVersion,
                                older ? "the program's libbellows" : "the bellows on this node"));
}

bool RankLink::fail_save(std::uint64_t step, const Error& error) {
  wire::Head head;
  head.op = wire::Op::failed;
  head.step = step;
  head.code = code_of(error.kind);
  head.value = wire::Failure::save_of_step;
  return send(head, error.text);
}

bool RankLink::answer_buffer(std::uint64_t step, std::size_t index, const SharedMemory& buffer,
                             bool is_new) {
  wire::Head head;
  head.op = wire::Op::buffer;
  head.step = step;
  head.value = buffer.size();
  head.code = static_cast<std::int32_t>(index);
  return send(head, {}, is_new ? buffer.fd() : -1);
}

std::int32_t code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
      return BELLOWS_ERR_INVALID;
    case ErrorKind::corrupt:
      return BELLOWS_ERR_CORRUPT;
    case ErrorKind::busy:
      return BELLOWS_ERR_FENCED;
    case ErrorKind::not_found:
    case ErrorKind::denied:
    case ErrorKind::unavailable:
    case ErrorKind::io:
    case ErrorKind::internal:
      break;
  }
  return BELLOWS_ERR_IO;
}

}  // namespace bellows
