// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/kept_seats.h"

#include <fmt/core.h>

#include <cstring>
#include <map>
#include <utility>

#include "common/keeper/keeper_wire.h"
#include "common/plain/packet.h"
#include "paramserver/server/apply_rule.h"

namespace bellows::ps {
namespace {

enum Part : std::uint64_t { control = 0, weights = 1, states = 2, tensors = 3 };
enum SeatPart : std::uint64_t { slot = 0, bell = 1, process = 2 };

constexpr std::uint64_t kSeats = 16;
constexpr std::uint64_t kPartsOfSeat = 4;

struct MemoryRecord {
  RuleTerms terms;
  std::uint64_t tensor_count;
};

std::uint64_t key_of(std::uint32_t learner, std::uint64_t part) {
  return kSeats + learner * kPartsOfSeat + part;
}

template <typename Record>
std::string_view bytes_of(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

template <typename Record>
std::optional<Record> record_of(const KeeperMessage& message) {
  if (message.length != sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, message.record, sizeof record);
  return record;
}

Error keeper_error(int error) {
  return Error{ErrorKind::unavailable,
               fmt::format("the process that keeps bellows-ps's memory: {}", std::strerror(error))};
}

void take_item(const KeeperMessage& message, Fd fd, Inheritance* left,
               std::map<std::uint32_t, Inheritance::KeptSeat>* seats) {
  if (message.key < kSeats) {
    Fd* const places[] = {&left->files.control, &left->files.weights, &left->files.states,
                          &left->tensors};
    if (message.key < std::size(places)) *places[message.key] = std::move(fd);
    if (const auto record = record_of<MemoryRecord>(message)) {
      left->terms = record->terms;
      left->tensor_count = record->tensor_count;
    }
    return;
  }
  const auto record = record_of<Identity>(message);
  if (!record || record->learner != (message.key - kSeats) / kPartsOfSeat) return;
  Inheritance::KeptSeat& seat = (*seats)[record->learner];
  seat.who = *record;
  Fd* const places[] = {&seat.slot, &seat.bell, &seat.process};
  const std::uint64_t part = (message.key - kSeats) % kPartsOfSeat;
  if (part < std::size(places)) *places[part] = std::move(fd);
}

}  // namespace

Status SeatKeeper::send(KeeperWord word, std::uint64_t key, std::string_view record, int fd) {
  if (!socket_) return {};
  KeeperMessage message;
  message.word = word;
  message.key = key;
  message.length = static_cast<std::uint32_t>(record.size());
  std::memcpy(message.record, record.data(), record.size());
  const iovec part = {&message, sizeof message};
  const int error = plain::send_packet(socket_.get(), &part, 1, fd, 0);
  return error == 0 ? Status() : Status(keeper_error(error));
}

Status SeatKeeper::sync() {
  if (!socket_) return {};
  if (auto sent = send(KeeperWord::sync, 0, "", -1); !sent) return sent;
  KeeperMessage message;
  const iovec part = {&message, sizeof message};
  std::size_t got = 0;
  const int error = plain::receive_packet(socket_.get(), &part, 1, &got, nullptr, 0);
  return error == 0 ? Status() : Status(keeper_error(error));
}

Result<std::optional<Inheritance>> SeatKeeper::get() {
  if (!socket_) return std::optional<Inheritance>();
  if (auto sent = send(KeeperWord::get, 0, "", -1); !sent) return sent.error();
  Inheritance left;
  std::map<std::uint32_t, Inheritance::KeptSeat> seats;
  for (;;) {
    KeeperMessage message;
    plain::Handle fd;
    const iovec part = {&message, sizeof message};
    std::size_t got = 0;
    const int error = plain::receive_packet(socket_.get(), &part, 1, &got, &fd, 0);
    if (error != 0) return keeper_error(error);
    if (!message.is_sound(got)) return keeper_error(EPROTO);
    if (message.word == KeeperWord::end) break;
    take_item(message, Fd(fd.release()), &left, &seats);
  }
  if (!left.files.control || !left.files.weights || !left.tensors)
    return std::optional<Inheritance>();
  if (left.tensor_count > PsMessage::kMostTensors || !check_terms(left.terms))
    return Error{ErrorKind::corrupt,
                 "what the parameter server that ended has left makes no sense"};
  // A seat of which a part is missing was never granted, or is given back. Nobody else drops it.
  for (auto& [learner, seat] : seats)
    if (seat.slot && seat.bell && seat.process)
      left.seats.push_back(std::move(seat));
    else if (auto dropped = drop_seat(learner); !dropped)
      return dropped.error();
  return std::optional<Inheritance>(std::move(left));
}

Status SeatKeeper::put_memory(const MemoryFiles& files, const Fd& counts,
                              std::uint64_t tensor_count, const RuleTerms& terms) {
  const MemoryRecord record = {terms, tensor_count};
  const auto put = KeeperWord::put;
  const std::pair<std::uint64_t, const Fd*> parts[] = {{Part::weights, &files.weights},
                                                       {Part::states, &files.states},
                                                       {Part::tensors, &counts},
                                                       // Last: without it there is no memory.
                                                       {Part::control, &files.control}};
  for (const auto& [key, fd] : parts)
    if (*fd)
      if (auto sent = send(put, key, bytes_of(record), fd->get()); !sent) return sent;
  return sync();
}

Status SeatKeeper::put_seat(const Seat& seat) {
  const Identity& who = seat.joined.member.who;
  const int fds[] = {seat.joined.slot->file().get(), seat.joined.bell->get(), seat.process->get()};
  for (const std::uint64_t part : {SeatPart::slot, SeatPart::bell, SeatPart::process})
    if (auto sent = send(KeeperWord::put, key_of(who.learner, part), bytes_of(who), fds[part]);
        !sent)
      return sent;
  return sync();
}

Status SeatKeeper::drop_seat(std::uint32_t learner) {
  for (const std::uint64_t part : {SeatPart::slot, SeatPart::bell, SeatPart::process})
    if (auto sent = send(KeeperWord::drop, key_of(learner, part), "", -1); !sent) return sent;
  return sync();
}

}  // namespace bellows::ps
