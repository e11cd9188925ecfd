// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/client_desk.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/listen_at.h"
#include "common/plain/packet.h"
#include "common/text.h"
#include "modelstore/daemon/failure_of.h"
#include "modelstore/daemon/gpu_report.h"
#include "modelstore/daemon/model_entry.h"

namespace bellows {
namespace {

/// Few answers, which who asks for one thing after another never fills.
constexpr int kSendBuffer = 4608;
/// For the end of a job of which nobody could tell.
constexpr std::chrono::seconds kLook{3};
#ifndef SO_PASSRIGHTS
constexpr int SO_PASSRIGHTS = 83;
#endif

const Error kNoSuchModel{ErrorKind::not_found, "there is no such model"};
const Error kNoSuchGpu{
    ErrorKind::not_found,
    "models are not for this job on this GPU: a job needs sbatch --model-on=gpu, "
    "and the GPU"};
const Error kNoGpuTier{ErrorKind::unavailable,
                       "this node has no models on GPUs: an administrator starts bellows-modeld "
                       "with --gpu-memory to change that"};

/// From those who connect: the last close of what a descriptor refers to may wait for as long as
/// its sender likes. Kernels before 6.16 don't know it.
void refuse_descriptors(int listener) {
  const int no = 0;
  (void)setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}

modelwire::ModelReply end_of_table(std::uint64_t handle) {
  modelwire::ModelReply reply;
  reply.answer = modelwire::Answer::accepted;
  reply.handle = handle;
  return reply;
}

}  // namespace

Status ClientDesk::serve(const ServedJob& job, Fd listener) {
  if (is_full()) return Error{ErrorKind::unavailable, "no more sockets can be served now"};
  Job served{job, std::make_unique<PacketListener>(), {}};
  refuse_descriptors(listener.get());
  auto listens = served.listener->listen(loop_, std::move(listener),
                                         [this, name = job.name] { accept_client(name); });
  if (!listens) return listens;
  (void)end(job.name);
  const Job& placed = jobs_.emplace(job.name, std::move(served)).first->second;
  if (watcher_) watcher_->job_served(job, placed.listener->fd());
  return {};
}

bool ClientDesk::end(const std::string& job, const GpuTier::Ended& done) {
  const std::string name = job;
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return false;
  const std::set<std::uint64_t> clients = found->second.clients;
  for (const std::uint64_t client : clients) drop(client);
  jobs_.erase(name);
  if (watcher_) watcher_->job_ended(name);
  if (gpus_)
    gpus_->end(name, done);
  else if (done)
    done({});
  return true;
}

Status ClientDesk::add_gpus(const std::string& job, const std::set<std::uint64_t>& gpus) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end())
    return Error{ErrorKind::not_found, fmt::format("no socket of job {} is served", job)};
  found->second.job.gpus.insert(gpus.begin(), gpus.end());
  if (watcher_) watcher_->job_served(found->second.job, found->second.listener->fd());
  return {};
}

Status ClientDesk::prefetch_on_gpus(const std::string& job, const std::string& model) {
  if (!gpus_) return kNoGpuTier;
  const ServedJob* served = find_job(job);
  const auto found = served ? registry_.find(served->tenant, model) : std::nullopt;
  if (!found)
    return Error{ErrorKind::not_found, fmt::format("job {} sees no model {}", job, model)};
  for (const std::uint64_t gpu : served->gpus) gpus_->prefetch({job, gpu}, *found);
  return {};
}

Result<std::optional<GpuPlace>> ClientDesk::place_of(const Client& client,
                                                     const modelwire::ModelRequest& request) const {
  if (request.gpu == modelwire::kNoGpu) return std::optional<GpuPlace>();
  if (!gpus_) return kNoGpuTier;
  if (jobs_.at(client.job).job.gpus.count(request.gpu) == 0) return kNoSuchGpu;
  return std::optional<GpuPlace>({client.job, request.gpu});
}

std::vector<std::string> ClientDesk::jobs() const {
  std::vector<std::string> names;
  for (const auto& [name, job] : jobs_) names.push_back(name);
  return names;
}

std::map<std::string, std::uint64_t> ClientDesk::holders(ModelId model) const {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [ticket, of] : tickets_)
    if (of.model == model) ++counts[clients_.at(of.client).job];
  return counts;
}

const ServedJob* ClientDesk::find_job(const std::string& name) const {
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : &found->second.job;
}

std::optional<TenantId> ClientDesk::tenant_of(const std::string& name) const {
  const ServedJob* job = find_job(name);
  if (!job) return std::nullopt;
  return job->tenant;
}

void ClientDesk::tell_of_jobs() {
  for (const auto& [name, job] : jobs_)
    if (watcher_) watcher_->job_served(job.job, job.listener->fd());
}

EventLoop::Clock::time_point ClientDesk::tick(EventLoop::Clock::time_point now) {
  if (look_at_ <= now) {
    end_nameless();
    look_at_ = now + kLook;
  }
  auto next = jobs_.empty() ? EventLoop::Clock::time_point::max() : look_at_;
  for (auto& [name, job] : jobs_) next = std::min(next, job.listener->tick(now));
  return next;
}

/// Who ends a job takes its socket's name away first, and may find no daemon to tell: one that is
/// starting looks here as soon as it can be told.
void ClientDesk::end_nameless() {
  std::vector<std::string> ended;
  for (const auto& [name, job] : jobs_)
    if (lost_its_name(job.listener->fd())) ended.push_back(name);
  for (const std::string& name : ended) end(name);
}

void ClientDesk::accept_client(const std::string& name) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  Client client;
  client.socket = job.listener->accept();
  if (!client.socket) return;
  ucred who{};
  socklen_t size = sizeof who;
  const bool is_known =
      getsockopt(client.socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
      who.uid == job.job.uid;
  // Nothing is said: what it sent meanwhile would make it miss that.
  if (!is_known || job.clients.size() >= kMostClients || is_full()) return;
  // Descriptors that nobody has taken yet count for the daemon's user, over all jobs.
  (void)setsockopt(client.socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  client.job = name;
  client.tenant = job.job.tenant;
  const std::uint64_t number = next_client_++;
  auto watch = loop_.watch(client.socket.get(), EPOLLIN,
                           [this, number](std::uint32_t) { on_message(number); });
  if (!watch) return;
  client.watch = std::move(*watch);
  clients_.emplace(number, std::move(client));
  job.clients.insert(number);
}

void ClientDesk::on_message(std::uint64_t number) {
  const auto found = clients_.find(number);
  if (found == clients_.end()) return;
  modelwire::ModelRequest request;
  // Larger than a request: what is longer is not taken for one.
  char surplus[8];
  const iovec parts[] = {{&request, sizeof request}, {surplus, sizeof surplus}};
  std::size_t bytes = 0;
  const int failed =
      plain::receive_packet(found->second.socket.get(), parts, 2, &bytes, nullptr, MSG_DONTWAIT);
  if (failed == EAGAIN) return;
  if (failed != 0) return drop(number);
  if (const char* why = modelwire::check(request, bytes)) {
    const bool names_handle = bytes >= 16;
    (void)answer(found->second,
                 failure(names_handle ? request.handle : 0,
                         {ErrorKind::invalid,
                          fmt::format("this is no request to bellows-modeld: {}", why)}));
    // Another name may be better; what is no request at all will not be followed by one.
    if (bytes != sizeof request || request.version != modelwire::kVersion) drop(number);
    return;
  }
  take(number, found->second, request);
}

void ClientDesk::take(std::uint64_t number, Client& client,
                      const modelwire::ModelRequest& request) {
  switch (request.op) {
    case modelwire::Op::open:
      return open(number, client, request);
    case modelwire::Op::prefetch:
      return prefetch(number, client, request);
    case modelwire::Op::close: {
      const auto found = client.tickets.find(request.handle);
      if (found == client.tickets.end()) return;
      const TicketId ticket = found->second;
      client.tickets.erase(found);
      const auto of = tickets_.extract(ticket);
      return close(ticket, of.mapped().on_gpu);
    }
    case modelwire::Op::progress:
      return tell_progress(number, client, request.handle);
    case modelwire::Op::list:
    case modelwire::Op::show:
      return tell_of_model(number, client, request);
    case modelwire::Op::on_gpus:
      return tell_of_gpu(number, client, request);
  }
}

void ClientDesk::tell_of_gpu(std::uint64_t number, const Client& client,
                             const modelwire::ModelRequest& request) {
  const ServedJob& job = jobs_.at(client.job).job;
  const std::string name(request.name, request.name_length);
  auto entry = gpus_ ? gpu_entry_after(registry_, *gpus_, job, request.gpu, name) : std::nullopt;
  if (entry) entry->handle = request.handle;
  if (!(entry ? answer(client, *entry) : answer(client, end_of_table(request.handle))))
    drop(number);
}

void ClientDesk::tell_of_model(std::uint64_t number, const Client& client,
                               const modelwire::ModelRequest& request) {
  const bool lists = request.op == modelwire::Op::list;
  const std::string name(request.name, request.name_length);
  const auto model =
      lists ? registry_.seen_after(client.tenant, name) : registry_.find(client.tenant, name);
  if (model) {
    modelwire::ModelEntry entry = entry_of(registry_, tier_, *model, client.tenant);
    entry.handle = request.handle;
    if (!answer(client, entry)) drop(number);
    return;
  }
  const modelwire::ModelReply reply =
      lists ? end_of_table(request.handle) : failure(request.handle, kNoSuchModel);
  if (!answer(client, reply)) drop(number);
}

void ClientDesk::prefetch(std::uint64_t number, const Client& client,
                          const modelwire::ModelRequest& request) {
  const auto model = find(client.tenant, request);
  const auto place = place_of(client, request);
  modelwire::ModelReply reply;
  reply.answer = modelwire::Answer::accepted;
  reply.handle = request.handle;
  if (!model || !place) reply = failure(request.handle, model ? place.error() : kNoSuchModel);
  const std::optional<GpuPlace> on = place ? *place : std::nullopt;
  if (!answer(client, reply)) return drop(number);
  if (model && on) gpus_->prefetch(*on, *model);
  if (model && place && !on) tier_.prefetch(*model);
}

void ClientDesk::close(TicketId ticket, bool on_gpu) {
  if (on_gpu)
    gpus_->close(ticket);
  else
    tier_.close(ticket);
}

void ClientDesk::tell_progress(std::uint64_t number, const Client& client, std::uint64_t handle) {
  const auto found = client.tickets.find(handle);
  if (found == client.tickets.end()) return;
  // Who has the model by now reads no further answers.
  const auto progress = tickets_.at(found->second).on_gpu ? gpus_->progress(found->second)
                                                          : tier_.progress(found->second);
  if (!progress) return;
  modelwire::ModelReply reply;
  reply.answer = modelwire::Answer::progress;
  reply.handle = handle;
  reply.memory_bytes = progress->total;
  reply.catalogue_at = progress->done;
  if (!answer(client, reply)) drop(number);
}

std::optional<ModelId> ClientDesk::find(TenantId viewer,
                                        const modelwire::ModelRequest& request) const {
  if (request.by == modelwire::By::name)
    return registry_.find(viewer, std::string(request.name, request.name_length));
  if (const auto file = file_of(request))
    return registry_.find(viewer, {request.name, request.name_length}, *file);
  ModelDigest digest;
  static_assert(sizeof request.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), request.digest, sizeof request.digest);
  return registry_.find(viewer, digest);
}

std::optional<plain::FileIdentity> ClientDesk::file_of(const modelwire::ModelRequest& request) {
  if (request.by != modelwire::By::file) return std::nullopt;
  plain::FileIdentity file;
  static_assert(sizeof request.digest == sizeof file);
  std::memcpy(file.data(), request.digest, sizeof file);
  return file;
}

void ClientDesk::open(std::uint64_t number, Client& client,
                      const modelwire::ModelRequest& request) {
  const bool taken = client.tickets.count(request.handle) != 0;
  const auto model = find(client.tenant, request);
  const auto place = place_of(client, request);
  if (taken || client.tickets.size() >= kMostHandles || !model || !place) {
    const Error why = taken    ? Error{ErrorKind::invalid, "this handle is open already"}
                      : !model ? kNoSuchModel
                      : !place
                          ? place.error()
                          : Error{ErrorKind::unavailable, "this program has too many models open"};
    if (!answer(client, failure(request.handle, why))) drop(number);
    return;
  }
  const TicketId ticket = next_ticket_++;
  client.tickets[request.handle] = ticket;
  tickets_[ticket] = {number, request.handle, *model, file_of(request), place->has_value()};
  if (*place)
    gpus_->open(ticket, **place, *model);
  else
    tier_.open(ticket, *model, *this);
}

const ClientDesk::Ticket* ClientDesk::take_grant(TicketId ticket) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return nullptr;
  const Ticket& of = found->second;
  // Only now it is known what was read from its path.
  if (!of.file || registry_.has_file(of.model, *of.file)) return &of;
  const bool on_gpu = of.on_gpu;
  refused(ticket, kNoSuchModel);
  close(ticket, on_gpu);
  return nullptr;
}

void ClientDesk::granted(TicketId ticket, const GpuCopy& copy) {
  const Ticket* of = take_grant(ticket);
  if (!of) return;
  const std::uint64_t number = of->client;
  modelwire::ModelReply reply;
  reply.answer = modelwire::Answer::catalogue;
  reply.handle = of->handle;
  reply.memory_bytes = copy.catalogue.bytes;
  reply.catalogue_bytes = copy.catalogue.catalogue_bytes;
  std::memcpy(reply.digest, copy.digest.bytes.data(), sizeof reply.digest);
  const Client& client = clients_.at(number);
  if (!answer(client, reply, copy.catalogue.reader.get())) return drop(number);
  reply.answer = modelwire::Answer::opened;
  reply.memory_bytes = copy.bytes;
  reply.catalogue_at = copy.catalogue_at;
  if (!answer(client, reply, copy.memory.get())) drop(number);
}

void ClientDesk::granted(TicketId ticket, const ModelMemory& memory) {
  const Ticket* of = take_grant(ticket);
  if (!of) return;
  const std::uint64_t number = of->client;
  modelwire::ModelReply reply;
  reply.answer = modelwire::Answer::opened;
  reply.handle = of->handle;
  reply.memory_bytes = memory.bytes;
  reply.catalogue_at = memory.catalogue_at;
  reply.catalogue_bytes = memory.catalogue_bytes;
  std::memcpy(reply.digest, memory.digest.bytes.data(), sizeof reply.digest);
  if (!answer(clients_.at(number), reply, memory.reader.get())) drop(number);
}

void ClientDesk::refused(TicketId ticket, const Error& error) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  const Ticket of = found->second;
  tickets_.erase(found);
  Client& client = clients_.at(of.client);
  client.tickets.erase(of.handle);
  if (!answer(client, failure(of.handle, error))) drop(of.client);
}

void ClientDesk::drop(std::uint64_t number) {
  const auto found = clients_.find(number);
  if (found == clients_.end()) return;
  // First it is nobody's any more: closing its tickets may answer others.
  const Client client = std::move(found->second);
  clients_.erase(found);
  if (const auto job = jobs_.find(client.job); job != jobs_.end())
    job->second.clients.erase(number);
  std::map<TicketId, bool> on_gpu;
  for (const auto& [handle, ticket] : client.tickets)
    on_gpu[ticket] = tickets_.extract(ticket).mapped().on_gpu;
  for (const auto& [ticket, is_on_gpu] : on_gpu) close(ticket, is_on_gpu);
}

template <typename Message>
bool ClientDesk::answer(const Client& client, const Message& message, int passed) {
  const iovec part = {const_cast<Message*>(&message), sizeof message};
  return plain::send_packet(client.socket.get(), &part, 1, passed, MSG_DONTWAIT) == 0;
}

modelwire::ModelReply ClientDesk::failure(std::uint64_t handle, const Error& error) {
  modelwire::ModelReply reply;
  reply.handle = handle;
  reply.failure = failure_of(error.kind);
  const std::string text = one_line(error.text, modelwire::kMostText);
  std::memcpy(reply.text, text.data(), text.size());
  reply.text_length = static_cast<std::uint32_t>(text.size());
  return reply;
}

}  // namespace bellows
