// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/model_registry.h"

#include <algorithm>
#include <utility>

namespace bellows {
namespace {

std::string_view folder_of(std::string_view path) { return path.substr(0, path.rfind('/')); }

/// By which the path of a part leads to its model: for an index, the folder in which it and all
/// parts are.
std::string_view key_of_path(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path.ends_with(".index.json") ? folder_of(path) : path;
}

/// Whether it has such a name as files in the folder of a model. Others that lie there have nobody
/// wait for the model.
bool is_part(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name == "model.safetensors" || name.find("-of-") != std::string_view::npos;
}

}  // namespace

TenantId ModelRegistry::tenant(const std::string& name) {
  const auto [place, is_new] = tenants_.emplace(name, static_cast<TenantId>(tenants_.size() + 1));
  if (is_new) views_.reset();
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

std::optional<TenantId> ModelRegistry::tenant_after(const std::string& name) const {
  const auto next = tenants_.upper_bound(name);
  if (next == tenants_.end()) return std::nullopt;
  return next->second;
}

std::optional<ModelId> ModelRegistry::after(const std::string& tenant,
                                            const std::string& name) const {
  const auto first_of = [this](TenantId owner, const std::string& behind) {
    const auto next = own_.upper_bound({owner, behind});
    const bool is_its = next != own_.end() && next->first.first == owner;
    return is_its ? std::optional<ModelId>(next->second) : std::nullopt;
  };
  for (auto owner = tenants_.lower_bound(tenant); owner != tenants_.end(); ++owner)
    if (const auto id = first_of(owner->second, owner->first == tenant ? name : "")) return id;
  return std::nullopt;
}

void ModelRegistry::tell(ModelId model) {
  if (watcher_) watcher_->model_changed(model);
}

bool ModelRegistry::restore(ModelId model, Registered registered) {
  const std::pair key(registered.tenant, registered.name);
  if (own_.count(key) != 0 || models_.count(model) != 0) return false;
  own_[key] = model;
  models_[model] = std::move(registered);
  next_ = std::max(next_, model + 1);
  views_.reset();
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
  own_[{model.tenant, model.name}] = id;
  models_.emplace(id, std::move(model));
  views_.reset();
  // Whoever is killed between the two has both, and takes the later one.
  tell(id);
  if (replaced) tell(*replaced);
  return {id, replaced};
}

std::optional<ModelId> ModelRegistry::remove(TenantId tenant, const std::string& name) {
  const auto id = own(tenant, name);
  if (!id) return std::nullopt;
  own_.erase({tenant, name});
  models_.erase(*id);
  views_.reset();
  tell(*id);
  return id;
}

void ModelRegistry::note_configured(ModelId model) {
  const auto found = models_.find(model);
  if (found == models_.end() || found->second.configured) return;
  found->second.configured = true;
  tell(model);
}

void ModelRegistry::note_loaded(ModelId model, const ModelDigest& digest,
                                const std::vector<plain::FileIdentity>& files,
                                const std::optional<ModelDigest>& source) {
  const auto found = models_.find(model);
  if (found == models_.end()) return;
  Registered& registered = found->second;
  // An image that was found by its digest says nothing of where it came from.
  if (source) registered.source = source;
  if (registered.digest == digest && registered.files == files) return;
  registered.digest = digest;
  registered.files = files;
  views_.reset();
}

/// What is found by its bytes and files, which cannot be another's.
void ModelRegistry::show(View& view, ModelId id, const Registered& model) {
  if (model.digest) view.by_digest[*model.digest] = id;
  for (const auto& file : model.files) view.by_file[file] = id;
  view.by_path[std::string(key_of_path(model.from.path))] = id;
}

ModelRegistry::Views ModelRegistry::make_views() const {
  Views views;
  for (const auto& [name, viewer] : tenants_) {
    View& view = views[viewer];
    std::set<std::string> twice;
    for (const auto& [id, model] : models_) {
      const bool shown = model.visible.count("*") != 0 || model.visible.count(name) != 0;
      if (model.tenant == viewer || !shown) continue;
      if (!view.by_name.emplace(model.name, id).second) twice.insert(model.name);
      show(view, id, model);
    }
    // Else who shows a model under another's name could put it in the other's place.
    for (const std::string& each : twice) view.by_name.erase(each);
    for (const auto& [id, model] : models_) {
      if (model.tenant != viewer) continue;
      view.by_name[model.name] = id;
      show(view, id, model);
    }
  }
  return views;
}

const ModelRegistry::View* ModelRegistry::view_of(TenantId viewer) const {
  if (!views_) views_ = make_views();
  const auto found = views_->find(viewer);
  return found == views_->end() ? nullptr : &found->second;
}

std::optional<ModelId> ModelRegistry::find(TenantId viewer, const std::string& name) const {
  const View* const view = view_of(viewer);
  if (!view) return std::nullopt;
  const auto found = view->by_name.find(name);
  if (found == view->by_name.end()) return std::nullopt;
  return found->second;
}

std::optional<ModelId> ModelRegistry::seen_after(TenantId viewer, const std::string& name) const {
  const View* const view = view_of(viewer);
  if (!view) return std::nullopt;
  const auto next = view->by_name.upper_bound(name);
  if (next == view->by_name.end()) return std::nullopt;
  return next->second;
}

std::optional<ModelId> ModelRegistry::find(TenantId viewer, const ModelDigest& digest) const {
  const View* const view = view_of(viewer);
  if (!view) return std::nullopt;
  const auto found = view->by_digest.find(digest);
  if (found == view->by_digest.end()) return std::nullopt;
  return found->second;
}

std::optional<ModelId> ModelRegistry::find(TenantId viewer, std::string_view path,
                                           const plain::FileIdentity& file) const {
  const View* const view = view_of(viewer);
  if (!view) return std::nullopt;
  if (const auto found = view->by_file.find(file); found != view->by_file.end())
    return found->second;
  auto found = view->by_path.find(path);
  if (found == view->by_path.end() && is_part(path)) found = view->by_path.find(folder_of(path));
  // Of one whose files are known, this is none, or it was changed.
  if (found == view->by_path.end() || !models_.at(found->second).files.empty()) return std::nullopt;
  return found->second;
}

bool ModelRegistry::has_file(ModelId model, const plain::FileIdentity& file) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return false;
  const auto& files = found->second.files;
  return std::find(files.begin(), files.end(), file) != files.end();
}

std::optional<ModelId> ModelRegistry::own(TenantId tenant, const std::string& name) const {
  const auto found = own_.find({tenant, name});
  return found == own_.end() ? std::nullopt : std::optional<ModelId>(found->second);
}

const ModelRegistry::Registered* ModelRegistry::get(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : &found->second;
}

}  // namespace bellows
