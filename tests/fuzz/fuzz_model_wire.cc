// SPDX-License-Identifier: Apache-2.0
/// Messages of the model store's sockets. What passes has texts that end, names that lead nowhere
/// else, and sizes that can be computed with; and in all its bytes it is what it says, so that no
/// two messages mean the same.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "modelstore/wire/control_lines.h"
#include "modelstore/wire/control_wire.h"
#include "modelstore/wire/gpu_lines.h"

namespace {

using namespace bellows::modelwire;

void require(bool holds) {
  if (!holds) std::abort();
}

/// A message as recvmsg leaves it: what does not fit is cut off, and the size tells.
template <typename Message>
Message received(const std::uint8_t* data, std::size_t size) {
  Message message;
  if (size > 0) std::memcpy(static_cast<void*>(&message), data, std::min(size, sizeof message));
  return message;
}

template <std::size_t kBytes>
std::string_view text_of(const char (&field)[kBytes], std::size_t length) {
  require(length < kBytes && field[length] == 0 && std::strlen(field) == length);
  return {field, length};
}

/// Whoever writes an address anew means the same GPU.
void check_gpu(std::string_view text) {
  std::uint64_t gpu = 0, again = 0;
  require(read_gpu(text.data(), text.size(), &gpu) && gpu <= kLastGpu);
  char written[kGpuText];
  write_gpu(gpu, written);
  require(read_gpu(written, std::strlen(written), &again) && again == gpu);
}

void check_name(std::string_view name) {
  require(!name.empty() && name.front() != '/' && name.back() != '/');
  require(name.front() != '.' && name.find("/.") == std::string_view::npos);
}

void check_request(const std::uint8_t* data, std::size_t size) {
  const auto request = received<ModelRequest>(data, size);
  if (const char* why = check(request, size)) return require(*why != 0);
  const auto name = text_of(request.name, request.name_length);
  if (request.op == Op::list || request.op == Op::show) {
    require(request.by == By::name);
    return name.empty() ? require(request.op == Op::list) : check_name(name);
  }
  if (request.op == Op::on_gpus) {
    require(request.gpu != kNoGpu || name.empty());
    return name.empty() ? void() : check_name(name);
  }
  if (request.op != Op::open && request.op != Op::prefetch) return;
  if (request.by == By::name) check_name(name);
  require(request.by != By::file || name.substr(0, 1) == "/");
  require(request.gpu == kNoGpu || request.gpu <= kLastGpu);
}

void check_reply(const std::uint8_t* data, std::size_t size) {
  const auto reply = received<ModelReply>(data, size);
  if (const char* why = check(reply, size)) return require(*why != 0);
  const auto text = text_of(reply.text, reply.text_length);
  require(reply.answer != Answer::failed || (!text.empty() && reply.failure != Failure::none));
  require((reply.answer != Answer::opened && reply.answer != Answer::catalogue) ||
          reply.catalogue_at + reply.catalogue_bytes <= reply.memory_bytes);
  require(reply.answer != Answer::progress || reply.catalogue_at <= reply.memory_bytes);
}

void check_entry(const std::uint8_t* data, std::size_t size) {
  const auto entry = received<ModelEntry>(data, size);
  if (const char* why = check(entry, size)) return require(*why != 0);
  check_name(text_of(entry.name, entry.name_length));
  require(text_of(entry.text, entry.text_length).empty() == (entry.failure == Failure::none));
  require(entry.read_bytes <= entry.bytes && entry.place <= Place::memory);
}

void check_gpu_request(const ControlRequest& request) {
  const auto job = text_of(request.path, request.path_length);
  const auto gpu = text_of(request.visible, request.visible_length);
  require(job.empty() == gpu.empty() && (request.name_length == 0) == (request.tenant_length == 0));
  if (!job.empty()) return check_gpu(gpu);
  require(request.name_length == 0);
}

void check_control(const std::uint8_t* data, std::size_t size) {
  const auto request = received<ControlRequest>(data, size);
  if (const char* why = check(request, size)) return require(*why != 0);
  const auto name = text_of(request.name, request.name_length);
  const auto tenant = text_of(request.tenant, request.tenant_length);
  if (request.op == ControlOp::on_gpus) return check_gpu_request(request);
  const bool begins = request.op == ControlOp::list || request.op == ControlOp::status;
  if (!begins) check_name(name);
  if (request.op == ControlOp::list && !name.empty()) check_name(name);
  require(request.op != ControlOp::list || name.empty() || !tenant.empty());
  require(request.op == ControlOp::end || request.op == ControlOp::gpus ||
          request.op == ControlOp::prefetch_on_gpus || tenant.find('/') == std::string_view::npos);
  (void)text_of(request.visible, request.visible_length);
  const auto path = text_of(request.path, request.path_length);
  if (request.op == ControlOp::gpus) check_gpu(path.substr(0, path.find(',')));
  require(request.op != ControlOp::add || path.substr(0, 1) == "/" ||
          path.find("://") != std::string_view::npos);
}

/// What a command shows that root runs.
void check_lines(const std::uint8_t* data, std::size_t size) {
  const auto model = received<ModelLine>(data, size);
  if (!check(model, size)) {
    check_name(text_of(model.name, model.name_length));
    check_name(text_of(model.tenant, model.tenant_length));
    (void)text_of(model.source, model.source_length);
    (void)text_of(model.visible, model.visible_length);
    require(text_of(model.text, model.text_length).empty() == (model.failure == Failure::none));
    require(model.read_bytes <= model.bytes);
  }
  const auto store = received<StoreLine>(data, size);
  if (!check(store, size)) {
    (void)text_of(store.tenant, store.tenant_length);
    require(store.evicting <= store.used && store.tenant_evicting <= store.tenant_used);
    require(store.disk != Disk::none || store.disk_images == 0);
  }
  const auto holder = received<HolderLine>(data, size);
  if (!check(holder, size)) {
    check_name(text_of(holder.tenant, holder.tenant_length));
    require(!text_of(holder.job, holder.job_length).empty());
  }
}

template <typename Line>
void check_gpu_model(const Line& line) {
  const auto name = text_of(line.name, line.name_length);
  require((line.state == OnGpu::none) == name.empty() && line.state <= OnGpu::lent);
  if (!name.empty()) check_name(name);
  require(text_of(line.text, line.text_length).empty() == (line.failure == Failure::none));
  require(line.gpu <= kLastGpu && line.evicting <= line.used && line.copied_bytes <= line.bytes);
  require((line.references > 0) == (line.state == OnGpu::lent));
}

void check_gpu_lines(const std::uint8_t* data, std::size_t size) {
  const auto entry = received<GpuEntry>(data, size);
  if (!check(entry, size)) check_gpu_model(entry);
  const auto line = received<GpuLine>(data, size);
  if (check(line, size)) return;
  check_gpu_model(line);
  require(!text_of(line.job, line.job_length).empty());
  (void)text_of(line.job_tenant, line.job_tenant_length);
  require(text_of(line.tenant, line.tenant_length).empty() == (line.state == OnGpu::none));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_request(data, size);
  check_reply(data, size);
  check_entry(data, size);
  check_control(data, size);
  check_lines(data, size);
  check_gpu_lines(data, size);
  const auto reply = received<ControlReply>(data, size);
  if (!check(reply, size)) (void)text_of(reply.text, reply.text_length);
  return 0;
}
