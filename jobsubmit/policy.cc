// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "common/contract.h"
#include "common/text.h"
#include "common/yaml_tree.h"

namespace bellows {
namespace {

constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostPath = 1024;
constexpr std::uint32_t kMostSiteFactor = 1000000000;

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > kMostName) return false;
  // One that looks like an option or a hidden file could not be asked for at the prompt.
  if (std::string_view(".+-").find(text[0]) != std::string_view::npos) return false;
  for (char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
          std::string_view("_.+-").find(c) != std::string_view::npos))
      return false;
  return true;
}

bool is_variable(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'))
      return false;
  return true;
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

/// Walks the tree; keeps the first error and goes on with defaults, so that the reading functions
/// stay free of error plumbing. The result counts only when error() is empty.
class PolicyReader {
 public:
  explicit PolicyReader(const std::string& file) : file_(file) {}

  Policy read(const YamlNode& root);
  const std::optional<Error>& error() const { return error_; }

 private:
  void fail(const YamlNode& at, std::string_view text) {
    if (!error_) error_ = yaml_error(file_, at.mark, text);
  }
  /// True when `node` is a mapping with only these keys.
  bool mapping(const YamlNode& node, std::string_view what,
               std::initializer_list<const char*> keys);
  std::string text(const YamlNode& node, std::string_view what);
  std::string name(const YamlNode& node, std::string_view what);
  std::uint32_t number(const YamlNode& node, std::string_view what, std::uint32_t least,
                       std::uint32_t most);
  std::vector<const YamlNode*> list(const YamlNode& node, std::string_view what);

  void version(const YamlNode& root);
  std::string checkpoint_dir(const YamlNode& node);
  Framework framework(const std::string& name, const YamlNode& node);
  std::map<std::string, std::string> environment(const YamlNode& node);
  Tenant tenant(const std::string& name, const YamlNode& node, const Policy& policy);
  void account(const YamlNode& at, const std::string& account, const std::string& tenant);
  std::vector<std::string> patterns(const YamlNode& node, const Policy& policy);
  GpuLimits gpus(const YamlNode& node);

  const std::string& file_;
  std::optional<Error> error_;
  std::map<std::string, std::string> account_owner_;
};

bool PolicyReader::mapping(const YamlNode& node, std::string_view what,
                           std::initializer_list<const char*> keys) {
  if (node.kind != YamlNode::Kind::mapping) {
    fail(node, fmt::format("{} must be a mapping of key: value", what));
    return false;
  }
  if (keys.size() == 0) return true;
  const std::vector<std::string> known(keys.begin(), keys.end());
  for (const auto& [key, value] : node.entries) {
    if (std::find(known.begin(), known.end(), key.scalar) != known.end()) continue;
    const std::string hint = nearest(key.scalar, known);
    fail(key, hint.empty()
                  ? fmt::format("unknown key \"{}\" in {}; known are {}",
                                key.scalar.substr(0, kMostName), what, fmt::join(known, ", "))
                  : fmt::format("unknown key \"{}\" in {}; did you mean \"{}\"?",
                                key.scalar.substr(0, kMostName), what, hint));
    return false;
  }
  return true;
}

std::string PolicyReader::text(const YamlNode& node, std::string_view what) {
  if (node.kind != YamlNode::Kind::scalar) fail(node, fmt::format("{} must be a text", what));
  if (has_control(node.scalar)) fail(node, fmt::format("{} has a control character", what));
  return node.is_null() ? "" : node.scalar;
}

std::string PolicyReader::name(const YamlNode& node, std::string_view what) {
  std::string value = text(node, what);
  if (!is_name(value))
    fail(node, fmt::format("{} must be 1 to {} letters, digits, \"_\", \".\", \"+\" or \"-\", and "
                           "not begin with one of the last three",
                           what, kMostName));
  return value;
}

std::uint32_t PolicyReader::number(const YamlNode& node, std::string_view what, std::uint32_t least,
                                   std::uint32_t most) {
  const auto value = node.kind == YamlNode::Kind::scalar ? parse_uint(node.scalar) : std::nullopt;
  if (!value || *value < least || *value > most) {
    fail(node, fmt::format("{} must be a whole number from {} to {}", what, least, most));
    return least;
  }
  return static_cast<std::uint32_t>(*value);
}

std::vector<const YamlNode*> PolicyReader::list(const YamlNode& node, std::string_view what) {
  std::vector<const YamlNode*> items;
  if (node.kind != YamlNode::Kind::sequence) {
    fail(node, fmt::format("{} must be a list, such as [a, b]", what));
    return items;
  }
  for (const YamlNode& item : node.items) items.push_back(&item);
  return items;
}

void PolicyReader::version(const YamlNode& root) {
  const YamlNode* node = root.find("version");
  if (!node) return fail(root, "the key \"version\" is missing; write version: 1");
  if (node->kind != YamlNode::Kind::scalar || node->scalar != "1")
    fail(*node, "only version 1 is known; write version: 1");
}

std::string PolicyReader::checkpoint_dir(const YamlNode& node) {
  std::string path = text(node, "checkpoint_dir");
  if (path.empty()) return path;
  if (path[0] != '/') fail(node, "checkpoint_dir must be an absolute path");
  if (path.size() > kMostPath)
    fail(node, fmt::format("checkpoint_dir is longer than {} bytes", kMostPath));
  if (auto expanded = expand_path(path, "u", "a", "1"); !expanded)
    fail(node, expanded.error().text);
  else if (expand_path(path, "u", "a", "2") && *expanded == *expand_path(path, "u", "a", "2"))
    fail(node, "checkpoint_dir must hold %j, or jobs would overwrite each other's checkpoints");
  return path;
}

std::map<std::string, std::string> PolicyReader::environment(const YamlNode& node) {
  std::map<std::string, std::string> env;
  if (!mapping(node, "env", {})) return env;
  for (const auto& [key, value] : node.entries) {
    if (!is_variable(key.scalar))
      fail(key, fmt::format("\"{}\" is not the name of an environment variable",
                            key.scalar.substr(0, kMostName)));
    for (std::string_view prefix : {"SLURM_", "BELLOWS_", "SPANK_", "_SLURM_"})
      if (key.scalar.starts_with(prefix))
        fail(key, fmt::format("{} may not be set here: {}* belongs to {}", key.scalar, prefix,
                              prefix == "BELLOWS_" ? "Bellows" : "Slurm"));
    env[key.scalar] = text(value, key.scalar);
  }
  return env;
}

Framework PolicyReader::framework(const std::string& framework_name, const YamlNode& node) {
  Framework framework;
  if (node.is_null()) return framework;
  const std::string what = fmt::format("framework {}", framework_name);
  if (!mapping(node, what, {"versions", "default", "env"})) return framework;
  if (const YamlNode* versions = node.find("versions"))
    for (const YamlNode* item : list(*versions, "versions")) {
      framework.versions.push_back(name(*item, "a version"));
      if (std::count(framework.versions.begin(), framework.versions.end(), item->scalar) > 1)
        fail(*item, fmt::format("version {} stands twice", item->scalar));
    }
  if (!framework.versions.empty()) framework.default_version = framework.versions.front();
  if (const YamlNode* wanted = node.find("default")) {
    framework.default_version = name(*wanted, "default");
    if (std::find(framework.versions.begin(), framework.versions.end(),
                  framework.default_version) == framework.versions.end())
      fail(*wanted,
           fmt::format("the default version {} is not in versions", framework.default_version));
  }
  if (const YamlNode* env = node.find("env")) framework.env = environment(*env);
  return framework;
}

void PolicyReader::account(const YamlNode& at, const std::string& account,
                           const std::string& tenant) {
  const auto [owner, fresh] = account_owner_.emplace(account, tenant);
  if (!fresh)
    fail(at, fmt::format("account {} already belongs to tenant {}", account, owner->second));
}

std::vector<std::string> PolicyReader::patterns(const YamlNode& node, const Policy& policy) {
  std::vector<std::string> patterns;
  for (const YamlNode* item : list(node, "frameworks")) {
    patterns.push_back(text(*item, "a framework pattern"));
    Tenant probe;
    probe.frameworks = {patterns.back()};
    bool matches = false;
    std::vector<std::string> known;
    for (const auto& [framework_name, framework] : policy.frameworks) {
      known.push_back(framework_name);
      matches = matches || probe.permits(framework_name, "");
      for (const std::string& version : framework.versions)
        matches = matches || probe.permits(framework_name, version);
    }
    if (matches) continue;
    const std::string hint = nearest(item->scalar, known);
    fail(*item, fmt::format("\"{}\" matches none of the frameworks of this file{}",
                            item->scalar.substr(0, kMostName),
                            hint.empty() ? "" : fmt::format("; did you mean \"{}\"?", hint)));
  }
  return patterns;
}

GpuLimits PolicyReader::gpus(const YamlNode& node) {
  GpuLimits limits;
  if (!mapping(node, "gpus", {"min", "max", "start", "step"})) return limits;
  const auto read = [&](const char* key, std::uint32_t fallback) {
    const YamlNode* value = node.find(key);
    return value ? number(*value, key, 1, GpusRange::kMost) : fallback;
  };
  limits.min = read("min", limits.min);
  limits.max = read("max", limits.max);
  limits.step = read("step", limits.step);
  if (limits.max < limits.min)
    fail(*node.find(node.find("max") ? "max" : "min"),
         fmt::format("max {} is smaller than min {}", limits.max, limits.min));
  limits.start = read("start", limits.min);
  if (!error_ && !limits.sizes().contains(limits.start))
    fail(*node.find("start"), fmt::format("start {} is not one of the sizes {}", limits.start,
                                          limits.sizes().to_string()));
  return limits;
}

Tenant PolicyReader::tenant(const std::string& tenant_name, const YamlNode& node,
                            const Policy& policy) {
  Tenant tenant;
  tenant.name = tenant_name;
  const YamlNode* list_node = nullptr;
  if (!node.is_null()) {
    const std::string what = fmt::format("tenant {}", tenant_name);
    if (!mapping(node, what, {"accounts", "frameworks", "gpus"})) return tenant;
    list_node = node.find("accounts");
    if (const YamlNode* frameworks = node.find("frameworks"))
      tenant.frameworks = patterns(*frameworks, policy);
    if (const YamlNode* limits = node.find("gpus")) tenant.gpus = gpus(*limits);
  }
  if (list_node) {
    for (const YamlNode* item : list(*list_node, "accounts")) {
      tenant.accounts.push_back(to_lower(name(*item, "an account")));
      account(*item, tenant.accounts.back(), tenant_name);
    }
  } else {
    tenant.accounts.push_back(to_lower(tenant_name));
    account(node, tenant.accounts.back(), tenant_name);
  }
  // A list that is given but empty permits nothing; one that is not given permits all.
  if (!node.find("frameworks")) tenant.frameworks = {"*"};
  return tenant;
}

Policy PolicyReader::read(const YamlNode& root) {
  Policy policy;
  if (!mapping(root, "the policy",
               {"version", "checkpoint_dir", "frameworks", "tenants", "default_tenant",
                "resize_site_factor"}))
    return policy;
  version(root);
  if (const YamlNode* node = root.find("checkpoint_dir"))
    policy.checkpoint_dir = checkpoint_dir(*node);
  if (const YamlNode* node = root.find("resize_site_factor"))
    policy.resize_site_factor = number(*node, "resize_site_factor", 0, kMostSiteFactor);
  if (const YamlNode* node = root.find("frameworks"); node && mapping(*node, "frameworks", {}))
    for (const auto& [key, value] : node->entries) {
      const std::string framework_name = name(key, "a framework's name");
      policy.frameworks[framework_name] = framework(framework_name, value);
    }
  if (const YamlNode* node = root.find("tenants"); node && mapping(*node, "tenants", {}))
    for (const auto& [key, value] : node->entries)
      policy.tenants.push_back(tenant(name(key, "a tenant's name"), value, policy));
  if (const YamlNode* node = root.find("default_tenant")) {
    policy.default_tenant = text(*node, "default_tenant");
    std::vector<std::string> known;
    for (const Tenant& tenant : policy.tenants) known.push_back(tenant.name);
    if (!policy.default_tenant.empty() &&
        std::find(known.begin(), known.end(), policy.default_tenant) == known.end())
      fail(*node, fmt::format("default_tenant \"{}\" is not one of the tenants {}",
                              policy.default_tenant.substr(0, kMostName), fmt::join(known, ", ")));
  }
  return policy;
}

}  // namespace

bool Tenant::permits(std::string_view framework, std::string_view version) const {
  const std::string plain(framework);
  const std::string full = version.empty() ? plain : fmt::format("{}:{}", framework, version);
  return std::any_of(frameworks.begin(), frameworks.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), plain.c_str(), 0) == 0 ||
           fnmatch(pattern.c_str(), full.c_str(), 0) == 0;
  });
}

const Tenant* Policy::tenant_of(std::string_view account) const {
  const Tenant* fallback = nullptr;
  for (const Tenant& tenant : tenants) {
    if (std::find(tenant.accounts.begin(), tenant.accounts.end(), account) != tenant.accounts.end())
      return &tenant;
    if (!default_tenant.empty() && tenant.name == default_tenant) fallback = &tenant;
  }
  return fallback;
}

Result<Policy> load_policy(std::string_view text, const std::string& filename) {
  auto root = parse_yaml(text, filename);
  if (!root) return root.error();
  PolicyReader reader(filename);
  Policy policy = reader.read(*root);
  if (reader.error()) return *reader.error();
  return policy;
}

}  // namespace bellows
