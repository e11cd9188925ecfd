// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "common/container/mount_grammar.h"
#include "common/model_names.h"
#include "common/text.h"
#include "jobsubmit/policy/policy_reader.h"

namespace bellows {
namespace {

/// Puts the mapping's variables over those in `env`.
void read_env(ValueReader& in, const YamlNode& node, std::map<std::string, std::string>& env) {
  if (!in.mapping(node, "env", {})) return;
  for (const auto& [key, value] : node.entries) {
    if (!is_variable_name(key.scalar))
      in.fail(key, fmt::format("\"{}\" is not the name of an environment variable",
                               key.scalar.substr(0, kMostName)));
    for (std::string_view prefix : {"SLURM_", "BELLOWS_", "SPANK_", "_SLURM_"})
      if (key.scalar.starts_with(prefix))
        in.fail(key, fmt::format("{} may not be set here: {}* belongs to {}", key.scalar, prefix,
                                 prefix == "BELLOWS_" ? "Bellows" : "Slurm"));
    env[key.scalar] = in.text(value, key.scalar);
  }
}

std::vector<std::string> read_mounts(ValueReader& in, const YamlNode& node) {
  std::vector<std::string> mounts = in.texts(node, "mounts", "a mount");
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const auto parts = split(mounts[i], ':');
    const bool good = (parts.size() == 2 || (parts.size() == 3 && parts[2] == "ro")) &&
                      parts[0].starts_with('/') && parts[1].starts_with('/');
    const auto mount = container::parse_mount(mounts[i], "");
    if (good && !mount) in.fail(node.items[i], mount.error().text);
    if (!good)
      in.fail(node.items[i], fmt::format("mount \"{}\" must be SOURCE:TARGET or SOURCE:TARGET:ro, "
                                         "with absolute paths",
                                         mounts[i].substr(0, kMostName)));
  }
  return mounts;
}

std::vector<std::string> read_model_names(ValueReader& in, const YamlNode& node) {
  std::vector<std::string> names = in.texts(node, "models", "a model's name");
  if (names.size() > kMostModels)
    in.fail(node, fmt::format("a job may have at most {} models", kMostModels));
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!is_model_name(names[i]))
      in.fail(node.items[i],
              fmt::format("no model can have the name \"{}\"", names[i].substr(0, kMostName)));
  return names;
}

std::vector<LaunchKind> read_launch(ValueReader& in, const YamlNode& node) {
  std::vector<LaunchKind> kinds;
  for (const YamlNode* item : in.list(node, "launch")) {
    const LaunchKind kind =
        kLaunchKinds[in.choice(*item, "a launch kind", {"mpi", "nccl", "torch", "plain", "ps"})];
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end())
      in.fail(*item, fmt::format("launch kind {} appears twice", item->scalar));
    kinds.push_back(kind);
  }
  if (kinds.empty()) in.fail(node, "launch is empty; leave it out to allow all of them");
  return kinds;
}

/// What a version inherits from its framework and may replace.
void read_inherited(ValueReader& in, const YamlNode& node, FrameworkVersion& version) {
  if (const YamlNode* image = node.find("image"))
    version.image =
        image->is_null() ? "" : container::normal_path(in.absolute_path(*image, "image"), "");
  if (const YamlNode* env = node.find("env")) read_env(in, *env, version.env);
  if (const YamlNode* mounts = node.find("mounts")) version.mounts = read_mounts(in, *mounts);
  if (const YamlNode* models = node.find("models")) version.models = read_model_names(in, *models);
  if (const YamlNode* prefix = node.find("prefix"))
    version.prefix = prefix->is_null() ? "" : in.short_text(*prefix, "prefix");
  if (const YamlNode* launch = node.find("launch")) version.launch = read_launch(in, *launch);
}

FrameworkVersion read_version(ValueReader& in, const YamlNode& key, const YamlNode& node,
                              const FrameworkVersion& base) {
  FrameworkVersion version = base;
  version.version = in.name(key, "a version");
  if (node.is_null()) return version;
  const std::string what = fmt::format("version {}", version.version);
  if (!in.mapping(node, what,
                  {"image", "env", "mounts", "models", "prefix", "launch", "state", "hint"}))
    return version;
  read_inherited(in, node, version);
  if (const YamlNode* state = node.find("state")) {
    constexpr LifeCycle kStates[] = {LifeCycle::supported, LifeCycle::deprecated,
                                     LifeCycle::removed};
    version.state = kStates[in.choice(*state, "state", {"supported", "deprecated", "removed"})];
  }
  if (const YamlNode* hint = node.find("hint")) {
    version.hint = in.short_text(*hint, "hint");
    if (version.state == LifeCycle::supported)
      in.fail(*hint, "a hint goes with state: deprecated or state: removed");
  }
  return version;
}

/// What other readers of YAML take for a number.
bool looks_like_number(const YamlNode& node) {
  const std::vector<std::string_view> parts = split(node.scalar, '.');
  return node.plain && parts.size() <= 2 &&
         std::all_of(parts.begin(), parts.end(),
                     [](std::string_view part) { return parse_uint(part).has_value(); });
}

/// Bellows reads 2.10 as it is written. A program that writes the file from another one may not.
void note_numbers(ValueReader& in, const YamlNode& node) {
  std::vector<const YamlNode*> names;
  for (const YamlEntry& entry : node.entries) names.push_back(&entry.key);
  for (const YamlNode& item : node.items) names.push_back(&item);
  const auto first = std::find_if(names.begin(), names.end(),
                                  [](const YamlNode* name) { return looks_like_number(*name); });
  if (first != names.end())
    in.note(**first,
            fmt::format("version {0} is not quoted; Bellows reads it as it is written, but "
                        "other programs read a number (2.10 is 2.1 to them); write \"{0}\"",
                        (*first)->scalar));
}

std::vector<FrameworkVersion> read_versions(ValueReader& in, const YamlNode& node,
                                            const FrameworkVersion& base) {
  std::vector<FrameworkVersion> versions;
  if (node.kind == YamlNode::Kind::scalar && !node.is_null())
    in.fail(node, fmt::format("versions must be a list; write versions: [\"{}\"]",
                              node.scalar.substr(0, kMostName)));
  note_numbers(in, node);
  if (node.kind == YamlNode::Kind::mapping) {
    for (const auto& [key, value] : node.entries)
      versions.push_back(read_version(in, key, value, base));
    return versions;
  }
  std::set<std::string> seen;
  for (const YamlNode* item : in.list(node, "versions")) {
    FrameworkVersion version = base;
    version.version = in.name(*item, "a version");
    if (!seen.insert(version.version).second)
      in.fail(*item, fmt::format("version {} appears twice", item->scalar));
    versions.push_back(std::move(version));
  }
  return versions;
}

void choose_default(ValueReader& in, const YamlNode& node, Framework& framework) {
  if (const YamlNode* wanted = node.find("default")) {
    framework.default_version = in.name(*wanted, "default");
    const FrameworkVersion* version = framework.find(framework.default_version);
    if (!version)
      in.fail(*wanted,
              fmt::format("the default version {} is not in versions", framework.default_version));
    else if (version->state == LifeCycle::removed)
      in.fail(*wanted, fmt::format("the default version {} is removed", framework.default_version));
    return;
  }
  for (const FrameworkVersion& version : framework.versions)
    if (version.state != LifeCycle::removed) {
      framework.default_version = version.version;
      return;
    }
  in.fail(*node.find("versions"), "all versions are removed; keep one, or remove the framework");
}

}  // namespace

Framework read_framework(ValueReader& in, const std::string& name, const YamlNode& node) {
  Framework framework;
  FrameworkVersion base;
  if (node.kind == YamlNode::Kind::scalar && !node.is_null())
    in.fail(node, fmt::format("framework {} must be a mapping; write {}: {{versions: [\"{}\"]}}",
                              name, name, node.scalar.substr(0, kMostName)));
  const bool given = !node.is_null() && in.mapping(node, fmt::format("framework {}", name),
                                                   {"versions", "default", "image", "env", "mounts",
                                                    "models", "prefix", "launch"});
  if (given) {
    read_inherited(in, node, base);
    if (const YamlNode* versions = node.find("versions"))
      framework.versions = read_versions(in, *versions, base);
  }
  if (framework.versions.empty()) framework.versions.push_back(std::move(base));
  if (given) choose_default(in, node, framework);
  return framework;
}

}  // namespace bellows
