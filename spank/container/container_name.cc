// SPDX-License-Identifier: Apache-2.0
#include "spank/container/container_name.h"

#include <fmt/core.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string_view>

#include "common/container/spec_text.h"
#include "common/text.h"
#include "spank/container/capabilities.h"

namespace bellows::container {
namespace {

constexpr std::string_view kOwn = "step-";

std::string own_name(pid_t stepd) { return fmt::format("{}{}", kOwn, stepd); }
/// Of the note that says in which container with a name a step runs.
std::string use_name(pid_t stepd) { return own_name(stepd) + ":in"; }
/// Of the note that says which step it is, and in which container without a name.
std::string step_name(pid_t stepd) { return own_name(stepd) + ":step"; }

/// Tells an image that was replaced from the one before it.
std::string identity(const std::string& image) {
  struct stat info {};
  if (::stat(image.c_str(), &info) != 0) return "";
  return fmt::format("{} {} {} {}", info.st_dev, info.st_ino,
                     S_ISREG(info.st_mode) ? info.st_mtim.tv_sec : 0,
                     S_ISREG(info.st_mode) ? info.st_mtim.tv_nsec : 0);
}

/// The slurmstepd whose own a name is, of the container or of what is kept with it; 0: none's.
pid_t owner_of(std::string_view name) {
  if (!name.starts_with(kOwn)) return 0;
  const auto number = parse_uint(name.substr(kOwn.size(), name.find(':') - kOwn.size()));
  return number ? static_cast<pid_t>(*number) : 0;
}

bool is_gone(pid_t process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

/// When a process was started, in ticks of the machine's; 0: this can't be seen, as with hidepid.
std::uint64_t start_of(pid_t process) {
  constexpr std::size_t kPlace = 20;  // behind the name, in which there may be anything
  const auto text = read_file(fmt::format("/proc/{}/stat", process), 4096);
  if (!text) return 0;
  const auto fields = split(std::string_view(*text).substr(text->rfind(')') + 1), ' ');
  return fields.size() > kPlace ? parse_uint(fields[kPlace]).value_or(0) : 0;
}

std::string with_start(pid_t stepd, std::string_view text) {
  return fmt::format("{} {}", start_of(stepd), text);
}

/// What a note says whose slurmstepd lives; else "", also where another process has its number.
Result<std::string> read_living(const JobViews& views, const std::string& note, pid_t stepd) {
  if (is_gone(stepd)) return std::string();
  auto noted = views.read_note(note);
  if (!noted) return noted;
  const auto space = noted->find(' ');
  if (space == std::string::npos) return std::string();
  const auto start = parse_uint(noted->substr(0, space)).value_or(0);
  const auto now = start_of(stepd);
  return start == 0 || now == 0 || start == now ? noted->substr(space + 1) : std::string();
}

}  // namespace

bool is_steps_own(const Spec& spec, const Site& site) {
  if (!spec.name.empty()) return false;
  if (!spec.save.empty()) return true;
  return spec.writable.value_or(site.writable) || spec.remap_root.value_or(site.remap_root) ||
         spec.unshare_net || spec.unshare_ipc || spec.unshare_uts ||
         std::any_of(spec.mounts.begin(), spec.mounts.end(),
                     [](const Mount& mount) { return mount.kind == Mount::Kind::tmpfs; });
}

std::string container_name(const Spec& spec, const Site& site, pid_t stepd,
                           const std::string& home) {
  if (!spec.name.empty()) return "named-" + spec.name;
  if (is_steps_own(spec, site)) return own_name(stepd);
  Spec shared = spec;
  shared.workdir.reset();
  shared.env.clear();
  shared.verbose = false;
  shared.mount_home = spec.mount_home.value_or(site.mount_home);
  shared.remap_root = false;
  shared.entrypoint.reset();
  shared.entrypoint_log = false;
  shared.writable = false;
  std::string text = spec_text(shared) + identity(spec.image);
  if (*shared.mount_home) text += " " + home;
  return fmt::format("image-{:016x}", std::hash<std::string>()(text));
}

Status note_use(const JobViews& views, const std::string& name, pid_t stepd) {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  return views.write_note(use_name(stepd), with_start(stepd, name));
}

Result<bool> is_noted(const JobViews& views, const std::string& name, pid_t stepd) {
  const auto noted = read_living(views, use_name(stepd), stepd);
  return noted ? Result<bool>(*noted == name) : Result<bool>(noted.error());
}

Result<bool> is_used(const JobViews& views, const std::string& name, pid_t stepd) {
  const auto names = views.names();
  if (!names) return names.error();
  for (const std::string& note : *names) {
    const pid_t owner = owner_of(note);
    if (owner == 0 || owner == stepd || note != use_name(owner)) continue;
    const auto used = read_living(views, note, owner);
    if (!used) return used.error();
    if (*used == name) return true;
  }
  return false;
}

std::optional<std::uint32_t> step_meant(const Spec& spec, std::uint32_t job) {
  const auto dot = spec.name.find('.');
  if (dot == std::string::npos ||
      (spec.name_mode != NameMode::automatic && spec.name_mode != NameMode::exec))
    return std::nullopt;
  const auto named = parse_uint(spec.name.substr(0, dot));
  const auto step = parse_uint(spec.name.substr(dot + 1));
  if (!named || *named != job || !step || *step > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*step);
}

Status note_step(const JobViews& views, const std::string& name, pid_t stepd, std::uint32_t step) {
  const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
  if (!as_root) return as_root.error();
  return views.keep_note(step_name(stepd), with_start(stepd, fmt::format("{} {}", step, name)));
}

Result<std::string> container_of_step(const JobViews& views, std::uint32_t job,
                                      std::uint32_t step) {
  const auto names = views.names();
  if (!names) return names.error();
  const std::string begin = fmt::format("{} ", step);
  for (const std::string& note : *names) {
    const pid_t owner = owner_of(note);
    if (owner == 0 || note != step_name(owner)) continue;
    const auto text = read_living(views, note, owner);
    if (!text) return text.error();
    if (text->starts_with(begin)) return text->substr(begin.size());
  }
  return Error{ErrorKind::denied,
               fmt::format("step {}.{} does not run in a container without a name on this node; "
                           "name one that does, or give the container a name of another form",
                           job, step)};
}

Status forget_own_containers(const std::string& run_dir, std::uint32_t job, pid_t stepd) {
  const auto views = JobViews::open(run_dir, job);
  if (!views) return views.error();
  const auto names = views->names();
  if (!names) return names.error();
  Status first;
  for (const std::string& name : *names) {
    const pid_t owner = owner_of(name);
    if (owner == 0 || (owner != stepd && !is_gone(owner))) continue;
    const Status status = views->unpin(name);
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace bellows::container
