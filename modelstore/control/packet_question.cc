// SPDX-License-Identifier: Apache-2.0
#include "modelstore/control/packet_question.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "common/plain/packet.h"

namespace bellows {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{20};

}  // namespace

ErrorKind kind_of(modelwire::Failure failure) {
  switch (failure) {
    case modelwire::Failure::not_found:
      return ErrorKind::not_found;
    case modelwire::Failure::invalid:
      return ErrorKind::invalid;
    case modelwire::Failure::no_room:
      return ErrorKind::busy;
    case modelwire::Failure::corrupt:
      return ErrorKind::corrupt;
    default:
      return ErrorKind::unavailable;
  }
}

Error store_unavailable(std::string_view what, int failure) {
  return Error{ErrorKind::unavailable,
               failure == ETIMEDOUT || failure == EAGAIN
                   ? fmt::format("bellows-modeld: {}: no answer in time", what)
                   : fmt::format("bellows-modeld: {}: {}", what, std::strerror(failure))};
}

Error store_nonsense(const char* wrong) {
  return Error{ErrorKind::unavailable,
               fmt::format("the answer of bellows-modeld makes no sense: {}", wrong)};
}

std::string digest_text(const std::uint8_t (&digest)[modelwire::kDigestBytes]) {
  std::string text;
  for (const std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

int ms_until(StoreClock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - StoreClock::now());
  // A socket's limit of 0 is none.
  return static_cast<int>(std::max<std::int64_t>(left.count(), 1));
}

Result<Fd> connect_to_modeld(const std::string& path, StoreClock::time_point deadline,
                             std::chrono::milliseconds restart) {
  const auto last_try = std::min(deadline, StoreClock::now() + restart);
  for (;;) {
    plain::Handle socket;
    const int failure = plain::connect_to(path.c_str(), &socket, ms_until(deadline));
    if (failure == 0) return Fd(socket.release());
    if (failure != ECONNREFUSED || StoreClock::now() > last_try)
      return store_unavailable(path, failure);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Result<std::size_t> ask_packet(int socket, const void* request, std::size_t size, int passed,
                               void* answer, std::size_t most, StoreClock::time_point deadline) {
  const iovec part = {const_cast<void*>(request), size};
  int failure = plain::send_packet(socket, &part, 1, passed, 0);
  if (failure != 0) return store_unavailable("asking", failure);
  int ready;
  do {
    pollfd p = {socket, POLLIN, 0};
    ready = poll(&p, 1, ms_until(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0)
    return store_unavailable("waiting for its answer", ready == 0 ? ETIMEDOUT : errno);
  const iovec into = {answer, most};
  std::size_t got = 0;
  failure = plain::receive_packet(socket, &into, 1, &got, nullptr, 0);
  if (failure != 0) return store_unavailable("reading its answer", failure);
  return got;
}

}  // namespace bellows
