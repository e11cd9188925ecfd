// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/policy/policy_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "common/container/image_reference.h"
#include "common/contract.h"
#include "common/text.h"

namespace bellows {
namespace {

constexpr std::uint32_t kMostSiteFactor = 1000000000;
constexpr std::uint32_t kLeastInstructions = 1000;
constexpr std::uint32_t kMostInstructions = 10000000;
constexpr std::uint32_t kMostWeight = 1000000;
constexpr std::uint64_t kMostLuaMib = 16;  // slurmctld allocates and frees it for each call

/// Walks the tree.
class PolicyReader {
 public:
  explicit PolicyReader(const std::string& file) : file_(file), in_(file) {}

  Policy read(const YamlNode& root);
  const std::optional<Error>& error() const { return in_.error(); }
  const std::vector<std::string>& notes() const { return in_.notes(); }

 private:
  void version(const YamlNode& root);
  void switches(const YamlNode& root);
  std::string checkpoint_dir(const YamlNode& node);
  Fallback fallback(const YamlNode& node, std::string_view what);
  void plain_jobs(const YamlNode& node);
  void lua(const YamlNode& node);
  void frameworks(const YamlNode& node);
  void defaults(const YamlNode& node);
  void default_tenant(const YamlNode& node);
  void check_framework_models(const YamlNode& root);
  void note_missing_controller(const YamlNode& root);

  Tenant tenant(const std::string& name, const YamlNode& node);
  void accounts(const YamlNode& node, Tenant& tenant);
  void own_account(const YamlNode& at, const std::string& account, const Tenant& tenant);
  void quota(const YamlNode& node, Tenant& tenant);
  std::string suspension(const YamlNode& node);
  void rights(const YamlNode& node, Tenant& tenant);
  void narrowing(const YamlNode& node, Tenant& tenant);
  void limits(const YamlNode* node, Tenant& tenant);
  void rules(const YamlNode& node, const YamlNode* gpus, Tenant& tenant);
  std::string pattern(const YamlNode& item);
  std::vector<std::string> patterns(const YamlNode& node);
  std::vector<std::string> image_patterns(const YamlNode& node);

  const std::string& file_;
  ValueReader in_;
  Policy policy_;
  Tenant defaults_;  ///< what a tenant is before its own keys
  const YamlNode* defaults_node_ = nullptr;
  struct Owner {
    std::string tenant;
    bool narrowed;
  };
  std::map<std::string, Owner> last_owner_;      ///< of each account
  std::map<std::string, std::string> quota_of_;  ///< tenants by account
};

void PolicyReader::version(const YamlNode& root) {
  const YamlNode* node = root.find("version");
  if (!node) return in_.fail(root, "the key \"version\" is missing; write version: 1");
  if (node->kind != YamlNode::Kind::scalar || node->scalar != "1")
    in_.fail(*node, "only version 1 is known; write version: 1");
}

std::string PolicyReader::checkpoint_dir(const YamlNode& node) {
  if (in_.text(node, "checkpoint_dir").empty()) return "";
  std::string path = in_.absolute_path(node, "checkpoint_dir");
  if (auto expanded = expand_path(path, "u", "a", "1"); !expanded)
    in_.fail(node, expanded.error().text);
  else if (expand_path(path, "u", "a", "2") && *expanded == *expand_path(path, "u", "a", "2"))
    in_.fail(node,
             "checkpoint_dir must contain %j, or jobs would overwrite each other's checkpoints");
  return path;
}

Fallback PolicyReader::fallback(const YamlNode& node, std::string_view what) {
  return in_.choice(node, what, {"pass", "refuse"}) == 0 ? Fallback::pass : Fallback::refuse;
}

void PolicyReader::plain_jobs(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::mapping) {
    policy_.plain_jobs = fallback(node, "plain_jobs");
    return;
  }
  if (!in_.mapping(node, "plain_jobs", {"default", "partitions"})) return;
  if (const YamlNode* usual = node.find("default"))
    policy_.plain_jobs = fallback(*usual, "default");
  const YamlNode* partitions = node.find("partitions");
  if (!partitions || !in_.mapping(*partitions, "partitions", {})) return;
  for (const auto& [key, value] : partitions->entries) {
    const std::string partition = in_.name(key, "a partition's name");
    policy_.plain_jobs_by_partition[partition] = fallback(value, partition);
  }
}

void PolicyReader::lua(const YamlNode& node) {
  if (!in_.mapping(node, "lua", {"script", "on_error", "instructions", "memory"})) return;
  LuaSettings& lua = policy_.lua;
  if (const YamlNode* script = node.find("script"); script && !script->is_null()) {
    lua.path = in_.short_text(*script, "script");
    const auto slash = file_.rfind('/');
    if (!lua.path.starts_with('/') && slash != std::string::npos)
      lua.path.insert(0, file_, 0, slash + 1);
  }
  if (const YamlNode* on_error = node.find("on_error"))
    lua.on_error = fallback(*on_error, "on_error");
  if (const YamlNode* instructions = node.find("instructions"))
    lua.max_instructions =
        in_.number(*instructions, "instructions", kLeastInstructions, kMostInstructions);
  if (const YamlNode* memory = node.find("memory"))
    lua.max_memory_kib =
        static_cast<std::uint32_t>(1024 * in_.memory(*memory, "memory", kMostLuaMib));
}

void PolicyReader::frameworks(const YamlNode& node) {
  if (!in_.mapping(node, "frameworks", {})) return;
  for (const auto& [key, value] : node.entries) {
    const std::string name = in_.name(key, "a framework's name");
    policy_.frameworks.insert_or_assign(name, read_framework(in_, name, value));
  }
}

void PolicyReader::own_account(const YamlNode& at, const std::string& account,
                               const Tenant& tenant) {
  const Owner mine{tenant.name, tenant.narrowed()};
  const auto [entry, fresh] = last_owner_.emplace(account, mine);
  if (fresh) return;
  const Owner& before = entry->second;
  if (before.tenant == tenant.name)
    in_.fail(at, fmt::format("account {} appears twice", account));
  else if (!before.narrowed)
    in_.fail(at, fmt::format("account {} already belongs to tenant {}, which is not narrowed by "
                             "users, groups or partitions",
                             account, before.tenant));
  entry->second = mine;
}

void PolicyReader::accounts(const YamlNode& node, Tenant& tenant) {
  const YamlNode* list = node.find("accounts");
  if (!list) {
    tenant.accounts.push_back(to_lower(tenant.name));
    own_account(node, tenant.accounts.back(), tenant);
    return;
  }
  for (const YamlNode* item : in_.list(*list, "accounts")) {
    tenant.accounts.push_back(to_lower(in_.name(*item, "an account")));
    own_account(*item, tenant.accounts.back(), tenant);
  }
}

/// Slurm can add up an account for one tenant only.
void PolicyReader::quota(const YamlNode& node, Tenant& tenant) {
  tenant.quota = read_quota(in_, node, tenant.accounts);
  if (!tenant.quota) return;
  std::vector<std::string> counted = tenant.accounts;
  if (!tenant.quota->parent.empty()) counted.push_back(tenant.quota->parent);
  for (const std::string& account : counted)
    if (const auto [entry, fresh] = quota_of_.emplace(account, tenant.name); !fresh)
      in_.fail(node, fmt::format("account {} is already in the quota of tenant {}", account,
                                 entry->second));
}

/// A pattern that matches nothing in the file is almost certainly a typo.
std::string PolicyReader::pattern(const YamlNode& item) {
  if (item.kind == YamlNode::Kind::mapping && item.entries.size() == 1)
    in_.fail(item, fmt::format("a framework pattern has no space after its colon; write \"{}:{}\"",
                               item.entries[0].key.scalar.substr(0, kMostName),
                               item.entries[0].value.scalar.substr(0, kMostName)));
  std::string pattern = in_.text(item, "a framework pattern");
  std::vector<std::string> known;
  for (const auto& [name, framework] : policy_.frameworks) {
    known.push_back(name);
    for (const FrameworkVersion& version : framework.versions)
      if (fits_framework(pattern, name, version.version)) return pattern;
  }
  const std::string hint = nearest(item.scalar, known);
  in_.fail(item, fmt::format("\"{}\" does not match any framework of this file{}",
                             item.scalar.substr(0, kMostName),
                             hint.empty() ? "" : fmt::format("; did you mean \"{}\"?", hint)));
  return pattern;
}

/// Images are matched by their absolute path, or by their registry, name and tag.
std::vector<std::string> PolicyReader::image_patterns(const YamlNode& node) {
  std::vector<std::string> patterns = in_.texts(node, "images", "an image pattern");
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const auto parts = split(patterns[i], '/');
    if (!patterns[i].starts_with('/') && !patterns[i].starts_with('*') &&
        !container::is_in_registry(patterns[i]))
      in_.fail(node.items[i],
               fmt::format("image pattern \"{}\" must begin with \"/\" or \"*\", since it is for "
                           "absolute paths, or with \"docker://\" for images in registries",
                           patterns[i].substr(0, kMostName)));
    if (std::find(parts.begin(), parts.end(), "..") != parts.end())
      in_.fail(node.items[i],
               fmt::format("image pattern \"{}\" matches nothing: no image's path has "
                           "\"..\"",
                           patterns[i].substr(0, kMostName)));
  }
  return patterns;
}

std::vector<std::string> PolicyReader::patterns(const YamlNode& node) {
  std::vector<std::string> patterns;
  for (const YamlNode* item : in_.list(node, "frameworks")) patterns.push_back(pattern(*item));
  return patterns;
}

/// A switch that stood here would be shown as the reason, and "no" would suspend the tenant.
std::string PolicyReader::suspension(const YamlNode& node) {
  const std::string word = to_lower(node.scalar);
  for (const char* flag : {"yes", "no", "true", "false", "on", "off", "y", "n"})
    if (node.plain && word == flag)
      in_.fail(
          node,
          fmt::format(
              "suspended must be the reason that users see, not {}; write, for example, suspended: "
              "\"over budget until May\", and leave it empty for a tenant that is not suspended",
              node.scalar));
  return in_.short_text(node, "the reason for suspended");
}

void PolicyReader::rights(const YamlNode& node, Tenant& tenant) {
  if (const YamlNode* children = node.find("children"))
    tenant.children = in_.flag(*children, "children");
  if (const YamlNode* reason = node.find("suspended")) {
    tenant.suspended.reset();
    if (!reason->is_null()) tenant.suspended = suspension(*reason);
  }
  // A list that is given but empty permits nothing; one that is not given permits all.
  if (const YamlNode* frameworks = node.find("frameworks"))
    tenant.frameworks = patterns(*frameworks);
  if (const YamlNode* images = node.find("images")) tenant.images = image_patterns(*images);
  if (const YamlNode* wide = node.find("batch_range"))
    tenant.wide_batch = in_.flag(*wide, "batch_range");
  if (const YamlNode* pools = node.find("pools")) tenant.pool_members = read_pools(in_, *pools);
  if (const YamlNode* guarantee = node.find("guarantee"))
    tenant.guarantee = read_guarantee(in_, *guarantee);
  if (const YamlNode* weight = node.find("weight"))
    tenant.weight = in_.number(*weight, "weight", 1, kMostWeight);
}

void PolicyReader::narrowing(const YamlNode& node, Tenant& tenant) {
  if (const YamlNode* users = node.find("users"))
    tenant.users = in_.some_texts(*users, "users", "a user");
  if (const YamlNode* groups = node.find("groups"))
    tenant.groups = in_.some_texts(*groups, "groups", "a group");
  if (const YamlNode* partitions = node.find("partitions"))
    tenant.partitions = in_.some_texts(*partitions, "partitions", "a partition pattern");
}

void PolicyReader::rules(const YamlNode& node, const YamlNode* gpus, Tenant& tenant) {
  tenant.rules.clear();
  if (!in_.mapping(node, "framework_limits", {})) return;
  const YamlNode* outermost = defaults_node_ ? defaults_node_->find("gpus") : nullptr;
  for (const auto& [key, value] : node.entries) {
    FrameworkRule rule{pattern(key), tenant.gpus};
    const YamlNode* own = nullptr;
    if (in_.mapping(value, fmt::format("framework_limits for {}", rule.pattern), {"gpus"}))
      own = value.find("gpus");
    if (own) rule.gpus = read_gpus(in_, Inherited{outermost, gpus, own}, tenant.gpus);
    tenant.rules.push_back(std::move(rule));
  }
}

/// `node` is the tenant's mapping, or nullptr for the defaults themselves.
void PolicyReader::limits(const YamlNode* node, Tenant& tenant) {
  const auto find = [](const YamlNode* mapping, const char* key) {
    return mapping ? mapping->find(key) : nullptr;
  };
  const YamlNode* gpus = find(node, "gpus");
  if (const YamlNode* outer = find(defaults_node_, "gpus"); gpus || (outer && !node))
    tenant.gpus = read_gpus(in_, Inherited{outer, gpus}, tenant.gpus);
  const YamlNode* sizing = find(node, "sizing");
  if (const YamlNode* outer = find(defaults_node_, "sizing"); sizing || (outer && !node))
    tenant.sizing = read_sizing(in_, Inherited{outer, sizing});
  const YamlNode* own_rules = find(node, "framework_limits");
  const YamlNode* outer_rules = find(defaults_node_, "framework_limits");
  // Inherited rules hang on the tenant's own sizes, too.
  if (own_rules)
    rules(*own_rules, gpus, tenant);
  else if (outer_rules && (gpus || !node))
    rules(*outer_rules, gpus, tenant);
}

void PolicyReader::defaults(const YamlNode& node) {
  if (!in_.mapping(node, "defaults",
                   {"children", "users", "groups", "partitions", "suspended", "frameworks",
                    "framework_limits", "images", "batch_range", "pools", "gpus", "sizing",
                    "guarantee", "weight"}))
    return;
  defaults_node_ = &node;
  rights(node, defaults_);
  narrowing(node, defaults_);
  limits(nullptr, defaults_);
}

Tenant PolicyReader::tenant(const std::string& name, const YamlNode& node) {
  Tenant tenant = defaults_;
  tenant.name = name;
  if (!node.is_null()) {
    if (!in_.mapping(node, fmt::format("tenant {}", name),
                     {"accounts", "children", "users", "groups", "partitions", "suspended",
                      "frameworks", "framework_limits", "images", "batch_range", "pools", "gpus",
                      "sizing", "quota", "guarantee", "weight"}))
      return tenant;
    rights(node, tenant);
    narrowing(node, tenant);
    limits(&node, tenant);
  }
  accounts(node, tenant);
  if (const YamlNode* limit = node.find("quota")) quota(*limit, tenant);
  return tenant;
}

void PolicyReader::default_tenant(const YamlNode& node) {
  policy_.default_tenant = in_.text(node, "default_tenant");
  if (policy_.default_tenant.empty()) return;
  std::vector<std::string> known;
  for (const Tenant& tenant : policy_.tenants) {
    if (tenant.name == policy_.default_tenant) return;
    known.push_back(tenant.name);
  }
  in_.fail(node, fmt::format("default_tenant \"{}\" is not one of the tenants {}",
                             policy_.default_tenant.substr(0, kMostName), fmt::join(known, ", ")));
}

/// Jobs are admitted all the same: their users can resize them.
void PolicyReader::note_missing_controller(const YamlNode& root) {
  if (policy_.controller) return;
  for (const Tenant& tenant : policy_.tenants) {
    const bool some = std::any_of(
        tenant.rules.begin(), tenant.rules.end(),
        [](const FrameworkRule& rule) { return rule.gpus.elastic == Elasticity::automatic; });
    if (!some && tenant.gpus.elastic != Elasticity::automatic) continue;
    return in_.note(root, fmt::format("tenant {} has elastic: auto, but the file names no "
                                      "controller, so only users resize its jobs",
                                      tenant.name));
  }
}

void PolicyReader::switches(const YamlNode& root) {
  if (const YamlNode* node = root.find("enabled")) policy_.enabled = in_.flag(*node, "enabled");
  if (const YamlNode* node = root.find("checkpoint_dir"))
    policy_.checkpoint_dir = checkpoint_dir(*node);
  if (const YamlNode* node = root.find("checkpoint_access"))
    policy_.checkpoint_access = std::array{
        Access::owner, Access::group,
        Access::all}[in_.choice(*node, "checkpoint_access", {"private", "group", "all"})];
  if (const YamlNode* node = root.find("resize_site_factor"))
    policy_.resize_site_factor = in_.number(*node, "resize_site_factor", 0, kMostSiteFactor);
  if (const YamlNode* node = root.find("plain_jobs")) plain_jobs(*node);
  if (const YamlNode* node = root.find("lua")) lua(*node);
  if (const YamlNode* node = root.find("controller"); node && !node->is_null())
    policy_.controller = read_controller(in_, *node);
}

/// A name that no tenant has is a typing error; who sees a model is another matter.
void PolicyReader::check_framework_models(const YamlNode& root) {
  for (const auto& [name, framework] : policy_.frameworks)
    for (const FrameworkVersion& version : framework.versions)
      for (const std::string& model : version.models)
        if (std::none_of(policy_.models.begin(), policy_.models.end(),
                         [&](const SiteModel& each) { return each.name == model; }))
          return in_.fail(*root.find("frameworks"),
                          fmt::format("framework {} names the model {}, which is not one of models",
                                      name, model));
}

Policy PolicyReader::read(const YamlNode& root) {
  if (!in_.mapping(root, "the policy",
                   {"version", "enabled", "checkpoint_dir", "checkpoint_access",
                    "resize_site_factor", "plain_jobs", "lua", "controller", "frameworks",
                    "defaults", "tenants", "default_tenant", "models"}))
    return policy_;
  version(root);
  switches(root);
  // Each refers to those before it, in whatever order they stand in the file.
  if (const YamlNode* node = root.find("frameworks")) frameworks(*node);
  defaults_.frameworks = {"*"};
  if (const YamlNode* node = root.find("defaults")) defaults(*node);
  if (const YamlNode* node = root.find("tenants"); node && in_.mapping(*node, "tenants", {}))
    for (const auto& [key, value] : node->entries)
      policy_.tenants.push_back(tenant(in_.name(key, "a tenant's name"), value));
  if (const YamlNode* node = root.find("default_tenant")) default_tenant(*node);
  if (const YamlNode* node = root.find("models"); node && !node->is_null())
    policy_.models = read_models(in_, *node, policy_.tenants);
  check_framework_models(root);
  note_missing_controller(root);
  policy_.index();
  return std::move(policy_);
}

}  // namespace

Result<Policy> load_policy(std::string_view text, const std::string& filename) {
  auto root = parse_yaml(text, filename);
  if (!root) return root.error();
  PolicyReader reader(filename);
  Policy policy = reader.read(*root);
  if (reader.error()) return *reader.error();
  policy.notes = reader.notes();
  policy.digest = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  return policy;
}

}  // namespace bellows
