// SPDX-License-Identifier: Apache-2.0
#include "spank/container/phases.h"

#include <fmt/core.h>

namespace bellows::container {
namespace {

/// What a user can do about a failure in a phase.
constexpr std::pair<std::string_view, std::string_view> kFixes[] = {
    {"opening the image and the mounts",
     "check that the image, the sources of --container-mounts and, if it is mounted, your home "
     "directory exist on this node and are open to you"},
    {"mounting the image",
     "try another image, and rebuild this one if that one works; else tell the administrator"},
    {"mounting the system's directories",
     "give the image directories at /proc, /sys, /dev, /tmp and /var/tmp, or leave "
     "--container-writable out"},
    {"mounting the user's directories",
     "name another target in --container-mounts, or make this one in the image"},
    {"entering the container", "name another directory in --container-workdir"},
    {"going to the working directory", "name another directory in --container-workdir"},
    {"running TaskProlog", "tell the administrator, whose script it is"},
};
constexpr std::string_view kOtherwise = "tell the administrator";

std::string_view fix(std::string_view phase) {
  for (const auto& [name, text] : kFixes)
    if (name == phase) return text;
  return kOtherwise;
}

}  // namespace

void Phases::begin(const char* name) {
  end();
  entries_.push_back({name, {}});
  began_ = Clock::now();
  running_ = true;
  if (watcher_) watcher_(name);
  if (observer_) observer_(name);
}

void Phases::end() {
  if (running_) entries_.back().took = Clock::now() - began_;
  running_ = false;
}

std::string refusal(std::string_view phase, std::string_view why) {
  if (why.find("; ") != std::string_view::npos) return fmt::format("{}: {}", phase, why);
  return fmt::format("{}: {}; {}", phase, why, fix(phase));
}

}  // namespace bellows::container
