// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/gpu_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <vector>

#include "common/gpus_range.h"
#include "common/text.h"

namespace bellows {
namespace {

Error unclear(std::string text) { return Error{ErrorKind::invalid, std::move(text)}; }

struct Item {
  std::string name;
  std::string type;
  std::uint64_t count = 1;
  std::string spelled;
};

/// It goes into messages and back into the job, so no byte of it may mean anything there.
bool is_type(std::string_view type) {
  for (char c : type)
    if (!(is_alphanumeric(c) || std::string_view("_.-").find(c) != std::string_view::npos))
      return false;
  return true;
}

/// "1g.10gb" and "a100_3g.20gb": what gres.conf calls a slice of a GPU (MIG).
bool is_slice(std::string_view type) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto dot = type.find("g.");
  if (dot == std::string_view::npos || dot == 0 || !digit(type[dot - 1])) return false;
  std::size_t i = dot + 2;
  while (i < type.size() && digit(type[i])) ++i;
  return i > dot + 2 && type.substr(i).starts_with("gb");
}

/// One of "gres:gpu:a100:2", "gres/gpu=2", "gpu:2", "gpu:a100", "nic".
Result<Item> parse_item(std::string_view text) {
  Item item;
  item.spelled = std::string(text);
  if (text.starts_with("gres:") || text.starts_with("gres/")) text.remove_prefix(5);
  // Slurm looks for it anywhere in the text, and counts what follows.
  if (text.find("gres:") != std::string_view::npos)
    return unclear(fmt::format("\"{}\" holds \"gres:\" in its middle; write gres:gpu:N",
                               item.spelled.substr(0, 64)));
  std::string flat(text.substr(0, text.find('(')));
  for (char& c : flat)
    if (c == '=') c = ':';
  const auto pieces = split(flat, ':');
  item.name = to_lower(pieces[0]);
  if (item.name.empty() || pieces.size() > 3)
    return unclear(
        fmt::format("\"{}\" is not a GPU request such as gpu:2 or gpu:a100:2", text.substr(0, 64)));
  if (pieces.size() == 1) return item;
  const auto count = parse_uint(pieces.back());
  if (count) item.count = *count;
  if (pieces.size() == 3 || !count) item.type = std::string(pieces[1]);
  if (!is_type(item.type))
    return unclear(
        fmt::format("\"{}\" names no GPU type that Slurm could have", text.substr(0, 64)));
  if (pieces.size() == 3 && !count)
    return unclear(fmt::format("\"{}\" has no whole number of GPUs", text.substr(0, 64)));
  return item;
}

/// One field of the job, split into its GPUs and the rest.
struct Field {
  std::uint64_t gpus = 0;
  bool any = false;
  bool mixed = false;
  std::string type;
  std::set<std::string> types;
  std::string rest;
  bool gres = false;  ///< "gres:" stands somewhere in it
};

Status check_whole(const Item& item) {
  if (item.name == "shard" || item.name == "mps")
    return unclear(fmt::format(
        "shares of a GPU ({}) do not go with --framework, --gpus-range and --container options, "
        "which count whole GPUs; ask for some, as with --gpus=1, or leave these options out",
        item.name));
  if (item.name == "mig" || (item.name == "gpu" && is_slice(to_lower(item.type))))
    return unclear(fmt::format(
        "slices of a GPU ({}) do not go with --framework, --gpus-range and --container options, "
        "which count whole GPUs; ask for some, as with --gpus=1, or leave these options out",
        item.type.empty() ? item.name : item.type));
  if (item.name == "gpu" && item.count > GpusRange::kMost)
    return unclear(fmt::format("{} GPUs are more than the {} that Bellows can count", item.count,
                               GpusRange::kMost));
  return {};
}

/// What Slurm reads otherwise than as a sum: the last of two numbers of one type counts, and in a
/// list with "gres:" items without it do not.
Status check_counted(const Field& field, const Item& item, std::string_view list) {
  if (item.count > 0 && field.types.contains(item.type))
    return unclear(fmt::format("\"{}\" asks for the same GPUs twice; give their number once",
                               list.substr(0, 64)));
  if (field.gres && !item.spelled.starts_with("gres:"))
    return unclear(fmt::format("\"{}\" is spelled in two ways; write gres:gpu:N for the GPUs",
                               list.substr(0, 64)));
  return {};
}

Result<Field> parse_field(const std::optional<std::string>& text) {
  Field field;
  if (!text || text->empty()) return field;
  field.gres = text->find("gres:") != std::string::npos;
  for (std::string_view piece : split(*text, ',')) {
    piece = trim(piece);
    if (piece.empty() || piece == "none" || piece == "NONE") continue;
    auto item = parse_item(piece);
    if (!item) return item.error();
    if (auto whole = check_whole(*item); !whole.ok()) return whole.error();
    if (item->name != "gpu") {
      field.rest += (field.rest.empty() ? "" : ",") + item->spelled;
      continue;
    }
    if (auto counted = check_counted(field, *item, *text); !counted.ok()) return counted.error();
    field.mixed = field.mixed || (field.any && item->type != field.type);
    field.type = item->type;
    if (item->count > 0) field.types.insert(item->type);
    field.any = true;
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

/// Everything about a request but how many GPUs it adds up to.
GpuRequest what_kind(const Field& job, const Field& node, const Field& socket, const Field& task) {
  GpuRequest request;
  request.other_per_node = node.rest;
  int parts = 0;
  std::set<std::string> types;
  for (const Field* field : {&job, &node, &socket, &task}) {
    parts += field->any ? 1 : 0;
    request.mixed = request.mixed || field->mixed;
    types.insert(field->types.begin(), field->types.end());
  }
  request.types.assign(types.begin(), types.end());
  request.mixed = request.mixed || parts > 1;
  return request;
}

/// What the number of tasks says about the GPUs.
Result<std::optional<GpuRequest>> of_tasks(GpuRequest request, const Field& task,
                                           const Sizes& sizes) {
  if (task.any) {
    if (!sizes.tasks)
      return unclear(
          "--gpus-per-task without --ntasks leaves the number of GPUs open; add --ntasks, or give "
          "the total with --gpus");
    request.form = GpuRequest::Form::per_task;
    request.type = task.type;
    // Slurm starts at least one task on each node.
    const std::uint32_t tasks = std::max(*sizes.tasks, sizes.min_nodes.value_or(0));
    return total(std::move(request), task.gpus * tasks,
                 fmt::format("--gpus-per-task={} with --ntasks={}", typed(task), *sizes.tasks));
  }
  if (sizes.tasks_per_gpu && *sizes.tasks_per_gpu > 0 && sizes.tasks) {
    request.form = GpuRequest::Form::per_gpu_tasks;
    if (*sizes.tasks % *sizes.tasks_per_gpu != 0)
      return unclear(fmt::format("--ntasks={} is no multiple of --ntasks-per-gpu={}; make it one",
                                 *sizes.tasks, *sizes.tasks_per_gpu));
    return total(
        std::move(request), std::uint64_t{*sizes.tasks} / *sizes.tasks_per_gpu,
        fmt::format("--ntasks-per-gpu={} with --ntasks={}", *sizes.tasks_per_gpu, *sizes.tasks));
  }
  return std::optional<GpuRequest>();
}

}  // namespace

Result<std::optional<GpuRequest>> count_gpus(const Sizes& sizes) {
  auto job = parse_field(sizes.per_job);
  if (!job) return job.error();
  auto node = parse_field(sizes.per_node);
  if (!node) return node.error();
  auto socket = parse_field(sizes.per_socket);
  if (!socket) return socket.error();
  auto task = parse_field(sizes.per_task);
  if (!task) return task.error();

  GpuRequest request = what_kind(*job, *node, *socket, *task);
  const int parts = job->any + node->any + socket->any + task->any;
  if (parts > 1 && request.types.size() > 1)
    return unclear(
        "GPUs of several types in several options are not one number; ask for all of them in one "
        "option");
  if (job->any) {
    request.form = GpuRequest::Form::per_job;
    request.type = job->type;
    return total(std::move(request), job->gpus, fmt::format("--gpus={}", typed(*job)));
  }
  if (socket->any)
    return unclear(
        "--gpus-per-socket leaves the number of GPUs open; give the total with --gpus instead");
  if (node->any) {
    auto nodes = nodes_of(sizes);
    if (!nodes) return nodes.error();
    request.form = GpuRequest::Form::per_node;
    request.type = node->type;
    return total(std::move(request), node->gpus * *nodes,
                 fmt::format("--gpus-per-node={} on {} node{}", typed(*node), *nodes,
                             *nodes == 1 ? "" : "s"));
  }
  return of_tasks(std::move(request), *task, sizes);
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
  return sizes;
}

std::string spell_gpus(std::uint32_t gpus, std::string_view type) {
  return type.empty() ? fmt::format("gres:gpu:{}", gpus)
                      : fmt::format("gres:gpu:{}:{}", type, gpus);
}

std::string with_type(std::string_view field, std::string_view type) {
  std::string out;
  for (std::string_view piece : split(field, ',')) {
    const auto item = parse_item(trim(piece));
    if (!out.empty()) out += ',';
    if (item && item->name == "gpu" && item->type.empty())
      out += fmt::format("gres:gpu:{}:{}", type, item->count);
    else
      out += piece;
  }
  return out;
}

}  // namespace bellows
