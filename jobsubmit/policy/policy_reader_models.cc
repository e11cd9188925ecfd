// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "common/model_names.h"
#include "jobsubmit/policy/policy_reader.h"

namespace bellows {
namespace {

/// As bellows-modeld takes them from its own socket.
constexpr std::size_t kMostSource = 1023;
constexpr std::size_t kMostTenantName = 63;

class ModelsReader {
 public:
  ModelsReader(ValueReader& in, const std::vector<Tenant>& tenants) : in_(in) {
    for (const Tenant& tenant : tenants) names_.push_back(tenant.name);
  }

  std::vector<SiteModel> read(const YamlNode& node) {
    for (const YamlNode* item : in_.list(node, "models")) {
      SiteModel model = read_one(*item);
      if (in_.error()) return {};
      check_others(*item, model);
      by_name_.emplace(model.name, models_.size());
      models_.push_back(std::move(model));
    }
    return std::move(models_);
  }

 private:
  SiteModel read_one(const YamlNode& node) {
    SiteModel model;
    if (!in_.mapping(node, "a model", {"name", "tenant", "source", "visible", "user", "uid"}))
      return model;
    for (const char* key : {"name", "tenant", "source"})
      if (!node.find(key)) in_.fail(node, fmt::format("a model needs a {}", key));
    if (in_.error()) return model;
    model.name = name(*node.find("name"));
    model.tenant = tenant(*node.find("tenant"), "tenant");
    model.source = source(*node.find("source"));
    if (const YamlNode* visible = node.find("visible")) read_visible(*visible, model);
    read_user(node, model);
    return model;
  }

  std::string name(const YamlNode& node) {
    std::string name = in_.short_text(node, "a model's name");
    if (!is_model_name(name))
      in_.fail(node,
               "a model's name must be words of letters, digits, \"_\", \"-\" and \".\" with \"/\" "
               "between them, none with \".\" first, and have at most 255 characters");
    return name;
  }

  std::string tenant(const YamlNode& node, std::string_view what) {
    std::string tenant = in_.text(node, what);
    if (std::find(names_.begin(), names_.end(), tenant) == names_.end())
      in_.fail(node, fmt::format("{} \"{}\" is not one of the tenants {}", what,
                                 tenant.substr(0, kMostName), fmt::join(names_, ", ")));
    else if (tenant.size() > kMostTenantName || tenant.find('+') != std::string::npos)
      in_.fail(node, fmt::format("tenant {} cannot have models: for those its name must have at "
                                 "most {} characters and no \"+\"",
                                 tenant, kMostTenantName));
    return tenant;
  }

  std::string source(const YamlNode& node) {
    std::string source = in_.short_text(node, "source");
    const auto begins = [&](std::string_view with) { return source.starts_with(with); };
    if (!begins("/") && !begins("http://") && !begins("https://") && !begins("s3://"))
      in_.fail(node, "source must be an absolute path, or a URL of http://, https:// or s3://");
    if (source.size() > kMostSource)
      in_.fail(node, fmt::format("source is longer than {} bytes", kMostSource));
    return source;
  }

  void read_visible(const YamlNode& node, SiteModel& model) {
    for (const std::string& word : in_.texts(node, "visible", "a tenant"))
      model.for_all = model.for_all || word == "*";
    if (model.for_all && node.items.size() > 1)
      in_.fail(node, "visible is \"*\" for all tenants, or names some of them, not both");
    if (model.for_all) return;
    for (const YamlNode& item : node.items) model.visible.push_back(tenant(item, "visible"));
  }

  void read_user(const YamlNode& node, SiteModel& model) {
    const YamlNode* user = node.find("user");
    const YamlNode* uid = node.find("uid");
    if (user && uid) in_.fail(*uid, "a model has a user or a uid, not both");
    if (user) model.user = in_.name(*user, "user");
    if (uid) model.uid = in_.number(*uid, "uid", 1, UINT32_MAX - 2);
  }

  /// Who sees two models of a name would get neither, so that nobody can put a model in the place
  /// of another's.
  void check_others(const YamlNode& node, const SiteModel& model) {
    const auto [first, last] = by_name_.equal_range(model.name);
    for (auto other = first; other != last; ++other) {
      const SiteModel& before = models_[other->second];
      if (before.tenant == model.tenant)
        return in_.fail(
            node, fmt::format("tenant {} has model {} twice", model.tenant, shortened(model.name)));
      for (const std::string& viewer : names_)
        if (viewer != model.tenant && viewer != before.tenant && before.is_seen_by(viewer) &&
            model.is_seen_by(viewer))
          return in_.fail(
              node, fmt::format("tenant {} would see two models {}: those of {} and {}", viewer,
                                shortened(model.name), before.tenant, model.tenant));
    }
  }

  static std::string shortened(const std::string& name) { return name.substr(0, kMostName); }

  ValueReader& in_;
  std::vector<std::string> names_;  ///< of the tenants
  std::vector<SiteModel> models_;
  std::multimap<std::string, std::size_t> by_name_;
};

}  // namespace

std::vector<SiteModel> read_models(ValueReader& in, const YamlNode& node,
                                   const std::vector<Tenant>& tenants) {
  return ModelsReader(in, tenants).read(node);
}

}  // namespace bellows
