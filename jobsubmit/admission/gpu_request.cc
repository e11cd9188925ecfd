// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/gpu_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <vector>

#include "common/gpus_range.h"
#include "common/text.h"
#include "jobsubmit/admission/gres_text.h"
#include "jobsubmit/admission/sentence.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

Error unclear(std::string text) { return Error{ErrorKind::invalid, std::move(text)}; }

/// "1g.10gb" and "a100_3g.20gb": what gres.conf calls a slice of a GPU (MIG).
bool is_slice(std::string_view type) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto dot = type.find("g.");
  if (dot == std::string_view::npos || dot == 0 || !digit(type[dot - 1])) return false;
  std::size_t i = dot + 2;
  while (i < type.size() && digit(type[i])) ++i;
  return i > dot + 2 && type.substr(i).starts_with("gb");
}

/// One field of the job, split into its GPUs and the rest.
struct Field {
  std::uint64_t gpus = 0;
  bool mixed = false;
  std::string type;
  std::set<std::string> types;
  std::string rest;
  bool gres = false;  ///< BELLOWS_GRES stands somewhere in it

  bool any() const { return gpus > 0; }
};

Status check_whole(const GresItem& item) {
  if (item.name == "shard" || item.name == "mps")
    return unclear(fmt::format(
        "shares of a GPU ({}) cannot be combined with --framework, --gpus-range and --container "
        "options, "
        "which count whole GPUs; ask for some, as with --gpus=1, or leave these options out",
        item.name));
  if (item.name == "mig" || (item.name == "gpu" && is_slice(to_lower(item.type))))
    return unclear(fmt::format(
        "slices of a GPU ({}) cannot be combined with --framework, --gpus-range and --container "
        "options, "
        "which count whole GPUs; ask for some, as with --gpus=1, or leave these options out",
        item.type.empty() ? item.name : item.type));
  if (item.name == "gpu" && item.count > GpusRange::kMost)
    return unclear(fmt::format("{} GPUs are more than the {} that Bellows can count", item.count,
                               GpusRange::kMost));
  return {};
}

/// What Slurm reads otherwise than as a sum: the last of two numbers of one type counts, and in a
/// list with BELLOWS_GRES items without it do not.
Status check_counted(const Field& field, const GresItem& item, std::string_view list) {
  if (item.count > 0 && field.types.contains(item.type))
    return unclear(fmt::format("\"{}\" asks for the same GPUs twice; give their number once",
                               list.substr(0, 64)));
  if (field.gres && !item.spelled.starts_with(BELLOWS_GRES))
    return unclear(fmt::format("\"{}\" is spelled in two ways; write " BELLOWS_GRES
                               "gpu:N for the GPUs",
                               list.substr(0, 64)));
  return {};
}

/// As Slurm does, it passes over items whose count is 0.
Result<Field> parse_field(const std::optional<std::string>& text) {
  Field field;
  if (!text || text->empty()) return field;
  field.gres = text->find(BELLOWS_GRES) != std::string::npos;
  for (const std::string_view piece : split(*text, ',')) {
    if (trim(piece).empty() || piece == "none" || piece == "NONE") continue;
    auto item = parse_gres_item(piece);
    if (!item) return item.error();
    if (item->count > 0)
      if (auto whole = check_whole(*item); !whole.ok()) return whole.error();
    if (item->name != "gpu") {
      field.rest += (field.rest.empty() ? "" : ",") + item->spelled;
      continue;
    }
    if (auto counted = check_counted(field, *item, *text); !counted.ok()) return counted.error();
    if (item->count == 0) continue;
    field.mixed = field.mixed || (field.any() && item->type != field.type);
    field.type = item->type;
    field.types.insert(item->type);
    field.gpus += item->count;
  }
  return field;
}

Result<std::uint64_t> nodes_of(const Sizes& sizes) {
  if (!sizes.min_nodes && sizes.max_nodes.value_or(1) != 1)
    return unclear(
        "GPUs for each node with only a largest number of nodes leave the number of GPUs open; "
        "give the total with --gpus, or the number of nodes");
  if (!sizes.min_nodes) return std::uint64_t{1};
  if (sizes.max_nodes && *sizes.max_nodes != *sizes.min_nodes)
    return unclear(fmt::format(
        "--nodes={}-{} with GPUs for each node leaves the number of GPUs open; give the total with "
        "--gpus, or one number of nodes",
        *sizes.min_nodes, *sizes.max_nodes));
  return std::uint64_t{*sizes.min_nodes};
}

Result<std::optional<GpuRequest>> total(GpuRequest request, std::uint64_t gpus,
                                        std::string option) {
  if (gpus == 0) return std::optional<GpuRequest>();
  if (gpus > GpusRange::kMost)
    return unclear(fmt::format("{} adds up to {} GPUs, more than the {} that Bellows can count",
                               option, gpus, GpusRange::kMost));
  request.gpus = static_cast<std::uint32_t>(gpus);
  request.option = std::move(option);
  return std::optional<GpuRequest>(std::move(request));
}

std::string typed(const Field& field) {
  return field.type.empty() || field.mixed ? std::to_string(field.gpus)
                                           : fmt::format("{}:{}", field.type, field.gpus);
}

/// The four fields of a job.
struct Fields {
  Field job;
  Field node;
  Field socket;
  Field task;

  int parts() const { return job.any() + node.any() + socket.any() + task.any(); }
};

Status parse_fields(const Sizes& sizes, Fields& fields) {
  const std::pair<const std::optional<std::string>*, Field*> pairs[] = {
      {&sizes.per_job, &fields.job},
      {&sizes.per_node, &fields.node},
      {&sizes.per_socket, &fields.socket},
      {&sizes.per_task, &fields.task}};
  for (const auto& [text, field] : pairs) {
    auto parsed = parse_field(*text);
    if (!parsed) return parsed.error();
    *field = *std::move(parsed);
  }
  return {};
}

/// Everything about a request but how many GPUs it adds up to.
GpuRequest what_kind(const Fields& fields) {
  GpuRequest request;
  request.other_per_node = fields.node.rest;
  request.other_per_task = fields.task.rest;
  std::set<std::string> types;
  for (const Field* field : {&fields.job, &fields.node, &fields.socket, &fields.task}) {
    request.mixed = request.mixed || field->mixed;
    types.insert(field->types.begin(), field->types.end());
  }
  request.types.assign(types.begin(), types.end());
  request.mixed = request.mixed || fields.parts() > 1;
  request.for_tasks = fields.task.any();
  return request;
}

bool fits_nodes(const Sizes& sizes, std::uint64_t nodes) {
  return nodes >= sizes.min_nodes.value_or(0) &&
         (sizes.max_nodes.value_or(0) == 0 || nodes <= *sizes.max_nodes);
}

/// With a total Slurm derives the nodes. Once they are changed it gives each as many GPUs all the
/// same, so more than the total.
Result<std::uint64_t> nodes_of_total(const Field& job, const Field& node, const Sizes& sizes) {
  const std::uint64_t nodes = job.gpus / node.gpus;
  if (job.gpus % node.gpus == 0 && fits_nodes(sizes, nodes)) return nodes;
  return unclear(fmt::format(
      "--gpus={} and --gpus-per-node={} do not match on the nodes that the job asks for; "
      "give the total with --gpus alone",
      typed(job), typed(node)));
}

/// Slurm 22.05 gives GPUs for each task by the CPUs that it has put on a node, also where the job
/// has no tasks for these.
Status check_task_cpus(const Field& task, const Sizes& sizes, std::uint64_t tasks) {
  const std::uint64_t each =
      std::max<std::uint64_t>(sizes.cpus_per_task, sizes.cpus_per_gpu * task.gpus);
  if (sizes.min_cpus.value_or(0) <= each * tasks &&
      sizes.node_cpus.value_or(0) <= each * sizes.tasks_per_node.value_or(1))
    return {};
  return unclear(fmt::format(
      "--gpus-per-task={} with more CPUs than {} with {} each need would give the job more GPUs; "
      "give the CPUs with --cpus-per-task and the memory with --mem-per-cpu, or give the total "
      "of GPUs with --gpus",
      typed(task), counted(static_cast<std::uint32_t>(tasks), "task"),
      counted(static_cast<std::uint32_t>(each), "CPU")));
}

struct OfTasks {
  std::uint64_t gpus = 0;
  std::optional<std::uint64_t> nodes;
};

Result<OfTasks> gpus_of_tasks(const Field& task, const Sizes& sizes) {
  if (!sizes.tasks)
    return unclear(
        "--gpus-per-task without --ntasks leaves the number of GPUs open; add --ntasks, or give "
        "the total with --gpus");
  // Slurm multiplies by both.
  if (sizes.tasks_per_gpu)
    return unclear("--gpus-per-task and --ntasks-per-gpu exclude each other; leave one out");
  // Slurm starts at least one task on each node.
  const std::uint64_t tasks = std::max(*sizes.tasks, sizes.min_nodes.value_or(0));
  if (auto cpus = check_task_cpus(task, sizes, tasks); !cpus.ok()) return cpus.error();
  OfTasks all{task.gpus * tasks, std::nullopt};
  if (!sizes.tasks_per_node) return all;
  // It starts as many on each node, whatever their number in all.
  all.nodes = tasks / *sizes.tasks_per_node;
  if (tasks % *sizes.tasks_per_node == 0 && fits_nodes(sizes, *all.nodes)) return all;
  return unclear(fmt::format(
      "--ntasks={} is not --ntasks-per-node={} on the nodes that the job asks for, so "
      "--gpus-per-task={} leaves the number of GPUs open; give numbers that agree, or the total "
      "with --gpus",
      tasks, *sizes.tasks_per_node, typed(task)));
}

/// No GPUs but tasks, and how many of them share one.
Result<std::optional<GpuRequest>> of_shared_gpus(GpuRequest request, const Sizes& sizes) {
  if (sizes.tasks_per_gpu.value_or(0) == 0 || !sizes.tasks) return std::optional<GpuRequest>();
  request.form = GpuRequest::Form::per_gpu_tasks;
  if (*sizes.tasks % *sizes.tasks_per_gpu != 0)
    return unclear(fmt::format("--ntasks={} is not a multiple of --ntasks-per-gpu={}; make it one",
                               *sizes.tasks, *sizes.tasks_per_gpu));
  return total(
      std::move(request), *sizes.tasks / *sizes.tasks_per_gpu,
      fmt::format("--ntasks-per-gpu={} with --ntasks={}", *sizes.tasks_per_gpu, *sizes.tasks));
}

/// What one field comes to.
struct Part {
  GpuRequest::Form form;
  const Field* field;
  std::uint64_t gpus;
  std::string option;
};

/// All fields that name GPUs, the most telling first. A number of nodes that they fix goes into
/// `nodes`.
Result<std::vector<Part>> parts_of(const Fields& fields, const Sizes& sizes,
                                   std::optional<std::uint64_t>& nodes) {
  std::vector<Part> parts;
  const auto& [job, node, socket, task] = fields;
  if (job.any())
    parts.push_back(
        {GpuRequest::Form::per_job, &job, job.gpus, fmt::format("--gpus={}", typed(job))});
  if (node.any()) {
    const auto found = job.any() ? nodes_of_total(job, node, sizes) : nodes_of(sizes);
    if (!found) return found.error();
    nodes = *found;
    parts.push_back({GpuRequest::Form::per_node, &node, node.gpus * *nodes,
                     fmt::format("--gpus-per-node={} on {} node{}", typed(node), *nodes,
                                 *nodes == 1 ? "" : "s")});
  }
  if (!task.any()) return parts;
  const auto found = gpus_of_tasks(task, sizes);
  if (!found) return found.error();
  parts.push_back({GpuRequest::Form::per_task, &task, found->gpus,
                   fmt::format("--gpus-per-task={} with --ntasks={}", typed(task), *sizes.tasks)});
  if (nodes && found->nodes && *nodes != *found->nodes)
    return unclear(fmt::format(
        "--gpus-per-node={} and --ntasks-per-node={} do not fit the same number of nodes; give the "
        "total with --gpus alone",
        typed(node), *sizes.tasks_per_node));
  if (!nodes) nodes = found->nodes;
  return parts;
}

}  // namespace

Result<std::optional<GpuRequest>> count_gpus(const Sizes& sizes) {
  Fields fields;
  if (auto parsed = parse_fields(sizes, fields); !parsed.ok()) return parsed.error();
  GpuRequest request = what_kind(fields);
  if (fields.socket.any())
    return unclear(
        "--gpus-per-socket leaves the number of GPUs open; give the total with --gpus instead");
  if (fields.parts() > 1 && request.types.size() > 1)
    return unclear(
        "GPUs of several types in several options are not one number; ask for all of them in one "
        "option");
  std::optional<std::uint64_t> nodes;
  auto parts = parts_of(fields, sizes, nodes);
  if (!parts) return parts.error();
  if (parts->empty()) return of_shared_gpus(std::move(request), sizes);
  const Part& first = parts->front();
  for (const Part& part : *parts)
    if (part.gpus != first.gpus)
      return unclear(
          fmt::format("{} and {} are not the same number of GPUs; make them the same, or give the "
                      "total with --gpus alone",
                      first.option, part.option));
  request.form = first.form;
  request.type = first.field->type;
  if (nodes) request.nodes = static_cast<std::uint32_t>(*nodes);
  return total(std::move(request), first.gpus, first.option);
}

Status keeps_fields(const Sizes& now, const Sizes& update) {
  Fields before;
  Fields after;
  if (auto parsed = parse_fields(now, before); !parsed.ok()) return parsed;
  if (auto parsed = parse_fields(update, after); !parsed.ok()) return parsed;
  // slurmctld 22.05 skips another spelling in an update: it keeps the old number and shows the new.
  // Later ones refuse it with fewer words.
  const auto unread = [](const Field& to) { return to.any() && !to.gres; };
  if (unread(after.job) || unread(after.node) || unread(after.task))
    return unclear("Slurm changes only GPUs that are spelled " BELLOWS_GRES "gpu:N; write them so");
  const auto drops = [](const Field& from, const Field& to,
                        const std::optional<std::string>& said) {
    return from.any() && !to.any() && said && !said->empty();
  };
  if (!drops(before.job, after.job, update.per_job) &&
      !drops(before.node, after.node, update.per_node) &&
      !drops(before.task, after.task, update.per_task))
    return {};
  return unclear(
      "Slurm keeps the GPUs of a field whose new text names none; clear the field with an empty "
      "text, or name them");
}

Sizes merged(const Sizes& now, const Sizes& update) {
  Sizes sizes = now;
  const auto take = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  take(sizes.per_job, update.per_job);
  take(sizes.per_node, update.per_node);
  take(sizes.per_socket, update.per_socket);
  take(sizes.per_task, update.per_task);
  take(sizes.tasks, update.tasks);
  take(sizes.min_nodes, update.min_nodes);
  take(sizes.max_nodes, update.max_nodes);
  take(sizes.tasks_per_gpu, update.tasks_per_gpu);
  take(sizes.min_cpus, update.min_cpus);
  take(sizes.node_cpus, update.node_cpus);
  return sizes;
}

std::string with_type(std::string_view field, std::string_view type) {
  std::string out;
  for (std::string_view piece : split(field, ',')) {
    const auto item = parse_gres_item(piece);
    if (!out.empty()) out += ',';
    if (item && item->name == "gpu" && item->type.empty() && item->count > 0)
      out += spell_gpus(item->count, type);
    else
      out += piece;
  }
  return out;
}

}  // namespace bellows
