// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"
#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"

namespace bellows {
namespace {

/// The range as the user knows it.
std::string range_name(const Review& review) {
  return review.request.gpus_range ? fmt::format("--gpus-range={}", review.range.to_string())
                                   : fmt::format("the range {} of tenant {}",
                                                 review.range.to_string(), review.tenant->name);
}

/// The GPUs that so many nodes hold at least; where nodes are whole, just as many.
std::uint64_t least_for(std::uint32_t nodes, const GpuLimits& limits) {
  return std::uint64_t{nodes} * std::max<std::uint32_t>(limits.gpus_per_node, 1);
}

/// The first size of a job that gives neither size nor range, but perhaps a number of nodes.
std::uint32_t start_for_nodes(const Review& review) {
  const GpuLimits& limits = *review.limits;
  const auto nodes = review.request.sizes.min_nodes;
  if (!nodes || (limits.gpus_per_node == 0 && limits.start >= *nodes)) return limits.start;
  const std::vector<std::uint32_t>& sizes = limits.sizes.sizes();
  const auto enough = std::lower_bound(sizes.begin(), sizes.end(), least_for(*nodes, limits));
  return enough == sizes.end() ? limits.start : *enough;
}

bool parse_range(Review& review) {
  auto parsed = GpusRange::parse(*review.request.gpus_range);
  if (!parsed) return review.refuse(Refusal::option, shown(parsed.error().text, 512));
  review.range = *std::move(parsed);
  return true;
}

bool within_limits(Review& review) {
  const GpuLimits& limits = *review.limits;
  for (std::uint32_t size : review.range.sizes()) {
    if (limits.sizes.contains(size)) continue;
    const std::string wanted =
        review.request.gpus_range || !review.asked
            ? fmt::format("{} includes {}", range_name(review), counted(size, "GPU"))
            : review.asked->option;
    return review.refuse(
        Refusal::policy,
        fmt::format("{}, but {} may have {}; ask for sizes among these", wanted,
                    review.jobs_of_tenant(), counted(limits.sizes.to_string(), "GPU")));
  }
  return true;
}

/// An elastic job is spelled --gpus=N with N tasks, so that a resize can spell it so. What can't
/// be said that way is refused, rather than silently changed.
bool keeps_meaning(Review& review) {
  const Sizes& sizes = review.request.sizes;
  if (!review.resizable()) return true;
  const std::string range = range_name(review);
  const auto clash = [&](std::string_view option, std::string_view advice) {
    return review.refuse(Refusal::gpus,
                         fmt::format("{} cannot be kept when the job is resized within {}; {}",
                                     option, range, advice));
  };
  if (review.request.requeue_off)
    return review.refuse(
        Refusal::option,
        fmt::format("--no-requeue contradicts {}: a job is resized by requeueing it; "
                    "leave out --no-requeue or give a single size",
                    range));
  if (review.asked && review.asked->mixed)
    return clash("a GPU request of several parts", "give one number with --gpus");
  if (sizes.tasks_per_node)
    return clash("--ntasks-per-node", "leave it out: there is one task for each GPU");
  if (sizes.tasks_per_gpu && *sizes.tasks_per_gpu != 1)
    return clash("--ntasks-per-gpu", "leave it out: there is one task for each GPU");
  return true;
}

/// Each node of a job holds one of its GPUs at least.
bool size_by_nodes(Review& review) {
  const auto nodes = review.request.sizes.min_nodes;
  if (!nodes) return true;
  const std::uint64_t least = least_for(*nodes, *review.limits);
  if (review.limits->gpus_per_node == 0 && review.size >= least) return true;
  const std::vector<std::uint32_t>& sizes = review.range.sizes();
  const auto enough = std::lower_bound(sizes.begin(), sizes.end(), least);
  if (enough == sizes.end())
    return review.refuse(
        Refusal::gpus,
        fmt::format("--nodes={} needs at least {} GPU{}, more than {}; ask for fewer nodes", *nodes,
                    least, least == 1 ? "" : "s",
                    review.request.gpus_range || review.elastic()
                        ? fmt::format("{} allows", range_name(review))
                        : fmt::format("{} may have", review.jobs_of_tenant())));
  review.size = *enough;
  return true;
}

bool check_tasks(Review& review) {
  const auto tasks = review.request.sizes.tasks;
  if (!review.resizable() || !tasks || *tasks == review.size) return true;
  return review.refuse(
      Refusal::gpus,
      fmt::format("{} gives {} to {} tasks, but an elastic job has one task for each GPU; "
                  "leave out --ntasks, or give a single size with --gpus-range",
                  review.asked->option, counted(review.size, "GPU"), *tasks));
}

bool check_shrinking(Review& review) {
  if (review.limits->shrink_below_start || !review.resizable() || review.range.min() >= review.size)
    return true;
  if (review.request.gpus_range)
    return review.refuse(
        Refusal::policy,
        fmt::format("{} goes below the {} that the job starts with, and {} may not; ask "
                    "for a range from {} up, or start with fewer with --gpus",
                    range_name(review), counted(review.size, "GPU"), review.jobs_of_tenant(),
                    review.size));
  const std::vector<std::uint32_t>& all = review.range.sizes();
  review.range = GpusRange::of({std::lower_bound(all.begin(), all.end(), review.size), all.end()});
  return true;
}

}  // namespace

bool choose_range(Review& review) {
  const Request& request = review.request;
  auto asked = count_gpus(request.sizes);
  if (!asked) return review.refuse(Refusal::gpus, shown(asked.error().text, 512));
  review.asked = *std::move(asked);
  if (!review.asked && request.keeps_gpus() && !request.sizes.tasks_per_gpu) {
    review.range = GpusRange::none();
    return true;
  }
  if (request.gpus_range) {
    if (!parse_range(review)) return false;
  } else if (review.takes_default_range()) {
    review.range = *review.limits->range;
  } else {
    const std::uint32_t size = review.asked ? review.asked->gpus : start_for_nodes(review);
    review.range = GpusRange::between(size, size);
  }
  return within_limits(review);
}

bool choose_type(Review& review) {
  if (review.range.is_none()) return true;
  const std::optional<GpuRequest>& asked = review.asked;
  const std::vector<std::string>& open = review.limits->types;
  if (asked) review.type = asked->type;
  if (open.empty()) return true;
  const bool untyped = !asked || std::all_of(asked->types.begin(), asked->types.end(),
                                             [](const std::string& type) { return type.empty(); });
  if (untyped && open.size() == 1) {
    review.type = open.front();
    return true;
  }
  if (untyped)
    return review.refuse(
        Refusal::gpus,
        fmt::format("{} is for GPUs of the types {}; name one of them, such as --gpus={}:{}",
                    review.jobs_of_tenant(), fmt::join(open, ", "), open.front(),
                    asked ? asked->gpus : review.limits->start));
  for (const std::string& type : asked->types) {
    if (std::find(open.begin(), open.end(), type) != open.end()) continue;
    if (type.empty())
      return review.refuse(
          Refusal::gpus,
          fmt::format("{} has parts with and without a GPU type; name a type in each",
                      asked->option));
    return review.refuse(Refusal::policy,
                         fmt::format("GPU type \"{}\" is not open to {}; it may use {}", type,
                                     review.jobs_of_tenant(), fmt::join(open, ", ")));
  }
  return true;
}

bool choose_size(Review& review) {
  if (review.range.is_none()) {
    review.size = 0;
    return true;
  }
  if (!keeps_meaning(review)) return false;
  const auto tasks = review.request.sizes.tasks;
  if (review.asked) {
    review.size = review.asked->gpus;
    if (!review.range.contains(review.size))
      return review.refuse(
          Refusal::gpus,
          fmt::format("{} is not one of the sizes of {}; choose one of them or leave it out",
                      review.asked->option, range_name(review)));
    return check_tasks(review) && check_shrinking(review);
  }
  if (review.elastic() && tasks) {
    review.size = *tasks;
    if (review.range.contains(review.size)) return check_shrinking(review);
    return review.refuse(
        Refusal::gpus,
        fmt::format("--ntasks={} is not one of the sizes of {}, and there is one task for each "
                    "GPU; choose one of them or leave it out",
                    review.size, range_name(review)));
  }
  review.size = review.range.clamp(review.limits->start);
  return size_by_nodes(review) && check_shrinking(review);
}

}  // namespace bellows
