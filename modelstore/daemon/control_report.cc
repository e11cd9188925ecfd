// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/control_report.h"

#include <algorithm>
#include <cstring>

#include "common/text.h"
#include "modelstore/daemon/model_entry.h"
#include "modelstore/loader/model_place.h"

namespace bellows {
namespace {

using modelwire::HolderLine;
using modelwire::ModelLine;
using modelwire::StoreLine;

/// As many whole names as there is room for.
void put_visible(ModelLine& line, const std::set<std::string>& visible) {
  std::string all;
  for (const std::string& tenant : visible) {
    if (tenant == "*") {
      all = "*";
      break;
    }
    if (all.size() + 1 + tenant.size() > modelwire::kMostVisible) {
      line.flags |= ModelLine::kMoreVisible;
      break;
    }
    all += (all.empty() ? "" : ",") + tenant;
  }
  put(line.visible, line.visible_length, all);
}

std::uint64_t ms_since(ModelBook::Time time) {
  const auto idle = std::chrono::steady_clock::now() - time;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(idle).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(ms, 0));
}

}  // namespace

ModelLine ControlReport::line_of(ModelId id) const {
  const ModelRegistry::Registered& model = *registry_.get(id);
  const ModelBook& book = tier_.book();
  ModelLine line;
  const BookEntry entry = book.entry(id);
  put_state(line, registry_, tier_, id);
  line.references = book.references(id);
  line.waiting = entry.waiting;
  const ModelUse use = book.use(id);
  line.uses = use.uses;
  if (use.last_used != ModelBook::Time{}) line.idle_ms = ms_since(use.last_used);
  if (entry.pinned) line.flags |= ModelLine::kPinned;
  if (model.configured) line.flags |= ModelLine::kConfigured;
  put(line.tenant, line.tenant_length, registry_.tenant_name(model.tenant));
  put(line.name, line.name_length, model.name);
  put(line.source, line.source_length,
      one_line(shown_place(model.from.path), modelwire::kMostPath));
  put_visible(line, model.visible);
  return line;
}

std::optional<ModelLine> ControlReport::model_after(const std::string& tenant,
                                                    const std::string& name) const {
  const auto id = registry_.after(tenant, name);
  if (!id) return std::nullopt;
  return line_of(*id);
}

StoreLine ControlReport::store(const std::string& tenant) const {
  const BookRoom room = tier_.book().room();
  StoreLine line;
  line.budget = room.budget;
  line.used = room.used;
  line.evicting = room.evicting;
  line.models = registry_.all().size();
  line.jobs = clients_.jobs().size();
  line.programs = clients_.clients();
  if (const auto disk = tier_.disk()) {
    line.disk = disk->answers ? modelwire::Disk::answers : modelwire::Disk::silent;
    line.disk_budget = disk->budget;
    line.disk_used = disk->used;
    line.disk_images = disk->images;
  }
  line.loads = tier_.counts().loads;
  line.disk_loads = tier_.counts().disk_loads;
  line.peer_loads = tier_.counts().peer_loads;
  const auto next = registry_.tenant_after(tenant);
  if (!next) return line;
  const BookRoom own = tier_.book().room_of(*next);
  line.tenant_budget = own.budget;
  line.tenant_used = own.used;
  line.tenant_evicting = own.evicting;
  put(line.tenant, line.tenant_length, registry_.tenant_name(*next));
  return line;
}

std::optional<HolderLine> ControlReport::holder_after(ModelId model, const std::string& job) const {
  const auto holders = clients_.holders(model);
  const auto next = holders.upper_bound(job);
  if (next == holders.end()) return std::nullopt;
  HolderLine line;
  line.count = next->second;
  put(line.job, line.job_length, next->first);
  if (const ServedJob* served = clients_.find_job(next->first)) {
    line.uid = served->uid;
    put(line.tenant, line.tenant_length, registry_.tenant_name(served->tenant));
  }
  return line;
}

}  // namespace bellows
