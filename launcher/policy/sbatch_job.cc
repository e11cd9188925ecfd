// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/sbatch_job.h"

#include <fmt/core.h>
#include <getopt.h>

#include <algorithm>
#include <utility>

#include "common/container/options.h"
#include "common/container/spec_text.h"
#include "jobsubmit/admission/sentence.h"
#include "launcher/policy/sbatch_script.h"
#include "launcher/policy/sbatch_sizes.h"
#include "launcher/policy/sbatch_table.h"

namespace bellows {
namespace {

constexpr int kFirstLong = 1000;

Error wrong(std::string text) { return Error{ErrorKind::invalid, std::move(text)}; }

/// The table in the form of getopt_long(3), by which sbatch itself reads its command line.
struct Grammar {
  Grammar() {
    brief = "+:";
    int index = kFirstLong;
    for (const SbatchOption& one : sbatch_options()) {
      static constexpr int kKinds[] = {no_argument, required_argument, optional_argument};
      names.push_back({one.name, kKinds[one.argument], nullptr, index++});
      if (one.brief != 0)
        brief += one.brief + std::string(static_cast<std::size_t>(one.argument), ':');
    }
    names.push_back({});
  }
  const SbatchOption& at(int found) const {
    const auto options = sbatch_options();
    if (found >= kFirstLong) return options[static_cast<std::size_t>(found - kFirstLong)];
    return *std::find_if(options.begin(), options.end(),
                         [&](const SbatchOption& one) { return one.brief == found; });
  }

  std::string brief;
  std::vector<option> names;
};

/// Collects what one source after another says; a later one wins.
class Reader {
 public:
  Status take(const SbatchOption& option, std::string_view value, std::string_view source);
  /// The index of the first argument that is not an option.
  Result<std::size_t> read(const std::vector<std::string>& arguments, std::string_view source);
  Status read_environment(const GetEnv& environment);
  SbatchJob finish() &&;

  bool wrapped() const { return said_.wrapped; }
  void set_heterogeneous() { said_.request.heterogeneous = true; }

 private:
  Status take_container(const SbatchOption& option, std::string_view value);
  void look_at(const SbatchOption& option, std::string_view value, std::string_view source);

  const Grammar grammar_;
  container::Collector container_{container::place_of_process()};
  SbatchSaid said_;
  SbatchJob job_;
};

Status Reader::take_container(const SbatchOption& option, std::string_view value) {
  const Status status = container_.take(*option.container, value);
  if (status.ok()) return status;
  return wrong(fmt::format("--{}: {}", option.name, shown(status.error().text, 512)));
}

void Reader::look_at(const SbatchOption& option, std::string_view value, std::string_view source) {
  std::string line = std::string("--") + option.name;
  if (!value.empty() && option.argument != SbatchOption::none) line += "=" + shown(value, 256);
  if (!source.empty()) line += fmt::format(" ({})", source);
  job_.looked_at.push_back(std::move(line));
}

Status Reader::take(const SbatchOption& option, std::string_view value, std::string_view source) {
  const std::string name = std::string("--") + option.name;
  if (option.container) {
    look_at(option, value, source);
    return take_container(option, value);
  }
  if (!option.take) {
    auto& names = job_.not_looked_at;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    return {};
  }
  if (!option.take(said_, value))
    return wrong(fmt::format("sbatch does not accept \"{}\" for {}", shown(value), name));
  if (std::string_view(option.name) == "wrap") return {};
  look_at(option, value, source);
  return {};
}

Result<std::size_t> Reader::read(const std::vector<std::string>& arguments,
                                 std::string_view source) {
  std::vector<std::string> copies = arguments;
  copies.insert(copies.begin(), "sbatch");
  std::vector<char*> argv;
  for (std::string& copy : copies) argv.push_back(copy.data());
  argv.push_back(nullptr);
  const int count = static_cast<int>(copies.size());
  optind = 0;  // makes glibc start from scratch
  opterr = 0;
  for (;;) {
    const int at = std::max(optind, 1);
    const int found =
        getopt_long(count, argv.data(), grammar_.brief.c_str(), grammar_.names.data(), nullptr);
    if (found < 0) return static_cast<std::size_t>(optind - 1);
    const std::string typed = shown(argv[static_cast<std::size_t>(std::min(at, count - 1))]);
    if (found == ':') return wrong(fmt::format("{} needs a value", typed));
    if (found == '?')
      return wrong(fmt::format(
          "sbatch has no option \"{}\", or several that begin like this, or it takes no value",
          typed));
    if (auto status = take(grammar_.at(found), optarg ? optarg : "", source); !status.ok())
      return status.error();
  }
}

Status Reader::read_environment(const GetEnv& environment) {
  for (const SbatchOption& option : sbatch_options()) {
    const char* value = option.variable ? environment(option.variable) : nullptr;
    if (!value) continue;
    if (auto status = take(option, value, option.variable); !status.ok())
      return wrong(fmt::format("{}: {}", option.variable, status.error().text));
  }
  for (const container::Setting& setting : container::read_variables(environment)) {
    job_.looked_at.push_back(fmt::format("{}={}", setting.variable, shown(setting.value, 256)));
    if (auto status = container_.take(setting); !status.ok())
      return wrong(fmt::format("{}: {}", setting.variable, shown(status.error().text, 512)));
  }
  return {};
}

SbatchJob Reader::finish() && {
  Request& request = said_.request;
  Sizes& sizes = request.sizes;
  std::string per_node = said_.gpus_per_node;
  if (!said_.gres.empty()) per_node += (per_node.empty() ? "" : ",") + said_.gres;
  if (!per_node.empty()) sizes.per_node = per_node;
  if (said_.hosts) sizes.min_nodes = std::max(sizes.min_nodes.value_or(0), *said_.hosts);
  auto cpus_per_task = said_.cpus_per_task;
  derive_sizes(sizes, said_.shape, said_.cpus_per_gpu, cpus_per_task);
  sizes.cpus_per_task = cpus_per_task.value_or(1);
  sizes.cpus_per_gpu = said_.cpus_per_gpu.value_or(0);
  request.cpus_said = request.cpus_said || cpus_per_task || said_.cpus_per_gpu;
  request.whole_nodes = said_.exclusive || said_.core_spec;
  request.batch = true;
  if (sizes.min_nodes == 0U) sizes.min_nodes.reset();
  if (std::string text = container::spec_text(container_.spec()); !text.empty())
    request.container = std::move(text);
  job_.request = std::move(request);
  job_.for_rules = std::move(said_.for_rules);
  return std::move(job_);
}

Status read_lines(Reader& reader, const std::string& path, const ReadScript& read_script) {
  const auto text = read_script(path);
  if (!text) return text.error();
  const auto options = script_options(*text);
  if (!options) return wrong(fmt::format("{}: {}", path, options.error().text));
  if (options->heterogeneous) reader.set_heterogeneous();
  const auto end = reader.read(options->arguments, "#SBATCH");
  if (!end) return wrong(fmt::format("{}: {}", path, end.error().text));
  return {};
}

}  // namespace

Result<SbatchJob> read_sbatch(const std::vector<std::string>& arguments, const GetEnv& environment,
                              const ReadScript& read_script) {
  Reader first;  // finds the script, whose options the others override
  const auto end = first.read(arguments, "");
  if (!end) return end.error();
  Reader reader;
  const bool parts = std::find(arguments.begin() + static_cast<std::ptrdiff_t>(*end),
                               arguments.end(), ":") != arguments.end();
  if (parts) reader.set_heterogeneous();
  std::string script;
  if (!first.wrapped() && *end < arguments.size() && !parts) script = arguments[*end];
  if (!script.empty())
    if (auto status = read_lines(reader, script, read_script); !status.ok()) return status.error();
  if (auto status = reader.read_environment(environment); !status.ok()) return status.error();
  if (auto again = reader.read(arguments, ""); !again) return again.error();
  SbatchJob job = std::move(reader).finish();
  job.script = std::move(script);
  return job;
}

}  // namespace bellows
