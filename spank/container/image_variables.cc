// SPDX-License-Identifier: Apache-2.0
#include "spank/container/image_variables.h"

#include <unistd.h>

#include <algorithm>

#include "common/fd.h"
#include "common/text.h"
#include "spank/container/driver_files.h"

namespace bellows::container {
namespace {

constexpr std::size_t kMostBytes = 65536;
/// An image must not change what Slurm and the plugins say about the step.
constexpr std::string_view kKept[] = {"SLURM", "SPANK", "BELLOWS", "PMI", "CUDA_VISIBLE"};

bool is_asked_for(const Spec& spec, std::string_view name) {
  return std::find(spec.env.begin(), spec.env.end(), name) != spec.env.end();
}

bool is_ours(std::string_view name) {
  return std::any_of(std::begin(kKept), std::end(kKept),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string_view unquoted(std::string_view value) {
  if (value.size() < 2 || value.front() != value.back()) return value;
  if (value.front() != '"' && value.front() != '\'') return value;
  return value.substr(1, value.size() - 2);
}

/// The list as it will be: what the image says about it, else what the step has.
std::string list(const Variables& variables, const char* name, const VariableLookup& lookup) {
  for (auto it = variables.rbegin(); it != variables.rend(); ++it)
    if (it->first == name) return it->second;
  return lookup(name).value_or("");
}

}  // namespace

bool says(const Variables& variables, std::string_view name) {
  return std::any_of(variables.begin(), variables.end(),
                     [name](const auto& entry) { return entry.first == name; });
}

Variables parse_environment(std::string_view text) {
  Variables variables;
  for (const std::string_view line : split(text, '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || !is_variable_name(line.substr(0, equals))) continue;
    const std::string_view value = line.substr(equals + 1);
    if (value.find('\0') != std::string_view::npos) continue;
    variables.emplace_back(line.substr(0, equals), unquoted(value));
  }
  return variables;
}

std::vector<std::string> dropped_variables(const Spec& spec) {
  std::vector<std::string> names = {"LANG", "LANGUAGE", "LC_ALL"};
  std::erase_if(names, [&spec](const auto& name) { return is_asked_for(spec, name); });
  return names;
}

bool keeps(const Spec& spec, std::string_view name, const VariableLookup& lookup) {
  return is_asked_for(spec, name) && lookup(std::string(name).c_str()).has_value();
}

Variables image_settings(std::string_view text, const Spec& spec, const VariableLookup& lookup) {
  Variables variables = parse_environment(text);
  std::erase_if(variables, [&](const auto& entry) {
    return is_ours(entry.first) || keeps(spec, entry.first, lookup);
  });
  return variables;
}

Variables image_variables(const Spec& spec, const VariableLookup& lookup) {
  // An image need not have one.
  const auto text = read_file("/etc/environment", kMostBytes);
  Variables variables = image_settings(text ? *text : "", spec, lookup);
  if (::access(kDriverDirectory, F_OK) == 0)
    variables.emplace_back("LD_LIBRARY_PATH", with_first(list(variables, "LD_LIBRARY_PATH", lookup),
                                                         kDriverDirectory));
  if (::access(kToolDirectory, F_OK) == 0)
    variables.emplace_back("PATH", with_last(list(variables, "PATH", lookup), kToolDirectory));
  return variables;
}

}  // namespace bellows::container
