// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "spank/environment.h"

// What the tests of the plugin's node side share: a job's contract and environments.
namespace bellows::spank {

inline Contract contract_of(const std::string& line) {
  auto contract = Contract::parse(line);
  cr_assert(contract.ok(), "%s", line.c_str());
  return *std::move(contract);
}

inline const Contract kContract = contract_of(
    "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/ck/%25u/%25a/%25j user=alice "
    "account=dept");

using Map = std::map<std::string, std::string>;

inline Map as_map(const std::vector<Change>& changes) {
  Map map;
  for (const Change& change : changes) map[change.name] = change.value.value_or("(unset)");
  return map;
}

inline Lookup lookup_in(const Map& environment) {
  return [environment](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
}

}  // namespace bellows::spank
