// SPDX-License-Identifier: Apache-2.0
#include "spank/container/named_container.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <functional>
#include <system_error>
#include <vector>

#include "common/container/spec_text.h"
#include "common/text.h"

namespace bellows::container {
namespace {

Error denied(const Spec& spec, std::string_view why) {
  return {ErrorKind::denied, fmt::format("the container {} {}", spec.name, why)};
}

/// What a step wants of a container otherwise than it is.
struct Differs {
  bool mounts;
  bool home;
  bool writable;
};

/// The options of a step that the container of others can't obey.
std::string options_ignored(const Spec& spec, const Differs& differs) {
  std::vector<std::string_view> options;
  if (!spec.mounts.empty() && differs.mounts) options.emplace_back("--container-mounts");
  if (spec.mount_home && differs.home)
    options.emplace_back(*spec.mount_home ? "--container-mount-home" : "--no-container-mount-home");
  if (spec.writable && differs.writable)
    options.emplace_back(*spec.writable ? "--container-writable" : "--container-readonly");
  return fmt::format("{}", fmt::join(options, ", "));
}

std::string ignored(const Spec& spec, const NamedState& wanted, const NamedState& found) {
  const std::string options =
      options_ignored(spec, {.mounts = wanted.mounts != found.mounts,
                             .home = wanted.mounts_home != found.mounts_home,
                             .writable = wanted.writable != found.writable});
  if (options.empty()) return "";
  return fmt::format("another step runs in the container {}; ignoring {}", spec.name, options);
}

bool is_as_wanted(const Spec& spec, const NamedState& wanted, const NamedState& found) {
  // A source may have been replaced since.
  return spec.mounts.empty() && !wanted.mounts_home && wanted.mounts == found.mounts &&
         wanted.writable == found.writable;
}

}  // namespace

NamedState state_for(const Spec& spec, const Site& site, const std::string& home) {
  NamedState state;
  state.mounts_home = spec.mount_home.value_or(site.mount_home);
  state.writable = spec.writable.value_or(site.writable);
  state.image = spec.image;
  Spec mounts;
  mounts.mounts = spec.mounts;
  state.mounts =
      std::hash<std::string>()(spec_text(mounts) + (state.mounts_home ? " " + home : ""));
  return state;
}

std::string made_by_others(const Spec& spec) {
  return options_ignored(spec, {.mounts = true, .home = true, .writable = true});
}

std::string state_text(const NamedState& state) {
  return fmt::format("{:x} {}{}{}{} {}", state.mounts, state.mounts_home ? 'h' : '-',
                     state.writable ? 'w' : '-', state.layered ? 'l' : '-',
                     state.imported ? 'i' : '-', state.image);
}

Result<NamedState> parse_state(std::string_view text) {
  const Error bad = {ErrorKind::denied,
                     "this node does not know how the container was made, perhaps because it was "
                     "made before Bellows was upgraded; use another name"};
  const auto parts = split(text, ' ');
  if (parts.size() < 3 || parts[1].size() != 4) return bad;
  NamedState state;
  const auto end = parts[0].data() + parts[0].size();
  const auto read = std::from_chars(parts[0].data(), end, state.mounts, 16);
  if (read.ec != std::errc() || read.ptr != end) return bad;
  state.mounts_home = parts[1][0] == 'h';
  state.writable = parts[1][1] == 'w';
  state.layered = parts[1][2] == 'l';
  state.imported = parts[1][3] == 'i';
  state.image = text.substr(parts[0].size() + 6);
  return state;
}

Result<EntranceChoice> decide(const Spec& spec, const NamedState& wanted, const NamedState* found,
                              bool vacant) {
  if (found == nullptr) {
    if (spec.name_mode == NameMode::exec)
      return denied(spec,
                    "does not exist on this node, and the mode exec only joins one; name it "
                    "without :exec");
    if (spec.image.empty())
      return denied(spec, "does not exist on this node; give --container-image to create it");
    return EntranceChoice{Entrance::make, ""};
  }
  if (spec.name_mode == NameMode::create)
    return denied(
        spec,
        "exists on this node already, and the mode create does not join one; use another name");
  if (vacant && spec.name_mode == NameMode::exec)
    return denied(spec,
                  "exists, but no step runs in it on this node, and the mode exec only joins one "
                  "that runs; name it without :exec");
  if (spec.name_mode == NameMode::no_exec) return EntranceChoice{Entrance::remake, ""};
  if (!vacant) return EntranceChoice{Entrance::join, ignored(spec, wanted, *found)};
  return EntranceChoice{is_as_wanted(spec, wanted, *found) ? Entrance::join : Entrance::remake, ""};
}

}  // namespace bellows::container
