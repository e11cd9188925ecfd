// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/plain/file_identity.h"
#include "modelstore/book/model_book.h"
#include "modelstore/digest/model_digest.h"

namespace bellows {

/// Where a model is read from.
struct ModelFrom {
  std::string path;                                  ///< or a URL
  uid_t uid = 0;                                     ///< with whose rights a path is opened
  std::optional<ModelDigest> digest = std::nullopt;  ///< that it must have

  bool operator==(const ModelFrom&) const = default;
};

/// Is told of every change that a restarted daemon has to know.
class ModelWatcher {
 public:
  virtual ~ModelWatcher() = default;
  virtual void model_changed(ModelId model) = 0;
};

/// Which models there are, and who sees them. Each tenant has a table of its own of what it sees: a
/// name that it may not see and one that does not exist are both not there, and take the same time
/// to look up.
class ModelRegistry {
 public:
  struct Registered {
    TenantId tenant = 0;
    std::string name;
    ModelFrom from;
    std::set<std::string> visible;  ///< tenants besides its own; "*": all
    std::optional<ModelDigest> digest;
    std::optional<ModelDigest> source;  ///< of where the digest was read from, and which version
    std::vector<plain::FileIdentity> files;  ///< that it was read from, when it last was
    bool configured = false;                 ///< from the start; else somebody added it
  };
  struct Added {
    ModelId model;
    std::optional<ModelId> replaced;  ///< that had the name
  };

  /// The number of a tenant, which is a new one when it was not known.
  TenantId tenant(const std::string& name);
  std::optional<TenantId> find_tenant(const std::string& name) const;
  std::string tenant_name(TenantId tenant) const;
  /// The one whose name is the next behind this.
  std::optional<TenantId> tenant_after(const std::string& name) const;

  void set_watcher(ModelWatcher* watcher) { watcher_ = watcher; }

  /// A name that the tenant has given already gets a new model.
  Added add(Registered model);
  /// One of before a restart, under its old number. False: there is such a one.
  bool restore(ModelId model, Registered registered);
  std::optional<ModelId> remove(TenantId tenant, const std::string& name);
  /// What somebody had added is there from now on as if from the start.
  void note_configured(ModelId model);
  void note_loaded(ModelId model, const ModelDigest& digest,
                   const std::vector<plain::FileIdentity>& files,
                   const std::optional<ModelDigest>& source);

  /// What a tenant sees by this name: its own, else that of the only other tenant that shows it
  /// one.
  std::optional<ModelId> find(TenantId viewer, const std::string& name) const;
  std::optional<ModelId> find(TenantId viewer, const ModelDigest& digest) const;
  /// The next that the tenant sees behind this name.
  std::optional<ModelId> seen_after(TenantId viewer, const std::string& name) const;
  /// What a tenant sees that was read from this file or, of those that were not read yet, might be
  /// by its path: `has_file` tells when it is.
  std::optional<ModelId> find(TenantId viewer, std::string_view path,
                              const plain::FileIdentity& file) const;
  bool has_file(ModelId model, const plain::FileIdentity& file) const;
  /// A tenant's own, whoever may see it.
  std::optional<ModelId> own(TenantId tenant, const std::string& name) const;
  std::vector<ModelId> all() const;
  /// The next behind this one, by the names of tenants and models.
  std::optional<ModelId> after(const std::string& tenant, const std::string& name) const;
  /// Null when there is none.
  const Registered* get(ModelId model) const;

 private:
  struct View {
    std::map<std::string, ModelId, std::less<>> by_name;
    std::map<ModelDigest, ModelId> by_digest;
    std::map<plain::FileIdentity, ModelId> by_file;
    std::map<std::string, ModelId, std::less<>> by_path;  ///< of its file or its folder
  };
  using Views = std::map<TenantId, View>;

  static void show(View& view, ModelId id, const Registered& model);
  Views make_views() const;
  const View* view_of(TenantId viewer) const;
  void tell(ModelId model);

  std::map<std::string, TenantId> tenants_;
  std::map<ModelId, Registered> models_;
  std::map<std::pair<TenantId, std::string>, ModelId> own_;
  /// Made when somebody looks: a folder adds thousands, each of which would change all.
  mutable std::optional<Views> views_;
  ModelId next_ = 1;
  ModelWatcher* watcher_ = nullptr;
};

}  // namespace bellows
