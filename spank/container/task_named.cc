// SPDX-License-Identifier: Apache-2.0
// What a task does for a container with a name.
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>

#include <chrono>
#include <optional>

#include "spank/container/capabilities.h"
#include "spank/container/container_name.h"
#include "spank/container/mount_api.h"
#include "spank/container/mount_namespace.h"
#include "spank/container/task.h"

namespace bellows::container {
namespace {

std::string note_name(const std::string& name) { return name + ":note"; }

}  // namespace

Status TaskEntry::read_state(const std::string& name, std::optional<NamedState>& state) const {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  const auto note = views_.read_note(note_name(name));
  const auto parsed = note ? parse_state(*note) : Result<NamedState>(note.error());
  if (!parsed) return parsed.error();
  state = *parsed;
  return {};
}

/// A copy of the root alone, with nothing that is mounted in it, and writable whatever it was. The
/// kernel clones only what is mounted where the caller is.
Status TaskEntry::take_root(const Fd& container) {
  if (auto status = join(container.get()); !status.ok()) return status;
  const auto root = open_file("/", O_PATH | O_DIRECTORY);
  if (!root) return root.error();
  auto clone = clone_mount(root->get(), "/", false, {});
  if (!clone) return clone.error();
  if (auto status = set_writable(clone->get(), "/"); !status.ok()) return status;
  kept_ = *std::move(clone);
  return join(host_.get());
}

/// The tasks of a step are one to a container: where the first has come in, the others follow.
Result<bool> TaskEntry::is_in(const std::string& name) const {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  return as_root ? is_noted(views_, name, stepd_) : Result<bool>(as_root.error());
}

Result<bool> TaskEntry::is_vacant(const std::string& name) const {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  const auto used = is_used(views_, name, stepd_);
  return used ? Result<bool>(!*used) : used;
}

Status TaskEntry::keep_state(const std::string& name) const {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  return as_root ? views_.write_note(note_name(name), state_text(state_)) : as_root.error();
}

/// pyxis's modes, and what else is a step's own, in a container that is there or not.
Status TaskEntry::settle(const std::string& name, const TaskRequest& wanted, const Site& site,
                         Phases& phases, const Fd& found) {
  std::optional<NamedState> before;
  if (auto status = found ? read_state(name, before) : find_lasting(lasting_, wanted.spec, before);
      !status.ok())
    return status;
  const auto vacant = is_vacant(name);
  if (!vacant) return vacant.error();
  state_ = state_for(wanted.spec, site, wanted.home);
  const auto decision = decide(wanted.spec, state_, before ? &*before : nullptr, *vacant);
  if (!decision) return decision.error();
  if (!decision->remark.empty()) phases.remark(decision->remark);
  if (decision->entrance == Entrance::join && found) return {};
  if (!found)
    if (auto status = check_number(name, site); !status.ok()) return status;
  TaskRequest request = wanted;
  if (before && found) {
    state_.image = request.spec.image = before->image;
    state_.imported = before->imported;
    if (before->imported) imported_ = before->image;
  } else if (!imported_.empty()) {
    state_.image = imported_;
    state_.imported = true;
  }
  if (before && before->layered)
    if (auto status = take_root(found); !status.ok()) return status;
  lasting::Use use;
  if (!found && lasting_) {
    phases.begin("taking the container that is kept");
    if (auto status = begin_lasting(request.spec, site, *vacant, use); !status.ok()) return status;
  }
  const auto status = build(name, request, site, phases);
  if (!status.ok() && use.directory) lasting::forget(lasting_.get(), request.spec.name, use);
  kept_.reset();
  layer_.reset();
  return status;
}

/// It may have ended since the task was started.
Status TaskEntry::find_of_step(const std::string& name, const TaskRequest& wanted, const Site& site,
                               Phases& phases, Fd& found) const {
  phases.begin("looking for the step's container");
  if (const auto status = look(name, wanted, site, found); !status.ok()) return status;
  if (!found) return Error{ErrorKind::denied, fmt::format("step {} has ended", wanted.spec.name)};
  const std::string options = made_by_others(wanted.spec);
  if (!options.empty())
    phases.remark(
        fmt::format("step {} made the container; ignoring {}", wanted.spec.name, options));
  return {};
}

Status TaskEntry::find_named(const std::string& name, const TaskRequest& wanted, const Site& site,
                             Phases& phases, Fd& found) {
  phases.begin("looking for the job's view");
  const auto joined = [&]() -> Result<bool> {
    const auto status = look(name, wanted, site, found);
    return status.ok() && found ? is_in(name)
                                : (status.ok() ? Result<bool>(false) : status.error());
  };
  if (const auto in = joined(); !in || *in) return in ? Status() : in.error();
  const std::uint32_t wait = wait_seconds(site);
  begin_patiently("waiting for another task that builds", wait, phases);
  const auto lock = views_.lock(std::chrono::seconds(wait));
  if (!lock) return lock.error();
  if (const auto in = joined(); !in || *in) return in ? Status() : in.error();
  auto status = settle(name, wanted, site, phases, found);
  if (status.ok()) status = note_use(views_, name, stepd_);
  return status.ok() ? look(name, wanted, site, found) : status;
}

}  // namespace bellows::container
