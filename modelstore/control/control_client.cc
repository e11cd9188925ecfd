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

Result<ControlRequest> request_of(ControlOp op, const std::string& tenant, const std::string& name,
                                  const std::string& path = "", const std::string& visible = "") {
  ControlRequest request;
  request.op = op;
  const bool fits = put(request.tenant, request.tenant_length, tenant) &&
                    put(request.name, request.name_length, name) &&
                    put(request.path, request.path_length, path) &&
                    put(request.visible, request.visible_length, visible);
  const char* wrong = fits ? modelwire::check(request, sizeof request) : "a name is too long";
  if (!wrong) return request;
  return Error{ErrorKind::invalid, fmt::format("bellows-modeld cannot be asked this: {}", wrong)};
}

Error unavailable(std::string_view what, int failure) {
  return Error{ErrorKind::unavailable,
               failure == ETIMEDOUT || failure == EAGAIN
                   ? fmt::format("bellows-modeld: {}: no answer in time", what)
                   : fmt::format("bellows-modeld: {}: {}", what, std::strerror(failure))};
}

Error nonsense(const char* wrong) {
  return Error{ErrorKind::unavailable,
               fmt::format("the answer of bellows-modeld makes no sense: {}", wrong)};
}

Status status_of(const ControlReply& reply, std::size_t got) {
  if (const char* wrong = modelwire::check(reply, got)) return nonsense(wrong);
  if (reply.failure == modelwire::Failure::none) return {};
  return Error{kind_of(reply.failure), std::string(reply.text, reply.text_length)};
}

int ms_until(ControlClient::Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - ControlClient::Clock::now());
  // A socket's limit of 0 is none.
  return static_cast<int>(std::max<std::int64_t>(left.count(), 1));
}

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

Result<std::size_t> ControlClient::exchange(const ControlRequest& request, int passed, void* answer,
                                            std::size_t most) {
  const iovec part = {const_cast<ControlRequest*>(&request), sizeof request};
  int failure = plain::send_packet(socket_.get(), &part, 1, passed, 0);
  if (failure != 0) return unavailable("asking", failure);
  int ready;
  do {
    pollfd p = {socket_.get(), POLLIN, 0};
    ready = poll(&p, 1, ms_until(deadline_));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return unavailable("waiting for its answer", ready == 0 ? ETIMEDOUT : errno);
  const iovec into = {answer, most};
  std::size_t got = 0;
  failure = plain::receive_packet(socket_.get(), &into, 1, &got, nullptr, 0);
  if (failure != 0) return unavailable("reading its answer", failure);
  return got;
}

Status ControlClient::ask(const ControlRequest& request, int passed) {
  ControlReply reply;
  const auto got = exchange(request, passed, &reply, sizeof reply);
  return got ? status_of(reply, *got) : Status(got.error());
}

template <typename Line>
Result<std::optional<Line>> ControlClient::ask_line(const ControlRequest& request) {
  // Which of the two comes, its size tells.
  static_assert(sizeof(Line) != sizeof(ControlReply));
  unsigned char bytes[std::max(sizeof(Line), sizeof(ControlReply))];
  const auto got = exchange(request, -1, bytes, sizeof bytes);
  if (!got) return got.error();
  if (*got == sizeof(ControlReply)) {
    ControlReply reply;
    std::memcpy(static_cast<void*>(&reply), bytes, sizeof reply);
    if (Status status = status_of(reply, *got); !status) return status.error();
    return std::optional<Line>();
  }
  Line line;
  std::memcpy(static_cast<void*>(&line), bytes, std::min(*got, sizeof line));
  if (const char* wrong = modelwire::check(line, *got)) return nonsense(wrong);
  return std::optional<Line>(line);
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

Status ControlClient::add(const std::string& tenant, const std::string& model,
                          const std::string& place, uid_t uid, const std::string& visible) {
  auto request = request_of(ControlOp::add, tenant, model, place, visible);
  if (!request) return request.error();
  request->uid = uid;
  return ask(*request);
}

Status ControlClient::change(ControlOp op, const std::string& tenant, const std::string& model) {
  const auto request = request_of(op, tenant, model);
  return request ? ask(*request) : Status(request.error());
}

Result<std::optional<modelwire::ModelLine>> ControlClient::model_after(const std::string& tenant,
                                                                       const std::string& model) {
  const auto request = request_of(ControlOp::list, tenant, model);
  if (!request) return request.error();
  return ask_line<modelwire::ModelLine>(*request);
}

Result<modelwire::ModelLine> ControlClient::model(const std::string& tenant,
                                                  const std::string& model) {
  const auto request = request_of(ControlOp::show, tenant, model);
  if (!request) return request.error();
  auto line = ask_line<modelwire::ModelLine>(*request);
  if (!line) return line.error();
  if (!*line) return nonsense("it says nothing");
  return **line;
}

Result<modelwire::StoreLine> ControlClient::store(const std::string& tenant_before) {
  const auto request = request_of(ControlOp::status, tenant_before, "");
  if (!request) return request.error();
  auto line = ask_line<modelwire::StoreLine>(*request);
  if (!line) return line.error();
  if (!*line) return nonsense("it says nothing");
  return **line;
}

Result<std::optional<modelwire::HolderLine>> ControlClient::holder_after(const std::string& tenant,
                                                                         const std::string& model,
                                                                         const std::string& job) {
  const auto request = request_of(ControlOp::holders, tenant, model, job);
  if (!request) return request.error();
  return ask_line<modelwire::HolderLine>(*request);
}

}  // namespace bellows
