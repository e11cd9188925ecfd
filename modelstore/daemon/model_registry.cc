// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/model_registry.h"

#include <algorithm>
#include <utility>

namespace bellows {

TenantId ModelRegistry::tenant(const std::string& name) {
  const auto [place, is_new] = tenants_.emplace(name, static_cast<TenantId>(tenants_.size() + 1));
  if (is_new) make_views();
  return place->second;
}

std::optional<TenantId> ModelRegistry::find_tenant(const std::string& name) const {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return std::nullopt;
  return found->second;
}

std::string ModelRegistry::tenant_name(TenantId tenant) const {
  for (const auto& [name, id] : tenants_)
    if (id == tenant) return name;
  return "";
}

void ModelRegistry::tell(ModelId model) {
  if (watcher_) watcher_->model_changed(model);
}

bool ModelRegistry::restore(ModelId model, Registered registered) {
  if (own(registered.tenant, registered.name)) return false;
  if (!models_.emplace(model, std::move(registered)).second) return false;
  next_ = std::max(next_, model + 1);
  make_views();
  return true;
}

std::vector<ModelId> ModelRegistry::all() const {
  std::vector<ModelId> ids;
  for (const auto& [id, model] : models_) ids.push_back(id);
  return ids;
}

ModelRegistry::Added ModelRegistry::add(Registered model) {
  const auto replaced = own(model.tenant, model.name);
  if (replaced) models_.erase(*replaced);
  const ModelId id = next_++;
  models_.emplace(id, std::move(model));
  make_views();
  // Whoever is killed between the two has both, and takes the later one.
  tell(id);
  if (replaced) tell(*replaced);
  return {id, replaced};
}

std::optional<ModelId> ModelRegistry::remove(TenantId tenant, const std::string& name) {
  const auto id = own(tenant, name);
  if (!id) return std::nullopt;
  models_.erase(*id);
  make_views();
  tell(*id);
  return id;
}

void ModelRegistry::note_digest(ModelId model, const ModelDigest& digest) {
  const auto found = models_.find(model);
  if (found == models_.end() || found->second.digest == digest) return;
  found->second.digest = digest;
  make_views();
}

void ModelRegistry::make_views() {
  views_.clear();
  for (const auto& [name, viewer] : tenants_) {
    View& view = views_[viewer];
    std::set<std::string> twice;
    for (const auto& [id, model] : models_) {
      const bool shown = model.visible.count("*") != 0 || model.visible.count(name) != 0;
      if (model.tenant == viewer || !shown) continue;
      if (!view.by_name.emplace(model.name, id).second) twice.insert(model.name);
      if (model.digest) view.by_digest.emplace(*model.digest, id);
    }
    // Else who shows a model under another's name could put it in the other's place.
    for (const std::string& each : twice) view.by_name.erase(each);
    for (const auto& [id, model] : models_) {
      if (model.tenant != viewer) continue;
      view.by_name[model.name] = id;
      if (model.digest) view.by_digest[*model.digest] = id;
    }
  }
}

std::optional<ModelId> ModelRegistry::find(TenantId viewer, const std::string& name) const {
  const auto view = views_.find(viewer);
  if (view == views_.end()) return std::nullopt;
  const auto found = view->second.by_name.find(name);
  if (found == view->second.by_name.end()) return std::nullopt;
  return found->second;
}

std::optional<ModelId> ModelRegistry::find(TenantId viewer, const ModelDigest& digest) const {
  const auto view = views_.find(viewer);
  if (view == views_.end()) return std::nullopt;
  const auto found = view->second.by_digest.find(digest);
  if (found == view->second.by_digest.end()) return std::nullopt;
  return found->second;
}

std::optional<ModelId> ModelRegistry::own(TenantId tenant, const std::string& name) const {
  for (const auto& [id, model] : models_)
    if (model.tenant == tenant && model.name == name) return id;
  return std::nullopt;
}

const ModelRegistry::Registered* ModelRegistry::get(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : &found->second;
}

}  // namespace bellows
