// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"
#include "jobsubmit/admission/desk.h"
#include "jobsubmit/admission/sentence.h"

namespace bellows {

/// The range as the user knows it.
std::string Desk::range_name() const {
  return request_.gpus_range
             ? fmt::format("--gpus-range={}", range_.to_string())
             : fmt::format("the range {} of tenant {}", range_.to_string(), tenant_->name);
}

bool Desk::parse_range() {
  auto parsed = GpusRange::parse(*request_.gpus_range);
  if (!parsed) return refuse(Refusal::option, shown(parsed.error().text, 512));
  range_ = *std::move(parsed);
  return true;
}

bool Desk::choose_range() {
  auto asked = count_gpus(request_.sizes);
  if (!asked) return refuse(Refusal::gpus, shown(asked.error().text, 512));
  asked_ = *std::move(asked);
  if (!asked_ && request_.only_container() && !request_.sizes.tasks_per_gpu) {
    range_ = GpusRange::none();
    return true;
  }
  if (request_.gpus_range) {
    if (!parse_range()) return false;
  } else if (takes_default_range()) {
    range_ = *limits_->range;
  } else {
    const std::uint32_t size = asked_ ? asked_->gpus : start_for_nodes();
    range_ = GpusRange::between(size, size);
  }
  return within_limits();
}

/// The GPUs that so many nodes hold at least; where nodes are whole, just as many.
std::uint64_t Desk::least_for(std::uint32_t nodes) const {
  return std::uint64_t{nodes} * std::max<std::uint32_t>(limits_->gpus_per_node, 1);
}

/// The first size of a job that gives neither size nor range, but perhaps a number of nodes.
std::uint32_t Desk::start_for_nodes() const {
  const auto nodes = request_.sizes.min_nodes;
  if (!nodes || (limits_->gpus_per_node == 0 && limits_->start >= *nodes)) return limits_->start;
  const std::vector<std::uint32_t>& sizes = limits_->sizes.sizes();
  const auto enough = std::lower_bound(sizes.begin(), sizes.end(), least_for(*nodes));
  return enough == sizes.end() ? limits_->start : *enough;
}

bool Desk::within_limits() {
  for (std::uint32_t size : range_.sizes()) {
    if (limits_->sizes.contains(size)) continue;
    const std::string wanted =
        request_.gpus_range || !asked_
            ? fmt::format("{} includes {}", range_name(), counted(size, "GPU"))
            : asked_->option;
    return refuse(Refusal::policy,
                  fmt::format("{}, but {} may have {}; ask for sizes among these", wanted,
                              jobs_of_tenant(), counted(limits_->sizes.to_string(), "GPU")));
  }
  return true;
}

bool Desk::choose_type() {
  if (range_.is_none()) return true;
  const std::vector<std::string>& open = limits_->types;
  if (asked_) type_ = asked_->type;
  if (open.empty()) return true;
  const bool untyped = !asked_ || std::all_of(asked_->types.begin(), asked_->types.end(),
                                              [](const std::string& type) { return type.empty(); });
  if (untyped && open.size() == 1) {
    type_ = open.front();
    return true;
  }
  if (untyped)
    return refuse(
        Refusal::gpus,
        fmt::format("{} is for GPUs of the types {}; name one of them, such as --gpus={}:{}",
                    jobs_of_tenant(), fmt::join(open, ", "), open.front(),
                    asked_ ? asked_->gpus : limits_->start));
  for (const std::string& type : asked_->types) {
    if (std::find(open.begin(), open.end(), type) != open.end()) continue;
    if (type.empty())
      return refuse(Refusal::gpus,
                    fmt::format("{} has parts with and without a GPU type; name a type in each",
                                asked_->option));
    return refuse(Refusal::policy, fmt::format("GPU type \"{}\" is not open to {}; it may use {}",
                                               type, jobs_of_tenant(), fmt::join(open, ", ")));
  }
  return true;
}

/// An elastic job is spelled --gpus=N with N tasks, so that a resize can spell it so. What can't
/// be said that way is refused, rather than silently changed.
bool Desk::keeps_meaning() {
  if (!resizable()) return true;
  const std::string range = range_name();
  const auto clash = [&](std::string_view option, std::string_view advice) {
    return refuse(Refusal::gpus, fmt::format("{} cannot be kept when the job is resized within {}; "
                                             "{}",
                                             option, range, advice));
  };
  if (request_.requeue_off)
    return refuse(Refusal::option,
                  fmt::format("--no-requeue contradicts {}: a job is resized by requeueing it; "
                              "leave out --no-requeue or give a single size",
                              range));
  if (asked_ && asked_->mixed)
    return clash("a GPU request of several parts", "give one number with --gpus");
  if (request_.sizes.tasks_per_node)
    return clash("--ntasks-per-node", "leave it out: there is one task for each GPU");
  if (request_.sizes.tasks_per_gpu && *request_.sizes.tasks_per_gpu != 1)
    return clash("--ntasks-per-gpu", "leave it out: there is one task for each GPU");
  return true;
}

bool Desk::choose_size() {
  if (range_.is_none()) {
    size_ = 0;
    return true;
  }
  if (!keeps_meaning()) return false;
  const Sizes& sizes = request_.sizes;
  if (asked_) {
    size_ = asked_->gpus;
    if (!range_.contains(size_))
      return refuse(Refusal::gpus,
                    fmt::format("{} is not one of the sizes of {}; choose one of them or leave it "
                                "out",
                                asked_->option, range_name()));
    return check_tasks() && check_shrinking();
  }
  if (elastic() && sizes.tasks) {
    size_ = *sizes.tasks;
    if (range_.contains(size_)) return check_shrinking();
    return refuse(
        Refusal::gpus,
        fmt::format("--ntasks={} is not one of the sizes of {}, and there is one task for each "
                    "GPU; choose one of them or leave it out",
                    size_, range_name()));
  }
  size_ = range_.clamp(limits_->start);
  return size_by_nodes() && check_shrinking();
}

/// Each node of a job holds one of its GPUs at least.
bool Desk::size_by_nodes() {
  const auto nodes = request_.sizes.min_nodes;
  if (!nodes) return true;
  const std::uint64_t least = least_for(*nodes);
  if (limits_->gpus_per_node == 0 && size_ >= least) return true;
  const auto enough = std::lower_bound(range_.sizes().begin(), range_.sizes().end(), least);
  if (enough == range_.sizes().end())
    return refuse(Refusal::gpus,
                  fmt::format("--nodes={} needs at least {} GPU{}, more than {}; ask for fewer "
                              "nodes",
                              *nodes, least, least == 1 ? "" : "s",
                              request_.gpus_range || elastic()
                                  ? fmt::format("{} allows", range_name())
                                  : fmt::format("{} may have", jobs_of_tenant())));
  size_ = *enough;
  return true;
}

bool Desk::check_tasks() {
  const auto tasks = request_.sizes.tasks;
  if (!resizable() || !tasks || *tasks == size_) return true;
  return refuse(
      Refusal::gpus,
      fmt::format("{} gives {} to {} tasks, but an elastic job has one task for each GPU; "
                  "leave out --ntasks, or give a single size with --gpus-range",
                  asked_->option, counted(size_, "GPU"), *tasks));
}

bool Desk::check_shrinking() {
  if (limits_->shrink_below_start || !resizable() || range_.min() >= size_) return true;
  if (request_.gpus_range)
    return refuse(Refusal::policy,
                  fmt::format("{} goes below the {} that the job starts with, and {} may not; ask "
                              "for a range from {} up, or start with fewer with --gpus",
                              range_name(), counted(size_, "GPU"), jobs_of_tenant(), size_));
  const std::vector<std::uint32_t>& all = range_.sizes();
  range_ = GpusRange::of({std::lower_bound(all.begin(), all.end(), size_), all.end()});
  return true;
}

}  // namespace bellows
