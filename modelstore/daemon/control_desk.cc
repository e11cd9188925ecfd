// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/control_desk.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/plain/packet.h"
#include "common/text.h"
#include "modelstore/daemon/failure_of.h"
#include "modelstore/wire/gpu_address.h"

namespace bellows {
namespace {

using modelwire::ControlOp;
using modelwire::ControlReply;
using modelwire::ControlRequest;

constexpr std::size_t kMostSpeakers = 64;

bool may_speak(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
         (who.uid == 0 || who.uid == geteuid());
}

ControlReply reply_of(const Status& status) {
  ControlReply reply;
  if (status) return reply;
  reply.failure = failure_of(status.error().kind);
  const std::string text = one_line(status.error().text, modelwire::kMostText);
  std::memcpy(reply.text, text.data(), text.size());
  reply.text_length = static_cast<std::uint32_t>(text.size());
  return reply;
}

template <typename Message>
bool send(int socket, const Message& message) {
  const iovec part = {const_cast<Message*>(&message), sizeof message};
  return plain::send_packet(socket, &part, 1, -1, MSG_DONTWAIT) == 0;
}

std::set<std::uint64_t> gpus_of(std::string_view list) {
  std::set<std::uint64_t> gpus;
  for (std::string_view address : split(list, ',')) {
    std::uint64_t gpu = 0;
    if (modelwire::read_gpu(address.data(), address.size(), &gpu)) gpus.insert(gpu);
  }
  return gpus;
}

GpuCursor cursor_of(const ControlRequest& request) {
  GpuCursor cursor;
  std::uint64_t gpu = 0;
  if (modelwire::read_gpu(request.visible, request.visible_length, &gpu))
    cursor.place = GpuPlace{{request.path, request.path_length}, gpu};
  cursor.tenant.assign(request.tenant, request.tenant_length);
  cursor.name.assign(request.name, request.name_length);
  return cursor;
}

/// Of a table, or its end.
template <typename Line>
bool send_line(int socket, const std::optional<Line>& line) {
  return line ? send(socket, *line) : send(socket, ControlReply{});
}

}  // namespace

Status ControlDesk::listen(Fd listener) {
  return listener_.listen(loop_, std::move(listener), [this] { accept_speaker(); });
}

void ControlDesk::accept_speaker() {
  Speaker speaker;
  speaker.socket = listener_.accept();
  if (!speaker.socket || !may_speak(speaker.socket.get()) || speakers_.size() >= kMostSpeakers)
    return;
  const std::uint64_t number = next_++;
  if (watch(number, speaker)) speakers_.emplace(number, std::move(speaker));
}

bool ControlDesk::watch(std::uint64_t number, Speaker& speaker) {
  auto watch = loop_.watch(speaker.socket.get(), EPOLLIN,
                           [this, number](std::uint32_t) { on_message(number); });
  if (!watch) return false;
  speaker.watch = std::move(*watch);
  return true;
}

void ControlDesk::verify(std::uint64_t number, const ControlRequest& request) {
  // Answers come in the order of requests. This one may come before the tier returns.
  speakers_.at(number).watch.end();
  const auto model = own(request);
  const Status begun =
      model ? tier_.verify(*model, [this, number](const Status& s) { answer_late(number, s); })
            : Status(model.error());
  if (!begun) answer_late(number, begun);
}

void ControlDesk::end(std::uint64_t number, const ControlRequest& request) {
  speakers_.at(number).watch.end();
  const std::string name(request.name, request.name_length);
  if (!clients_.end(name, [this, number](const Status& s) { answer_late(number, s); }))
    answer_late(number,
                Error{ErrorKind::not_found, fmt::format("no socket of job {} is served", name)});
}

void ControlDesk::answer_late(std::uint64_t number, const Status& status) {
  const auto found = speakers_.find(number);
  if (found == speakers_.end()) return;
  if (!send(found->second.socket.get(), reply_of(status)) || !watch(number, found->second))
    speakers_.erase(found);
}

void ControlDesk::on_message(std::uint64_t number) {
  const auto found = speakers_.find(number);
  if (found == speakers_.end()) return;
  const int socket = found->second.socket.get();
  ControlRequest request;
  char surplus[8];
  const iovec parts[] = {{&request, sizeof request}, {surplus, sizeof surplus}};
  std::size_t bytes = 0;
  plain::Handle passed;
  const int failed = plain::receive_packet(socket, parts, 2, &bytes, &passed, MSG_DONTWAIT);
  if (failed == EAGAIN) return;
  if (failed != 0) {
    speakers_.erase(found);
    return;
  }
  const char* why = modelwire::check(request, bytes);
  if (!why && request.op == ControlOp::verify) return verify(number, request);
  if (!why && request.op == ControlOp::end) return end(number, request);
  const bool sent =
      why ? send(socket,
                 reply_of(Error{ErrorKind::invalid,
                                fmt::format("this is no request to bellows-modeld: {}", why)}))
          : answer(socket, request, passed);
  if (!sent) speakers_.erase(number);
}

bool ControlDesk::answer(int socket, const ControlRequest& request, plain::Handle& passed) {
  const std::string tenant(request.tenant, request.tenant_length);
  const std::string name(request.name, request.name_length);
  switch (request.op) {
    case ControlOp::list:
      return send_line(socket, report_.model_after(tenant, name));
    case ControlOp::status:
      return send(socket, report_.store(tenant));
    case ControlOp::on_gpus:
      return send_line(socket, report_.gpu_after(cursor_of(request)));
    case ControlOp::show:
    case ControlOp::holders: {
      const auto model = own(request);
      if (!model) return send(socket, reply_of(model.error()));
      if (request.op == ControlOp::show) return send(socket, report_.line_of(*model));
      return send_line(socket, report_.holder_after(*model, {request.path, request.path_length}));
    }
    default:
      return send(socket, reply_of(take(request, passed)));
  }
}

Status ControlDesk::take(const ControlRequest& request, plain::Handle& passed) {
  const std::string name(request.name, request.name_length);
  if (request.op == ControlOp::serve) return serve(request, passed);
  if (request.op == ControlOp::prefetch) return prefetch(request);
  if (request.op == ControlOp::gpus)
    return clients_.add_gpus(name, gpus_of({request.path, request.path_length}));
  if (request.op == ControlOp::prefetch_on_gpus)
    return clients_.prefetch_on_gpus({request.path, request.path_length}, name);
  if (request.op != ControlOp::add) return take_of_model(request);
  add(registered(std::string(request.tenant, request.tenant_length), name,
                 {std::string(request.path, request.path_length), request.uid, {}},
                 {request.visible, request.visible_length}));
  return {};
}

Status ControlDesk::serve(const ControlRequest& request, plain::Handle& passed) {
  if (passed.get() < 0)
    return Error{ErrorKind::invalid, "to serve a job, its listening socket must come along"};
  const TenantId tenant = registry_.tenant(std::string(request.tenant, request.tenant_length));
  return clients_.serve({std::string(request.name, request.name_length), tenant, request.uid},
                        Fd(passed.release()));
}

Status ControlDesk::prefetch(const ControlRequest& request) {
  const std::string tenant_name(request.tenant, request.tenant_length);
  const std::string name(request.name, request.name_length);
  const auto tenant = registry_.find_tenant(tenant_name);
  const auto model = tenant ? registry_.find(*tenant, name) : std::nullopt;
  if (!model)
    return Error{ErrorKind::not_found,
                 fmt::format("tenant {} sees no model {}", tenant_name, name)};
  tier_.prefetch(*model);
  return {};
}

Result<ModelId> ControlDesk::own(const ControlRequest& request) const {
  const std::string tenant_name(request.tenant, request.tenant_length);
  const std::string name(request.name, request.name_length);
  const auto tenant = registry_.find_tenant(tenant_name);
  const auto model = tenant ? registry_.own(*tenant, name) : std::nullopt;
  if (model) return *model;
  return Error{ErrorKind::not_found, fmt::format("tenant {} has no model {}", tenant_name, name)};
}

Status ControlDesk::take_of_model(const ControlRequest& request) {
  const auto model = own(request);
  if (!model) return model.error();
  if (request.op == ControlOp::evict) return tier_.evict(*model);
  if (request.op == ControlOp::remove) {
    const auto* registered = registry_.get(*model);
    registry_.remove(registered->tenant, std::string(registered->name));
    tier_.retire(*model);
  } else {
    tier_.pin(*model, request.op == ControlOp::pin);
  }
  return {};
}

ModelRegistry::Registered ControlDesk::registered(const std::string& tenant,
                                                  const std::string& name, const ModelFrom& from,
                                                  std::string_view visible) {
  ModelRegistry::Registered model;
  model.tenant = registry_.tenant(tenant);
  model.name = name;
  model.from = from;
  model.digest = from.digest;
  for (std::string_view each : split(visible, ','))
    if (!each.empty()) model.visible.insert(std::string(each));
  return model;
}

ModelId ControlDesk::add(ModelRegistry::Registered model) {
  const auto added = registry_.add(std::move(model));
  tier_.add_model(added.model);
  if (added.replaced) tier_.retire(*added.replaced);
  return added.model;
}

ModelId ControlDesk::configure(const std::string& tenant, const std::string& name,
                               const ModelFrom& from, std::string_view visible) {
  auto model = registered(tenant, name, from, visible);
  model.configured = true;
  if (const auto id = registry_.own(model.tenant, name)) {
    const auto* before = registry_.get(*id);
    if (before->from == from && before->visible == model.visible) {
      registry_.note_configured(*id);
      return *id;
    }
  }
  return add(std::move(model));
}

void ControlDesk::forget_all_but(const std::set<ModelId>& configured) {
  for (const ModelId id : registry_.all()) {
    const auto* model = registry_.get(id);
    if (!model->configured || configured.count(id) != 0) continue;
    registry_.remove(model->tenant, std::string(model->name));
    tier_.retire(id);
  }
}

}  // namespace bellows
