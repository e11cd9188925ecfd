// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// An account on one cluster, as slurmdbd keeps it.
struct SlurmAccount {
  std::string parent;                 ///< empty: it is the root
  std::optional<std::uint64_t> gpus;  ///< gres/gpu in its GrpTRES
  std::set<std::string> qos;          ///< allowed there, inherited ones too
};

/// The accounts of one cluster and the QOS of all.
struct SlurmAccounts {
  std::map<std::string, SlurmAccount, std::less<>> accounts;
  std::set<std::string> qos;
};

/// What `scontrol show config` says about accounting.
struct SlurmAccounting {
  std::string cluster;
  std::string type;               ///< accounting_storage/slurmdbd keeps accounts
  std::set<std::string> tres;     ///< lower case
  std::set<std::string> enforce;  ///< lower case
};

/// The questions whose answers the parsers below take; without a cluster, the local one.
std::vector<std::string> ask_accounting(const std::string& cluster);
std::vector<std::string> ask_accounts(const std::string& cluster);
std::vector<std::string> ask_qos();

/// invalid: a sentence on the first line that cannot be an answer.
Result<SlurmAccounting> parse_accounting(std::string_view config);
Result<SlurmAccounts> parse_accounts(std::string_view accounts, std::string_view qos);

}  // namespace bellows
