// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/control_report.h"

#include <algorithm>
#include <cstring>

#include "common/text.h"
#include "modelstore/daemon/failure_of.h"
#include "modelstore/loader/model_place.h"

namespace bellows {
namespace {

using modelwire::HolderLine;
using modelwire::ModelLine;
using modelwire::Place;
using modelwire::StoreLine;

/// Cuts what is too long.
template <std::size_t kBytes>
void put(char (&field)[kBytes], std::uint32_t& length, std::string_view text) {
  length = static_cast<std::uint32_t>(std::min(text.size(), kBytes - 1));
  std::memcpy(field, text.data(), length);
}

Place place_of(ModelBook::State state) {
  if (state == ModelBook::State::absent) return Place::absent;
  return state == ModelBook::State::resident ? Place::memory : Place::loading;
}

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
  line.place = place_of(book.state(id));
  const BookEntry entry = book.entry(id);
  line.bytes = entry.bytes;
  if (const auto progress = tier_.progress_of(id)) line.read_bytes = progress->done;
  line.read_bytes = std::min(line.read_bytes, line.bytes);
  line.references = book.references(id);
  line.waiting = entry.waiting;
  const ModelUse use = book.use(id);
  line.uses = use.uses;
  if (use.last_used != ModelBook::Time{}) line.idle_ms = ms_since(use.last_used);
  if (entry.pinned) line.flags |= ModelLine::kPinned;
  if (model.configured) line.flags |= ModelLine::kConfigured;
  if (model.digest) {
    line.flags |= ModelLine::kHasDigest;
    std::memcpy(line.digest, model.digest->bytes.data(), sizeof line.digest);
  }
  if (const auto& trouble = entry.trouble) {
    const std::string text = one_line(trouble->text, modelwire::kMostText);
    line.failure = failure_of(trouble->kind);
    put(line.text, line.text_length, text.empty() ? "it says nothing" : text);
  }
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
