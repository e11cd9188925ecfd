// SPDX-License-Identifier: Apache-2.0
#include "spank/submit.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/container/options.h"
#include "common/container/spec_text.h"
#include "common/contract.h"
#include "common/gpus_range.h"
#include "common/model_names.h"
#include "common/pool_option.h"
#include "common/text.h"
#include "common/variables.h"
#include "spank/controller.h"
#include "spank/environment.h"
#include "spank/job_store.h"

namespace bellows::spank {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

/// What is wrong with the options of this command; empty: nothing so far. Slurm's callbacks are
/// plain functions without a context of ours, so it must live in this file; there is one command in
/// a process.
std::string& problem() {
  static std::string text;
  return text;
}

bool is_command(std::string_view name) { return name == program_invocation_short_name; }

/// Slurm adds "Invalid --OPTION argument: (null)" to the sentence of a callback that fails.
/// Therefore it succeeds, and end_if_wrong() ends the command; but scrontab never comes to that.
int complain(std::string_view what, const Status& status) {
  if (status.ok()) return 0;
  std::string text = fmt::format("bellows: {}: {}", what, status.error().text);
  if (is_command("scrontab")) {
    slurm_error("%s", text.c_str());
    return -1;
  }
  if (problem().empty()) problem() = std::move(text);
  return 0;
}

/// In slurmstepd (`remote`) a value means nothing: only the stored contract counts there.
int report(const char* option, const Status& status, int remote) {
  return remote != 0 ? 0 : complain(fmt::format("--{}", option), status);
}

int take_framework(int, const char* value, int remote) noexcept {
  try {
    const auto framework = parse_framework(value == nullptr ? "" : value);
    return report("framework", framework ? Status() : framework.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_gpus_range(int, const char* value, int remote) noexcept {
  try {
    const auto range = GpusRange::parse(value == nullptr ? "" : value);
    return report("gpus-range", range ? Status() : range.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_batch_range(int, const char* value, int remote) noexcept {
  try {
    const auto range = BatchRange::parse(value == nullptr ? "" : value);
    return report("batch-range", range ? Status() : range.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_models(int, const char* value, int remote) noexcept {
  try {
    const auto names = parse_model_names(value == nullptr ? "" : value);
    return report("model", names ? Status() : names.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_model_on(int, const char* value, int remote) noexcept {
  try {
    const auto on_gpu = parse_model_on(value == nullptr ? "" : value);
    return report("model-on", on_gpu ? Status() : on_gpu.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_pool(int, const char* value, int remote) noexcept {
  try {
    const auto pool = PoolOption::parse(value == nullptr ? "" : value);
    return report("pool", pool ? Status() : pool.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_job_class(int, const char* value, int remote) noexcept {
  try {
    const auto name = parse_job_class(value == nullptr ? "" : value);
    return report("job-class", name ? Status() : name.error(), remote);
  } catch (...) {
    return -1;
  }
}

/// What the --container options of this command say; here for the same reason as problem().
struct ContainerOptions {
  container::Collector collector{container::place_of_process()};
  std::vector<container::Setting> settings;
};
ContainerOptions& container_options() {
  static ContainerOptions options;
  return options;
}

/// A value that Slurm read from its own variable, into which export_variables() put it.
const container::Setting* setting_of(container::Option option, std::string_view value) {
  for (const container::Setting& setting : container_options().settings)
    if (setting.option == option && value == setting.variable + "=" + setting.value)
      return &setting;
  return nullptr;
}

int take_container(int which, const char* value, int remote) noexcept {
  try {
    if (remote != 0) return 0;
    const container::OptionInfo& info = container::options()[static_cast<std::size_t>(which)];
    const std::string_view text = value == nullptr ? "" : value;
    container::Collector& collector = container_options().collector;
    if (const container::Setting* setting = setting_of(info.option, text))
      return complain(setting->variable, collector.take(*setting));
    if (info.option == container::Option::save && is_command("salloc"))
      return report(info.name,
                    Error{ErrorKind::invalid,
                          "salloc has no step whose container could be saved, and steps one after "
                          "another would write the same file; give it to srun"},
                    remote);
    return report(info.name, collector.take(info.option, info.argument ? text : ""), remote);
  } catch (...) {
    return -1;
  }
}

// Slurm's structure has char* members that it only copies.
char* literal(const char* text) { return const_cast<char*>(text); }

spank_option with_value(const char* name, const char* value, const char* help,
                        spank_opt_cb_f take) {
  return {literal(name), literal(value), literal(help), 1, 0, take};
}

std::optional<std::uint32_t> outer_job() {
  const auto id = environment("SLURM_JOB_ID");
  if (!id) return std::nullopt;
  const auto number = parse_uint(*id);
  if (!number || *number == 0 || *number > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

}  // namespace

void register_options(spank_t spank) {
  std::vector<spank_option> all = {
      with_value("framework", "NAME[:VERSION]",
                 "deep-learning framework of an elastic job, such as pytorch:2.1 (Bellows)",
                 take_framework),
      with_value(
          "gpus-range", "RANGE",
          "numbers of GPUs the job may run with: N, MIN-MAX, MIN-MAX:STEP or A,B,C (Bellows)",
          take_gpus_range),
      with_value("batch-range", "MIN-MAX",
                 "global batch sizes the program may use as its number of GPUs changes (Bellows)",
                 take_batch_range),
      with_value(
          "job-class", "NAME",
          "jobs of yours with the same name train alike, and learn from one another (Bellows)",
          take_job_class),
      with_value("model", "NAME[,NAME...]",
                 "models whose memory the job's nodes lend to its programs (Bellows)", take_models),
      with_value("model-on", "gpu|memory",
                 "where the models are lent: gpu puts them on the job's GPUs, too (Bellows)",
                 take_model_on),
      with_value("pool", "NAME[:MIN-MAX]",
                 "elastic pool the job is a member of; with a range, it is the keeper (Bellows)",
                 take_pool)};
  for (const container::OptionInfo& info : container::options())
    all.push_back({literal(info.name), literal(info.argument), literal(info.help),
                   info.argument == nullptr ? 0 : 1, static_cast<int>(info.option),
                   take_container});
  for (spank_option& option : all)
    if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
      slurm_error("bellows: cannot register the option --%s", option.name);
}

void export_variables() {
  ContainerOptions& options = container_options();
  options.settings =
      container::read_variables([](const char* name) -> const char* { return std::getenv(name); });
  for (const container::Setting& setting : options.settings)
    ::setenv((kExported + option_variable(container::info_of(setting.option).name)).c_str(),
             (setting.variable + "=" + setting.value).c_str(), 1);
}

void check_save(const Settings& settings) {
  if (!settings.site.batch_in_container && is_command("sbatch") &&
      !container_options().collector.spec().save.empty())
    (void)complain("--container-save",
                   Error{ErrorKind::invalid,
                         "it would save nothing, since batch scripts run on the host here; give it "
                         "to the srun whose container it is to save"});
}

void end_if_wrong() {
  if (problem().empty()) return;
  slurm_error("%s", problem().c_str());
  const auto status = parse_uint(environment("SLURM_EXIT_ERROR").value_or(""));
  // An error that is returned has two more lines of Slurm's, and none if the plugin is optional.
  ::_exit(status && *status > 0 && *status < 256 ? static_cast<int>(*status) : 1);
}

void hand_on_container(spank_t spank) {
  for (const container::OptionInfo& info : container::options()) {
    const std::string name = option_variable(info.name);
    spank_job_control_unsetenv(spank, name.c_str());
    ::unsetenv(name.c_str());
    ::unsetenv((kExported + name).c_str());
  }
  // The steps of the job would read them again, and they would take precedence.
  for (const std::string& name : container_options().collector.beaten_variables())
    ::unsetenv(name.c_str());
  const std::string text = container::spec_text(container_options().collector.spec());
  if (text.empty()) return;
  if (spank_job_control_setenv(spank, kContainerVariable, text.c_str(), 1) != ESPANK_SUCCESS)
    slurm_error("bellows: cannot pass on the --container options; the job runs without them");
  if (spank_context() == S_CTX_LOCAL) ::setenv(kStepVariable, text.c_str(), 1);
}

void tell_place_of_script(const Settings& settings) {
  if (settings.site.batch_in_container || container_options().collector.spec().image.empty() ||
      !is_command("sbatch"))
    return;
  slurm_info(
      "bellows: the batch script runs on the host here; what it starts with srun runs in the "
      "image");
}

void forget_outer_job() {
  ::unsetenv(kStepVariable);
  if (!environment("SLURM_JOB_ID")) return;
  for (const std::string& name : option_variables()) ::unsetenv(name.c_str());
}

void forget_outer_contract() {
  if (!environment("SLURM_JOB_ID")) return;
  for (const Change& change : no_job_variables()) ::unsetenv(change.name.c_str());
  ::unsetenv(kSizeVariable);
  ::unsetenv(kRunVariable);
}

void correct_size_for_srun(const Settings& settings) {
  const auto job = outer_job();
  // A step inside a step has the outer step's size, which is not stale. From 26.05 a batch script
  // is told the number of its own step, too.
  const auto step = parse_uint(environment("SLURM_STEP_ID").value_or(""));
  if (!job || (step && *step <= SLURM_MAX_NORMAL_STEP_ID)) return;
  const auto contract = JobStore(settings.run_dir).load(*job, ::getuid());
  if (!contract || !contract->has_value() || (*contract)->is_plain()) return;
  const auto view = read_job(*job);
  if (!view || !view->running) return;
  // The batch step has corrected this size already; what differs now, the script has set itself.
  if (environment(kSizeVariable) == size_marker(view->held)) return;
  for (const Change& change : size_corrections(view->held, is_elastic(**contract), environment)) {
    if (change.value)
      ::setenv(change.name.c_str(), change.value->c_str(), 1);
    else
      ::unsetenv(change.name.c_str());
  }
}

}  // namespace bellows::spank
