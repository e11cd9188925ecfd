// SPDX-License-Identifier: Apache-2.0
#include "launcher/slurm/accounts.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostShown = 400;
constexpr std::string_view kGpus = "gres/gpu";

/// A name that can stand in a list and on a terminal.
bool is_plain(std::string_view name) {
  return !name.empty() && name.find(',') == std::string_view::npos &&
         std::none_of(name.begin(), name.end(), is_control);
}

Error odd(std::string_view what, std::string_view line) {
  return Error{ErrorKind::invalid, fmt::format("sacctmgr gave a line that is not {}: \"{}\"", what,
                                               one_line(line, kMostShown))};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  std::erase_if(lines, [](std::string_view line) { return line.empty(); });
  return lines;
}

/// False: it is not a list of NAME=NUMBER.
bool parse_gpus(std::string_view tres, std::optional<std::uint64_t>& gpus) {
  if (tres.empty()) return true;
  for (std::string_view item : split(tres, ',')) {
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0) return false;
    if (to_lower(item.substr(0, equals)) != kGpus) continue;
    if (gpus) return false;
    gpus = parse_uint(item.substr(equals + 1));
    if (!gpus) return false;
  }
  return true;
}

/// False: it is not a list of names. A name that begins with - is removed from the inherited ones.
bool parse_qos(std::string_view list, std::set<std::string>& qos) {
  if (list.empty()) return true;
  for (std::string_view name : split(list, ',')) {
    const bool taken = name.starts_with('-');
    if (taken || name.starts_with('+')) name.remove_prefix(1);
    if (!is_plain(name)) return false;
    if (!taken) qos.insert(to_lower(name));
  }
  return true;
}

/// Account, user, parent, GrpTRES, QOS. False: it is not an association.
bool parse_association(std::string_view line, SlurmAccounts& found) {
  const std::vector<std::string_view> fields = split(line, '|');
  if (fields.size() != 5 || !is_plain(fields[0])) return false;
  if (!fields[1].empty()) return true;  // of a user
  SlurmAccount account;
  if (!fields[2].empty() && !is_plain(fields[2])) return false;
  account.parent = to_lower(fields[2]);
  return parse_gpus(fields[3], account.gpus) && parse_qos(fields[4], account.qos) &&
         found.accounts.emplace(to_lower(fields[0]), std::move(account)).second;
}

/// A way up from each account that ends at the root.
Status check_tree(const SlurmAccounts& found) {
  for (const auto& [name, account] : found.accounts) {
    std::size_t steps = 0;
    for (std::string_view at = name; !at.empty(); ++steps) {
      const auto next = found.accounts.find(at);
      if (next == found.accounts.end() || steps > found.accounts.size())
        return Error{ErrorKind::invalid,
                     fmt::format("sacctmgr gave account {}, but no path from it to the root",
                                 one_line(name, kMostShown))};
      at = next->second.parent;
    }
  }
  return {};
}

std::set<std::string> lower_case_set(std::string_view list) {
  std::set<std::string> items;
  for (std::string_view item : split(list, ','))
    if (!item.empty()) items.insert(to_lower(item));
  return items;
}

/// Nothing but what sacctmgr takes as one name.
bool is_cluster(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return is_alphanumeric(c) || c == '_' || c == '-' || c == '.';
  }) && name.front() != '-';
}

}  // namespace

std::vector<std::string> ask_accounting(const std::string& cluster) {
  if (cluster.empty()) return {"scontrol", "show", "config"};
  return {"scontrol", "--cluster=" + cluster, "show", "config"};
}

std::vector<std::string> ask_accounts(const std::string& cluster) {
  return {"sacctmgr", "--noheader",        "--parsable2",
          "show",     "associations",      "format=Account,User,ParentName,GrpTRES,QOS",
          "where",    "cluster=" + cluster};
}

std::vector<std::string> ask_qos() {
  return {"sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name"};
}

Result<SlurmAccounting> parse_accounting(std::string_view config) {
  SlurmAccounting found;
  for (std::string_view line : lines_of(config)) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = trim(line.substr(0, equals));
    const std::string_view value = trim(line.substr(equals + 1));
    if (key == "ClusterName") found.cluster = value;
    if (key == "AccountingStorageType") found.type = value;
    if (key == "AccountingStorageTRES") found.tres = lower_case_set(value);
    if (key == "AccountingStorageEnforce") found.enforce = lower_case_set(value);
  }
  if (!is_cluster(found.cluster) || found.type.empty())
    return Error{ErrorKind::invalid, fmt::format("scontrol show config gave no valid ClusterName "
                                                 "and AccountingStorageType: \"{}\", \"{}\"",
                                                 one_line(found.cluster, kMostShown),
                                                 one_line(found.type, kMostShown))};
  return found;
}

Result<SlurmAccounts> parse_accounts(std::string_view accounts, std::string_view qos) {
  SlurmAccounts found;
  for (std::string_view line : lines_of(accounts))
    if (!parse_association(line, found)) return odd("an account", line);
  for (std::string_view line : lines_of(qos)) {
    if (!is_plain(line) || line.find('|') != std::string_view::npos) return odd("a QOS", line);
    found.qos.insert(to_lower(line));
  }
  if (!found.accounts.count("root"))
    return Error{ErrorKind::invalid,
                 "sacctmgr knows no account root on this cluster: add the cluster first, with "
                 "sacctmgr add cluster"};
  if (Status tree = check_tree(found); !tree) return tree.error();
  return found;
}

}  // namespace bellows
