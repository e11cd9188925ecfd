// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>

namespace bellows {

/// Who besides its user may read what a job stores: checkpoints, history and logs. A stricter umask
/// wins.
enum class Access { owner, group, all };

/// The words of bellows.yaml and of the contract. What is unknown is for the owner only.
constexpr std::string_view access_name(Access access) {
  return access == Access::all ? "all" : access == Access::group ? "group" : "private";
}
constexpr Access access_named(std::string_view name) {
  return name == "all" ? Access::all : name == "group" ? Access::group : Access::owner;
}

constexpr mode_t directory_mode(Access access) {
  return access == Access::all ? 0755 : access == Access::group ? 0750 : 0700;
}
constexpr mode_t file_mode(Access access) {
  return access == Access::all ? 0644 : access == Access::group ? 0640 : 0600;
}

/// Who may read what is in a directory of this mode.
constexpr Access access_of_mode(mode_t mode) {
  return (mode & 0005) == 0005   ? Access::all
         : (mode & 0050) == 0050 ? Access::group
                                 : Access::owner;
}

}  // namespace bellows
