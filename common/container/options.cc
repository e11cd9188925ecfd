// SPDX-License-Identifier: Apache-2.0
#include "common/container/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "common/container/image_reference.h"
#include "common/container/mount_grammar.h"
#include "common/container/spec_text.h"
#include "common/text.h"
#include "common/variables.h"

namespace bellows::container {
namespace {

constexpr OptionInfo kOptions[] = {
    {Option::image, "container-image", "image", "PATH|IMAGE",
     "run in a container from this squashfs file, directory or image in a registry (Bellows)"},
    {Option::mounts, "container-mounts", "mounts", "SRC[:DST[:FLAGS]],...",
     "mount files, directories or tmpfs in the container, or unmount something there; FLAGS such "
     "as ro+noexec (Bellows)"},
    {Option::workdir, "container-workdir", "workdir", "PATH",
     "working directory in the container (Bellows)"},
    {Option::name, "container-name", "name", "NAME[:auto|create|exec|no_exec]",
     "name of a container that later steps of the job can reuse (Bellows)"},
    {Option::mount_home, "container-mount-home", "mount-home", nullptr,
     "mount your home directory in the container (Bellows)"},
    {Option::no_mount_home, "no-container-mount-home", "no-mount-home", nullptr,
     "do not mount your home directory in the container (Bellows)"},
    {Option::remap_root, "container-remap-root", "remap-root", nullptr,
     "appear as root in the container, with your own rights (Bellows)"},
    {Option::no_remap_root, "no-container-remap-root", "no-remap-root", nullptr,
     "appear as yourself in the container (Bellows)"},
    {Option::writable, "container-writable", "writable", nullptr,
     "make the container's file system writable: a directory itself, a squashfs image in memory "
     "(Bellows)"},
    {Option::readonly, "container-readonly", "readonly", nullptr,
     "make the container's file system read-only (Bellows)"},
    {Option::env, "container-env", "env", "NAME[,NAME...]",
     "variables that keep the job's values instead of the image's (Bellows)"},
    {Option::unshare, "container-unshare", "unshare", "net[,ipc][,uts]",
     "give the container a network, IPC or host name of its own (Bellows)"},
    {Option::tmp, "container-tmp", "tmp", "SIZE",
     "size of the job's private /tmp on each node, such as 8G (Bellows)"},
    {Option::verbose, "container-verbose", "verbose", nullptr,
     "show what was mounted, and how long each phase took (Bellows)"},
    {Option::save, "container-save", "save", "PATH",
     "write the container's file tree to this squashfs file when the step's tasks have ended "
     "(Bellows)"},
    {Option::entrypoint, "container-entrypoint", "entrypoint", nullptr,
     "have the image's entrypoint, its /etc/rc, run before the program (Bellows)"},
    {Option::no_entrypoint, "no-container-entrypoint", "no-entrypoint", nullptr,
     "do not run the image's entrypoint (Bellows)"},
    {Option::entrypoint_log, "container-entrypoint-log", "entrypoint-log", nullptr,
     "show what the image's entrypoint writes (Bellows)"},
};
static_assert(std::size(kOptions) == kOptionCount);

constexpr std::pair<NameMode, std::string_view> kModes[] = {{NameMode::automatic, "auto"},
                                                            {NameMode::create, "create"},
                                                            {NameMode::exec, "exec"},
                                                            {NameMode::no_exec, "no_exec"}};

constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostVariables = 64;

Error invalid(std::string text) { return Error{ErrorKind::invalid, std::move(text)}; }

/// A mistyped path would be looked for on the network.
bool looks_like_file(std::string_view value) {
  for (const char* end : {".sqsh", ".squashfs", ".sqfs", ".sif", ".tar", ".img"})
    if (value.ends_with(end)) return true;
  return false;
}

Status take_registry_image(Spec& spec, std::string_view value) {
  const auto reference = parse_reference(value);
  if (!reference) return reference.error();
  spec.image = reference->text();
  return {};
}

/// What others handed on: in the one form that it has.
Status take_canonical_image(Spec& spec, std::string_view value) {
  Spec read;
  if (auto status = take_registry_image(read, value); !status.ok()) return status;
  if (read.image != value)
    return invalid(fmt::format("\"{}\" is not the full name of an image", value.substr(0, 256)));
  spec.image = value;
  return {};
}

/// Registries are told from files only where files can be looked at.
Status take_image(Spec& spec, std::string_view value, const Place& place) {
  if (is_in_registry(value))
    return place.base.empty() ? take_canonical_image(spec, value)
                              : take_registry_image(spec, value);
  const std::string path = normal_path(value, place.base);
  if (place.base.empty()) {
    if (path != value)
      return invalid(
          fmt::format("\"{}\" is not an absolute path without \"..\"", value.substr(0, 256)));
  } else if (value.find("://") != std::string_view::npos) {
    return invalid(
        fmt::format("\"{}\" is neither a path nor an image in a registry, which begins with "
                    "docker://",
                    value.substr(0, 256)));
  } else if (!value.starts_with('/') && !value.starts_with('.') &&
             !(place.exists && place.exists(path))) {
    if (!looks_like_file(value)) return take_registry_image(spec, value);
    return invalid(
        fmt::format("\"{}\" is not a file in {}; give the path of a squashfs file, or "
                    "docker://{} for an image in a registry",
                    value.substr(0, 256), place.base, value.substr(0, 256)));
  }
  spec.image = path;
  return {};
}

Status take_save(Spec& spec, std::string_view value, const Place& place) {
  const std::string path = normal_path(value, place.base);
  const std::string_view last = value.substr(value.rfind('/') + 1);
  if (last.empty() || last == "." || last == "..")
    return invalid(
        fmt::format("\"{}\" is a directory; name the file to be written", value.substr(0, 256)));
  if (place.base.empty() && path != value)
    return invalid(
        fmt::format("\"{}\" is not an absolute path without \"..\"", value.substr(0, 256)));
  spec.save = path;
  return {};
}

Status take_name(Spec& spec, std::string_view value) {
  const auto colon = value.find(':');
  const std::string_view name = value.substr(0, colon);
  const std::string_view mode =
      colon == std::string_view::npos ? std::string_view() : value.substr(colon + 1);
  if (name.empty()) return invalid("the name is empty; write NAME[:auto|create|exec|no_exec]");
  if (name.size() > kMostName)
    return invalid(fmt::format("the name is longer than {} characters", kMostName));
  for (char c : name)
    if (!is_alphanumeric(c) && std::string_view("._-").find(c) == std::string_view::npos)
      return invalid("the name may have only letters, digits and \"._-\"");
  if (!is_alphanumeric(name[0])) return invalid("the name must begin with a letter or a digit");
  auto parsed = mode.empty() ? Result<NameMode>(NameMode::automatic) : parse_name_mode(mode);
  if (!parsed) return parsed.error();
  spec.name = name;
  spec.name_mode = *parsed;
  return {};
}

Status take_env(Spec& spec, std::string_view value) {
  std::vector<std::string> names = spec.env;
  for (std::string_view name : split(value, ',')) {
    if (!is_variable_name(name))
      return invalid(fmt::format("\"{}\" is not the name of a variable; write NAME,NAME,...",
                                 name.substr(0, 64)));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  }
  if (names.size() > kMostVariables)
    return invalid(fmt::format("there are more than {} variables", kMostVariables));
  spec.env = std::move(names);
  return {};
}

Status take_unshare(Spec& spec, std::string_view value) {
  bool net = spec.unshare_net;
  bool ipc = spec.unshare_ipc;
  bool uts = spec.unshare_uts;
  for (std::string_view kind : split(value, ',')) {
    bool* const wanted = kind == "net"   ? &net
                         : kind == "ipc" ? &ipc
                         : kind == "uts" ? &uts
                                         : nullptr;
    if (wanted == nullptr)
      return invalid(fmt::format("unknown namespace \"{}\", which is not one of net, ipc and uts",
                                 kind.substr(0, 64)));
    *wanted = true;
  }
  spec.unshare_net = net;
  spec.unshare_ipc = ipc;
  spec.unshare_uts = uts;
  return {};
}

Status take_tmp(Spec& spec, std::string_view value) {
  auto size = parse_size(value);
  if (!size) return size.error();
  spec.tmp_mib = *size;
  return {};
}

Status take_argument(Spec& spec, Option option, std::string_view value, const Place& place) {
  if (value.empty()) return invalid("it has no value");
  switch (option) {
    case Option::image:
      return take_image(spec, value, place);
    case Option::mounts:
      return parse_mounts(value, place.base, spec.mounts);
    case Option::workdir:
      spec.workdir = normal_path(value, "");
      return {};
    case Option::name:
      return take_name(spec, value);
    case Option::env:
      return take_env(spec, value);
    case Option::unshare:
      return take_unshare(spec, value);
    case Option::tmp:
      return take_tmp(spec, value);
    case Option::save:
      return take_save(spec, value, place);
    default:
      return invalid("it takes no value");
  }
}

Status take_flag(Spec& spec, Option option) {
  switch (option) {
    case Option::mount_home:
    case Option::no_mount_home:
      spec.mount_home = option == Option::mount_home;
      return {};
    case Option::remap_root:
    case Option::no_remap_root:
      spec.remap_root = option == Option::remap_root;
      return {};
    case Option::writable:
    case Option::readonly:
      spec.writable = option == Option::writable;
      return {};
    case Option::verbose:
      spec.verbose = true;
      return {};
    case Option::entrypoint:
    case Option::no_entrypoint:
      spec.entrypoint = option == Option::entrypoint;
      return {};
    case Option::entrypoint_log:
      spec.entrypoint_log = true;
      return {};
    default:
      return {};
  }
}

/// The option that contradicts one.
std::optional<Option> contrary(Option option) {
  constexpr std::pair<Option, Option> kPairs[] = {{Option::mount_home, Option::no_mount_home},
                                                  {Option::remap_root, Option::no_remap_root},
                                                  {Option::writable, Option::readonly},
                                                  {Option::entrypoint, Option::no_entrypoint}};
  for (const auto& [yes, no] : kPairs) {
    if (option == yes) return no;
    if (option == no) return yes;
  }
  return std::nullopt;
}

/// Lists that several options and their values make together.
bool adds_up(Option option) {
  return option == Option::mounts || option == Option::env || option == Option::unshare;
}

std::optional<bool> parse_choice(std::string_view text) {
  const std::string word = to_lower(text);
  for (const char* yes : {"1", "true", "yes", "on", "y"})
    if (word == yes) return true;
  for (const char* no : {"0", "false", "no", "off", "n"})
    if (word == no) return false;
  return std::nullopt;
}

/// The ends of the variables' names, in the order in which they are asked. For a choice the option
/// is the one that "yes" stands for.
constexpr std::pair<const char*, Option> kVariables[] = {
    {"IMAGE", Option::image},
    {"MOUNTS", Option::mounts},
    {"WORKDIR", Option::workdir},
    {"NAME", Option::name},
    {"SAVE", Option::save},
    {"MOUNT_HOME", Option::mount_home},
    {"REMAP_ROOT", Option::remap_root},
    {"ENTRYPOINT", Option::entrypoint},
    {"ENTRYPOINT_LOG", Option::entrypoint_log},
    {"WRITABLE", Option::writable},
    {"READONLY", Option::readonly},
    {"ENV", Option::env},
    {"UNSHARE", Option::unshare},
    {"TMP", Option::tmp},
    {"VERBOSE", Option::verbose},
};

}  // namespace

std::span<const OptionInfo> options() { return kOptions; }

const OptionInfo& info_of(Option option) { return kOptions[static_cast<std::size_t>(option)]; }

Place place_of_process() {
  std::error_code ignored;
  return {std::filesystem::current_path(ignored).string(), [](const std::string& path) {
            std::error_code error;
            return std::filesystem::exists(path, error);
          }};
}

Result<NameMode> parse_name_mode(std::string_view word) {
  for (const auto& [mode, known] : kModes)
    if (word == known) return mode;
  return invalid(
      fmt::format("\"{}\" is not one of auto, create, exec and no_exec", word.substr(0, 64)));
}

std::string_view name_mode_word(NameMode mode) {
  return kModes[static_cast<std::size_t>(mode)].second;
}

Status apply_option(Spec& spec, Option option, std::string_view value, const Place& place) {
  if (auto status = check_value(value); !status.ok()) return status;
  return info_of(option).argument != nullptr ? take_argument(spec, option, value, place)
                                             : take_flag(spec, option);
}

std::vector<Setting> read_variables(const GetVariable& get) {
  std::vector<Setting> settings;
  std::array<bool, kOptionCount> seen{};
  for (const char* prefix : kContainerPrefixes)
    for (const auto& [end, option] : kVariables) {
      const std::string name = std::string(prefix) + end;
      const char* value = get(name.c_str());
      if (value == nullptr) continue;
      const auto other = contrary(option);
      if (seen[static_cast<std::size_t>(option)] ||
          (other && seen[static_cast<std::size_t>(*other)]))
        continue;
      seen[static_cast<std::size_t>(option)] = true;
      if (*value != '\0') settings.push_back({option, name, value});
    }
  return settings;
}

Status Collector::check_length() const {
  if (spec_text(spec()).size() <= kMostText) return {};
  return invalid(
      fmt::format("all --container options together are longer than {} bytes; shorten "
                  "paths, or mount a directory above several",
                  kMostText));
}

Status Collector::take(Option option, std::string_view value) {
  auto& given = given_[static_cast<std::size_t>(option)];
  const auto other = contrary(option);
  if (other && given_[static_cast<std::size_t>(*other)])
    return invalid(
        fmt::format("its opposite --{} is given too; give one of them", info_of(*other).name));
  // Slurm may call twice with one value.
  if (given && *given == value) return {};
  if (given && !adds_up(option))
    return invalid(fmt::format("it is given twice, with \"{}\" and \"{}\"; give it once",
                               given->substr(0, 128), value.substr(0, 128)));
  if (auto status = apply_option(line_, option, value, place_); !status.ok()) return status;
  given = value;
  return check_length();
}

Status Collector::take(const Setting& setting) {
  Option option = setting.option;
  if (info_of(option).argument == nullptr) {
    const auto choice = parse_choice(setting.value);
    if (!choice)
      return invalid(fmt::format("\"{}\" is neither yes nor no", setting.value.substr(0, 64)));
    const auto other = contrary(option);
    if (!*choice && !other) return {};
    if (!*choice) option = *other;
    if (auto status = take_flag(variables_, option); !status.ok()) return status;
    return check_length();
  }
  if (option == Option::mounts) variables_.mounts.clear();
  if (auto status = apply_option(variables_, option, setting.value, place_); !status.ok())
    return status;
  return check_length();
}

std::vector<std::string> Collector::beaten_variables() const {
  std::vector<std::string> names;
  for (const auto& [end, option] : kVariables) {
    const auto other = contrary(option);
    if (!given_[static_cast<std::size_t>(option)] &&
        !(other && given_[static_cast<std::size_t>(*other)]))
      continue;
    for (const char* prefix : kContainerPrefixes) names.push_back(std::string(prefix) + end);
  }
  return names;
}

Spec Collector::spec() const { return overlay(variables_, line_); }

}  // namespace bellows::container
