// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "jobsubmit/policy/policy.h"
#include "jobsubmit/policy/policy_reader_values.h"
#include "jobsubmit/policy/yaml_tree.h"

namespace bellows {

/// A mapping together with those from which it inherits. All nodes outlive it.
class Inherited {
 public:
  /// nullptr, where a level has no such mapping, is left out.
  explicit Inherited(std::initializer_list<const YamlNode*> outermost_first);

  /// The innermost mapping's own value.
  const YamlNode* own(std::string_view key) const;
  /// The innermost value.
  const YamlNode* find(std::string_view key) const;
  /// The value that stands innermost under one of two keys of which each replaces the other.
  const YamlNode* find_either(std::string_view one, std::string_view other) const;
  const YamlNode& innermost() const { return *levels_.back(); }

 private:
  std::vector<const YamlNode*> levels_;
};

Framework read_framework(ValueReader& in, const std::string& name, const YamlNode& node);

/// `outer` is what the levels outside the innermost one amount to.
GpuLimits read_gpus(ValueReader& in, const Inherited& keys, const GpuLimits& outer);

/// Of a tenant with these accounts; nothing for null.
std::optional<Quota> read_quota(ValueReader& in, const YamlNode& node,
                                const std::vector<std::string>& accounts);

/// The most members of one pool.
std::uint32_t read_pools(ValueReader& in, const YamlNode& node);
/// A number, or numbers by GPU type.
Guarantee read_guarantee(ValueReader& in, const YamlNode& node);

Sizing read_sizing(ValueReader& in, const Inherited& keys);

ControllerSettings read_controller(ValueReader& in, const YamlNode& node);

std::vector<SiteModel> read_models(ValueReader& in, const YamlNode& node,
                                   const std::vector<Tenant>& tenants);

}  // namespace bellows
