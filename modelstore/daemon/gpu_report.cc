// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/gpu_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "modelstore/daemon/model_entry.h"

namespace bellows {
namespace {

using modelwire::GpuEntry;
using modelwire::GpuLine;
using modelwire::OnGpu;

OnGpu state_of(const GpuModel& model) {
  if (model.state == ModelBook::State::absent) return OnGpu::absent;
  if (model.state != ModelBook::State::resident) return OnGpu::loading;
  return model.references > 0 ? OnGpu::lent : OnGpu::idle;
}

template <typename Line>
void put_room(Line& line, std::uint64_t gpu, const BookRoom& room) {
  line.gpu = gpu;
  line.budget = room.budget;
  line.used = room.used;
  line.evicting = room.evicting;
}

template <typename Line>
void put_model(Line& line, const std::string& name, const GpuModel& model) {
  line.state = state_of(model);
  line.bytes = model.entry.bytes;
  line.copied_bytes = std::min(model.copied, line.bytes);
  line.references = model.references;
  line.waiting = model.entry.waiting;
  put(line.name, line.name_length, name);
  if (const auto& trouble = model.entry.trouble) {
    const std::string text = one_line(trouble->text, modelwire::kMostText);
    line.failure = failure_of(trouble->kind);
    put(line.text, line.text_length, text.empty() ? "it says nothing" : text);
  }
}

/// Of all GPUs of which there is something to tell.
std::map<GpuPlace, BookRoom> rooms_of(const GpuTier& gpus, const ClientDesk& clients) {
  std::map<GpuPlace, BookRoom> rooms;
  for (const std::string& name : clients.jobs())
    for (const std::uint64_t gpu : clients.find_job(name)->gpus)
      rooms[{name, gpu}] = gpus.room({name, gpu});
  for (const auto& [place, bytes] : gpus.left_behind()) {
    BookRoom& room = rooms[place];
    room.used += bytes;
    room.evicting += bytes;
  }
  return rooms;
}

}  // namespace

std::optional<GpuEntry> gpu_entry_after(const ModelRegistry& registry, const GpuTier& gpus,
                                        const ServedJob& job, std::uint64_t gpu,
                                        const std::string& name) {
  GpuEntry entry;
  const bool has_begun = gpu != modelwire::kNoGpu;
  if (has_begun && job.gpus.count(gpu) != 0) {
    std::map<std::string, GpuModel> named;
    for (GpuModel& model : gpus.models_on({job.name, gpu}))
      if (const auto* registered = registry.get(model.model);
          registered && registry.find(job.tenant, registered->name) == model.model)
        named[registered->name] = std::move(model);
    if (const auto next = named.upper_bound(name); next != named.end()) {
      put_room(entry, gpu, gpus.room({job.name, gpu}));
      put_model(entry, next->first, next->second);
      return entry;
    }
  }
  const auto next = has_begun ? job.gpus.upper_bound(gpu) : job.gpus.begin();
  if (next == job.gpus.end()) return std::nullopt;
  put_room(entry, *next, gpus.room({job.name, *next}));
  return entry;
}

std::optional<GpuLine> gpu_line_after(const ModelRegistry& registry, const GpuTier& gpus,
                                      const ClientDesk& clients, const GpuCursor& cursor) {
  using Name = std::pair<std::string, std::string>;
  const auto rooms = rooms_of(gpus, clients);
  std::map<Name, GpuModel> named;
  auto place = cursor.place ? rooms.find(*cursor.place) : rooms.end();
  if (place != rooms.end())
    for (GpuModel& model : gpus.models_on(place->first))
      if (const auto* registered = registry.get(model.model))
        named[{registry.tenant_name(registered->tenant), registered->name}] = std::move(model);
  const auto next = named.upper_bound(Name(cursor.tenant, cursor.name));
  if (next == named.end()) place = cursor.place ? rooms.upper_bound(*cursor.place) : rooms.begin();
  if (place == rooms.end()) return std::nullopt;
  GpuLine line;
  put_room(line, place->first.gpu, place->second);
  put(line.job, line.job_length, place->first.job);
  if (const ServedJob* job = clients.find_job(place->first.job))
    put(line.job_tenant, line.job_tenant_length, registry.tenant_name(job->tenant));
  if (next == named.end()) return line;
  put(line.tenant, line.tenant_length, next->first.first);
  put_model(line, next->first.second, next->second);
  return line;
}

}  // namespace bellows
