// SPDX-License-Identifier: Apache-2.0
#include "spank/task_variables.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "common/fd.h"
#include "spank/container/entrypoint.h"
#include "spank/container/hook_variables.h"
#include "spank/container/task.h"
#include "spank/container/task_prolog.h"
#include "spank/step_environment.h"

namespace bellows::spank {
namespace {

container::VariableLookup lookup_in(spank_t spank) {
  return [spank](const char* name) { return environment(spank, name); };
}

}  // namespace

Status set_variable(spank_t spank, const std::string& name, const std::string& value) {
  if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS)
    return Error{ErrorKind::internal, fmt::format("cannot set {}", name)};
  return {};
}

Status set_variables(spank_t spank, const container::Variables& variables) {
  for (const auto& [name, value] : variables)
    if (auto status = set_variable(spank, name, value); !status.ok()) return status;
  return {};
}

Status move_pmix(spank_t spank, const std::pair<std::string, std::string>& moved) {
  if (moved.first.empty()) return {};
  char** variables = nullptr;
  if (spank_get_item(spank, S_JOB_ENV, &variables) != ESPANK_SUCCESS) return {};
  container::Variables changes;
  for (char** entry = variables; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (!text.starts_with("PMIX_") || equals == std::string_view::npos) continue;
    const std::string_view value = text.substr(equals + 1);
    if (value.starts_with(moved.first))
      changes.emplace_back(text.substr(0, equals),
                           moved.second + std::string(value.substr(moved.first.size())));
  }
  return set_variables(spank, changes);
}

container::Variables container_variables(spank_t spank, const container::Spec& spec,
                                         const container::Site& site) {
  for (const std::string& name : container::dropped_variables(spec))
    spank_unsetenv(spank, name.c_str());
  const auto lookup = lookup_in(spank);
  auto variables = container::image_variables(spec, lookup);
  const auto hooks = container::hook_variables(spec, variables, lookup);
  variables.insert(variables.end(), hooks.begin(), hooks.end());
  if (container::is_fake_root(spec, site) && !container::keeps(spec, "HOME", lookup))
    variables.emplace_back("HOME", container::kRootHome);
  return variables;
}

Result<container::Variables> entrypoints_variables(spank_t spank, const container::Spec& spec,
                                                   const container::Variables& variables) {
  const auto lookup = lookup_in(spank);
  const auto before = container::entrypoint_variables(spec, variables, lookup);
  const auto after = container::run_entrypoint(before, spec.entrypoint_log
                                                           ? container::EntrypointOutput::shown
                                                           : container::EntrypointOutput::on_error);
  if (!after) return after.error();
  return container::variables_after(spec, before, *after, lookup);
}

Status obey_prolog(spank_t spank, const std::string& said) {
  using Kind = container::PrologLine::Kind;
  for (const auto& line : container::parse_prolog(said)) {
    if (line.kind == Kind::unset) spank_unsetenv(spank, line.name.c_str());
    if (line.kind == Kind::print)
      (void)write_all(STDOUT_FILENO, line.value + "\n", "standard output");
    if (line.kind != Kind::set) continue;
    if (auto status = set_variable(spank, line.name, line.value); !status.ok()) return status;
  }
  return {};
}

}  // namespace bellows::spank
