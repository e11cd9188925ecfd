// SPDX-License-Identifier: Apache-2.0
#include "modelstore/control/store_view.h"

#include <utility>

namespace bellows {
namespace {

using modelwire::ModelLine;

/// A daemon that never comes to an end is none.
constexpr std::size_t kMostLines = 1000000;

Error endless() { return Error{ErrorKind::unavailable, "the answers of bellows-modeld never end"}; }

std::string digest_of(const ModelLine& line) {
  if ((line.flags & ModelLine::kHasDigest) == 0) return "";
  return digest_text(line.digest);
}

StoredModel model_of(const ModelLine& line) {
  StoredModel model;
  model.tenant.assign(line.tenant, line.tenant_length);
  model.name.assign(line.name, line.name_length);
  model.source.assign(line.source, line.source_length);
  model.visible.assign(line.visible, line.visible_length);
  model.more_visible = (line.flags & ModelLine::kMoreVisible) != 0;
  model.digest = digest_of(line);
  model.place = line.place;
  model.bytes = line.bytes;
  model.read_bytes = line.read_bytes;
  model.references = line.references;
  model.waiting = line.waiting;
  model.uses = line.uses;
  if (line.idle_ms <= static_cast<std::uint64_t>(INT64_MAX))
    model.idle = std::chrono::milliseconds(static_cast<std::int64_t>(line.idle_ms));
  model.pinned = (line.flags & ModelLine::kPinned) != 0;
  model.configured = (line.flags & ModelLine::kConfigured) != 0;
  if (line.failure != modelwire::Failure::none)
    model.trouble = Error{kind_of(line.failure), std::string(line.text, line.text_length)};
  return model;
}

std::optional<StoreDisk> disk_of(const modelwire::StoreLine& line) {
  if (line.disk == modelwire::Disk::none) return std::nullopt;
  return StoreDisk{line.disk_budget, line.disk_used, line.disk_images,
                   line.disk == modelwire::Disk::answers};
}

Status read_tenants(ControlClient& daemon, StoreView& view) {
  std::string before;
  while (view.tenants.size() < kMostLines) {
    const auto line = daemon.store(before);
    if (!line) return line.error();
    view.all = {"", line->budget, line->used, line->evicting};
    view.jobs = line->jobs;
    view.programs = line->programs;
    view.disk = disk_of(*line);
    view.loads = line->loads;
    view.disk_loads = line->disk_loads;
    view.peer_loads = line->peer_loads;
    if (line->tenant_length == 0) return {};
    before.assign(line->tenant, line->tenant_length);
    view.tenants.push_back({before, line->tenant_budget, line->tenant_used, line->tenant_evicting});
  }
  return endless();
}

}  // namespace

Result<StoreView> read_store(ControlClient& daemon) {
  StoreView view;
  if (Status read = read_tenants(daemon, view); !read) return read.error();
  std::string tenant, name;
  while (view.models.size() < kMostLines) {
    const auto line = daemon.model_after(tenant, name);
    if (!line) return line.error();
    if (!*line) return view;
    view.models.push_back(model_of(**line));
    tenant = view.models.back().tenant;
    name = view.models.back().name;
  }
  return endless();
}

Result<std::vector<GpuForModels>> read_gpus(ControlClient& daemon) {
  std::vector<GpuForModels> gpus;
  std::string job, gpu, tenant, name;
  for (std::size_t lines = 0; lines < kMostLines; ++lines) {
    const auto line = daemon.gpu_after(job, gpu, tenant, name);
    if (!line) return line.error();
    if (!*line) return gpus;
    if (Status taken = take_line(gpus, **line); !taken) return taken.error();
    job = gpus.back().job;
    gpu = gpus.back().address;
    tenant.assign((*line)->tenant, (*line)->tenant_length);
    name.assign((*line)->name, (*line)->name_length);
  }
  return endless();
}

Result<std::optional<StoreDisk>> read_disk(ControlClient& daemon) {
  const auto line = daemon.store("");
  if (!line) return line.error();
  return disk_of(*line);
}

Result<StoredModel> read_model(ControlClient& daemon, const std::string& tenant,
                               const std::string& model) {
  const auto line = daemon.model(tenant, model);
  if (!line) return line.error();
  return model_of(*line);
}

Result<std::vector<ModelHolder>> read_holders(ControlClient& daemon, const std::string& tenant,
                                              const std::string& model) {
  std::vector<ModelHolder> holders;
  std::string job;
  while (holders.size() < kMostLines) {
    const auto line = daemon.holder_after(tenant, model, job);
    if (!line) return line.error();
    if (!*line) return holders;
    const auto& held = **line;
    job.assign(held.job, held.job_length);
    holders.push_back({job, std::string(held.tenant, held.tenant_length), held.uid, held.count});
  }
  return endless();
}

}  // namespace bellows
