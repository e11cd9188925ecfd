// SPDX-License-Identifier: Apache-2.0
#include "modelstore/control/control_client.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "common/plain/packet.h"

namespace bellows {
namespace {

using modelwire::ControlOp;
using modelwire::ControlReply;
using modelwire::ControlRequest;

constexpr std::chrono::milliseconds kBetweenTries{20};

template <std::size_t kBytes>
bool put(char (&field)[kBytes], std::uint32_t& length, const std::string& text) {
  if (text.size() >= kBytes) return false;
  std::memcpy(field, text.data(), text.size());
  length = static_cast<std::uint32_t>(text.size());
  return true;
}

Result<ControlRequest> request_of(ControlOp op, const std::string& tenant,
                                  const std::string& name) {
  ControlRequest request;
  request.op = op;
  const bool fits = put(request.tenant, request.tenant_length, tenant) &&
                    put(request.name, request.name_length, name);
  const char* wrong = fits ? modelwire::check(request, sizeof request) : "a name is too long";
  if (!wrong) return request;
  return Error{ErrorKind::invalid, fmt::format("bellows-modeld cannot be asked this: {}", wrong)};
}

ErrorKind kind_of(modelwire::Failure failure) {
  switch (failure) {
    case modelwire::Failure::not_found:
      return ErrorKind::not_found;
    case modelwire::Failure::invalid:
      return ErrorKind::invalid;
    default:
      return ErrorKind::unavailable;
  }
}

Error unavailable(std::string_view what, int failure) {
  return Error{ErrorKind::unavailable,
               failure == ETIMEDOUT || failure == EAGAIN
                   ? fmt::format("bellows-modeld: {}: no answer in time", what)
                   : fmt::format("bellows-modeld: {}: {}", what, std::strerror(failure))};
}

int ms_until(ControlClient::Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - ControlClient::Clock::now());
  // A socket's limit of 0 is none.
  return static_cast<int>(std::max<std::int64_t>(left.count(), 1));
}

}  // namespace

Result<ControlClient> ControlClient::connect(const std::string& path, Clock::time_point deadline,
                                             std::chrono::milliseconds restart) {
  const auto last_try = std::min(deadline, Clock::now() + restart);
  for (;;) {
    plain::Handle socket;
    const int failure = plain::connect_to(path.c_str(), &socket, ms_until(deadline));
    if (failure == 0) return ControlClient(Fd(socket.release()), deadline);
    if (failure != ECONNREFUSED || Clock::now() > last_try) return unavailable(path, failure);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Status ControlClient::ask(const ControlRequest& request, int passed) {
  const iovec part = {const_cast<ControlRequest*>(&request), sizeof request};
  int failure = plain::send_packet(socket_.get(), &part, 1, passed, 0);
  if (failure != 0) return unavailable("asking", failure);
  int ready;
  do {
    pollfd p = {socket_.get(), POLLIN, 0};
    ready = poll(&p, 1, ms_until(deadline_));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return unavailable("waiting for its answer", ready == 0 ? ETIMEDOUT : errno);
  ControlReply reply;
  const iovec into = {&reply, sizeof reply};
  std::size_t got = 0;
  failure = plain::receive_packet(socket_.get(), &into, 1, &got, nullptr, 0);
  if (failure != 0) return unavailable("reading its answer", failure);
  if (const char* wrong = modelwire::check(reply, got))
    return Error{ErrorKind::unavailable,
                 fmt::format("the answer of bellows-modeld makes no sense: {}", wrong)};
  if (reply.failure == modelwire::Failure::none) return {};
  return Error{kind_of(reply.failure), std::string(reply.text, reply.text_length)};
}

Status ControlClient::serve(const std::string& job, const std::string& tenant, uid_t uid,
                            int listener) {
  auto request = request_of(ControlOp::serve, tenant, job);
  if (!request) return request.error();
  request->uid = uid;
  return ask(*request, listener);
}

Status ControlClient::end(const std::string& job) {
  const auto request = request_of(ControlOp::end, "", job);
  return request ? ask(*request) : Status(request.error());
}

Status ControlClient::prefetch(const std::string& tenant, const std::string& model) {
  const auto request = request_of(ControlOp::prefetch, tenant, model);
  return request ? ask(*request) : Status(request.error());
}

}  // namespace bellows
