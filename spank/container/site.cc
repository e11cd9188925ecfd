// SPDX-License-Identifier: Apache-2.0
#include "spank/container/site.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows::container {
namespace {

Error bad(std::string_view name, std::string_view value, std::string_view accepted) {
  return {ErrorKind::invalid, fmt::format("{}={}: {}", name, value.substr(0, 128), accepted)};
}

Status set_flag(bool& flag, std::string_view name, std::string_view value) {
  const bool yes = value == "yes" || value == "true";
  if (!yes && value != "no" && value != "false") return bad(name, value, "write yes or no");
  flag = yes;
  return {};
}

/// Absolute paths, separated by ":".
Status set_paths(std::vector<std::string>& paths, std::string_view name, std::string_view value) {
  std::vector<std::string> read;
  for (const std::string_view path : split(value, ':')) {
    if (path.size() < 2 || path[0] != '/' || path.find("..") != std::string_view::npos)
      return bad(name, value, "write absolute paths, with \":\" between them");
    read.emplace_back(path.back() == '/' ? path.substr(0, path.size() - 1) : path);
  }
  paths = std::move(read);
  return {};
}

Status set_path(std::string& path, std::string_view name, std::string_view value) {
  std::vector<std::string> read;
  if (auto status = set_paths(read, name, value); !status.ok() || read.size() != 1)
    return bad(name, value, "write an absolute path");
  path = read.front();
  return {};
}

/// A number of MiB, or with M, G or T at its end.
Status set_size(std::uint64_t& mib, std::string_view name, std::string_view value) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  std::uint64_t unit = 1;
  std::string_view digits = value;
  if (value.ends_with('M') || value.ends_with('G') || value.ends_with('T')) {
    digits.remove_suffix(1);
    if (value.back() == 'G') unit = 1024;
    if (value.back() == 'T') unit = 1024 * 1024;
  }
  const auto number = parse_uint(digits);
  if (!number || *number == 0 || *number > kMost / unit)
    return bad(name, value, "write a size such as 512M or 64G");
  mib = *number * unit;
  return {};
}

Status set_program(std::string& program, std::string_view name, std::string_view value) {
  const bool path = value.size() > 1 && value[0] == '/';
  if (!path && value != "no") return bad(name, value, "write the program's path, or no");
  program = path ? value : "";
  return {};
}

Status set_scope(bool& lasting, std::string_view name, std::string_view value) {
  if (value != "job" && value != "global") return bad(name, value, "write job or global");
  lasting = value == "global";
  return {};
}

Status set_task_prolog(bool& in_container, std::string_view name, std::string_view value) {
  if (value != "host" && value != "container") return bad(name, value, "write host or container");
  in_container = value == "container";
  return {};
}

Status set_number(std::uint32_t& to, std::uint32_t most, std::string_view name,
                  std::string_view value) {
  const auto number = parse_uint(value);
  if (!number || *number < 1 || *number > most)
    return bad(name, value, fmt::format("write a number from 1 to {}", most));
  to = static_cast<std::uint32_t>(*number);
  return {};
}

struct Setting {
  std::string_view name;
  Status (*set)(Site& site, std::string_view name, std::string_view value);
};

constexpr Setting kSettings[] = {
    {"image_dirs", [](Site& s, auto n, auto v) { return set_paths(s.image_dirs, n, v); }},
    {"image_importer", [](Site& s, auto n, auto v) { return set_path(s.image_importer, n, v); }},
    {"image_cache", [](Site& s, auto n, auto v) { return set_path(s.image_cache, n, v); }},
    {"image_cache_budget",
     [](Site& s, auto n, auto v) { return set_size(s.image_budget_mib, n, v); }},
    {"squashfuse", [](Site& s, auto n, auto v) { return set_program(s.squashfuse, n, v); }},
    {"mksquashfs", [](Site& s, auto n, auto v) { return set_program(s.mksquashfs, n, v); }},
    {"container_scope", [](Site& s, auto n, auto v) { return set_scope(s.lasting.wanted, n, v); }},
    {"containers_days",
     [](Site& s, auto n, auto v) { return set_number(s.lasting.days, 36500, n, v); }},
    {"containers_budget", [](Site& s, auto n, auto v) { return set_size(s.lasting.mib, n, v); }},
    {"containers_dir", [](Site& s, auto n, auto v) { return set_path(s.lasting.directory, n, v); }},
    {"devices", [](Site& s, auto n, auto v) { return set_paths(s.devices, n, v); }},
    {"tmp_size", [](Site& s, auto n, auto v) { return set_size(s.tmp_mib, n, v); }},
    {"shm_size", [](Site& s, auto n, auto v) { return set_size(s.shm_mib, n, v); }},
    {"tmp_keep", [](Site& s, auto n, auto v) { return set_paths(s.tmp_keep, n, v); }},
    {"mount_home", [](Site& s, auto n, auto v) { return set_flag(s.mount_home, n, v); }},
    {"remap_root", [](Site& s, auto n, auto v) { return set_flag(s.remap_root, n, v); }},
    {"user_namespace", [](Site& s, auto n, auto v) { return set_flag(s.user_namespace, n, v); }},
    {"writable", [](Site& s, auto n, auto v) { return set_flag(s.writable, n, v); }},
    {"entrypoint", [](Site& s, auto n, auto v) { return set_flag(s.entrypoint, n, v); }},
    {"batch_in_container",
     [](Site& s, auto n, auto v) { return set_flag(s.batch_in_container, n, v); }},
    {"task_prolog",
     [](Site& s, auto n, auto v) { return set_task_prolog(s.task_prolog_in_container, n, v); }},
    {"no_new_privs", [](Site& s, auto n, auto v) { return set_flag(s.no_new_privs, n, v); }},
    {"require_fence", [](Site& s, auto n, auto v) { return set_flag(s.require_fence, n, v); }},
    {"max_containers",
     [](Site& s, auto n, auto v) { return set_number(s.max_containers, 1024, n, v); }},
    {"phase_seconds",
     [](Site& s, auto n, auto v) { return set_number(s.phase_seconds, 3600, n, v); }},
    {"save_seconds",
     [](Site& s, auto n, auto v) { return set_number(s.save_seconds, 86400, n, v); }},
    {"pause_at",
     [](Site& s, auto, auto v) {
       s.pause_at = v;
       // plugstack.conf ends a word at a space, and knows no quotes.
       std::replace(s.pause_at.begin(), s.pause_at.end(), '_', ' ');
       return Status();
     }},
};

}  // namespace

Status set_site(Site& site, std::string_view argument) {
  const auto equals = argument.find('=');
  const std::string_view name = argument.substr(0, equals);
  const auto* setting = std::find_if(std::begin(kSettings), std::end(kSettings),
                                     [name](const Setting& s) { return s.name == name; });
  if (equals == std::string_view::npos || setting == std::end(kSettings))
    return Error{
        ErrorKind::not_found,
        fmt::format(
            "\"{}\" is not a setting of spank_bellows.so; they are run_dir, model_store, {}",
            argument.substr(0, 64), kSiteSettings)};
  return setting->set(site, name, argument.substr(equals + 1));
}

}  // namespace bellows::container
