// SPDX-License-Identifier: Apache-2.0
#include "modelstore/control/control_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace bellows {
namespace {

using modelwire::ControlOp;
using modelwire::ControlReply;
using modelwire::ControlRequest;

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

Status status_of(const ControlReply& reply, std::size_t got) {
  if (const char* wrong = modelwire::check(reply, got)) return store_nonsense(wrong);
  if (reply.failure == modelwire::Failure::none) return {};
  return Error{kind_of(reply.failure), std::string(reply.text, reply.text_length)};
}

}  // namespace

Result<ControlClient> ControlClient::connect(const std::string& path, Clock::time_point deadline,
                                             std::chrono::milliseconds restart) {
  auto socket = connect_to_modeld(path, deadline, restart);
  if (!socket) return socket.error();
  return ControlClient(std::move(*socket), deadline);
}

Result<std::size_t> ControlClient::exchange(const ControlRequest& request, int passed, void* answer,
                                            std::size_t most) {
  return ask_packet(socket_.get(), &request, sizeof request, passed, answer, most, deadline_);
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
  if (const char* wrong = modelwire::check(line, *got)) return store_nonsense(wrong);
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

Status ControlClient::add_gpus(const std::string& job, const std::vector<std::string>& gpus) {
  std::string list;
  for (const std::string& gpu : gpus) list += (list.empty() ? "" : ",") + gpu;
  const auto request = request_of(ControlOp::gpus, "", job, list);
  return request ? ask(*request) : Status(request.error());
}

Status ControlClient::prefetch_on_gpus(const std::string& job, const std::string& model) {
  const auto request = request_of(ControlOp::prefetch_on_gpus, "", model, job);
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
  if (!*line) return store_nonsense("it says nothing");
  return **line;
}

Result<modelwire::StoreLine> ControlClient::store(const std::string& tenant_before) {
  const auto request = request_of(ControlOp::status, tenant_before, "");
  if (!request) return request.error();
  auto line = ask_line<modelwire::StoreLine>(*request);
  if (!line) return line.error();
  if (!*line) return store_nonsense("it says nothing");
  return **line;
}

Result<std::optional<modelwire::HolderLine>> ControlClient::holder_after(const std::string& tenant,
                                                                         const std::string& model,
                                                                         const std::string& job) {
  const auto request = request_of(ControlOp::holders, tenant, model, job);
  if (!request) return request.error();
  return ask_line<modelwire::HolderLine>(*request);
}

Result<std::optional<modelwire::GpuLine>> ControlClient::gpu_after(const std::string& job,
                                                                   const std::string& gpu,
                                                                   const std::string& tenant,
                                                                   const std::string& model) {
  const auto request = request_of(ControlOp::on_gpus, tenant, model, job, gpu);
  if (!request) return request.error();
  return ask_line<modelwire::GpuLine>(*request);
}

}  // namespace bellows
