// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/container/spec.h"
#include "spank/container/rootfs.h"
#include "tests/unit/support/scratch_dir.h"

namespace bellows::container {

constexpr unsigned kUser = 20001;

/// Of this thread.
std::set<pid_t> own_children();

/// Runs in a child, as root in a mount namespace of its own and then as user 20001 with the
/// capabilities that a task of a job has, and returns what `as_user` returned. What takes longer
/// than 30 s is killed and returns "past its deadline"; what it has left running is killed, too.
std::string run_as_user(const std::function<void()>& as_root,
                        const std::function<std::string()>& as_user,
                        const std::vector<unsigned>& more_groups = {});

/// Files, images and the directory for the container's set-up; all readable by everybody.
class World {
 public:
  World();

  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }
  /// Makes a directory and those above it, or a file with `text`, by its name in the world.
  std::string directory(const std::string& name, unsigned mode = 0755) const;
  std::string file(const std::string& name, const std::string& text, unsigned mode = 0644) const;
  void give(const std::string& name, unsigned uid = kUser) const;

  /// The usual directories and files of an image, in the directory of that name.
  std::string tree(const std::string& name) const;
  /// A squashfs of the directory, in the site's directory of images.
  std::string squash(const std::string& tree, const std::string& image) const;

  /// Builds the container as the user, gives up the capabilities and returns what `inside`
  /// returns, or "error: PHASE: TEXT". `as_root` comes first.
  std::string in_container(const Spec& spec, const std::function<std::string()>& inside,
                           const std::function<void()>& as_root = {}) const;
  /// The same, for a process that run_as_user started.
  std::string build(const Spec& spec, std::vector<PlacedMount> mounts,
                    const std::function<std::string()>& inside, Phases& phases) const;

  Site site;
  bool no_new_privs = true;
  std::string console;
  std::string imported;  ///< root directory of an image in a registry
  std::string home = "/home/user";
  std::vector<unsigned> groups;               ///< besides the user's own
  std::function<void(const char*)> observer;  ///< of the phases

 private:
  ScratchDir scratch_;
};

/// "yes", or the text of errno, for whether a file can be opened so.
std::string opens(const std::string& path, int flags);
std::string text_of(const std::string& path);
/// The mount options that statfs reports at a path: "ro,nosuid,nodev,noexec" in this order.
std::string options_at(const std::string& path);

/// What a program writes to its standard output; no shell is needed.
std::string output_of(const std::vector<std::string>& command);
/// A directory's names, sorted, with spaces between.
std::string names_in(const std::string& path);
Mount bound(const std::string& source, const std::string& target);

/// Why no such test can run here; empty: it can.
std::string cannot_run();

}  // namespace bellows::container

#define EQUALS(found, wanted)                                           \
  do {                                                                  \
    const std::string found_text = (found);                             \
    cr_expect(found_text == (wanted), "found: %s", found_text.c_str()); \
  } while (false)

/// For errors of the set-up.
#define REFUSED(found, word)                                                                   \
  do {                                                                                         \
    const std::string found_text = (found);                                                    \
    cr_expect(found_text.starts_with("error: ") && found_text.find(word) != std::string::npos, \
              "found: %s", found_text.c_str());                                                \
  } while (false)

/// For a test's first line.
#define NEEDS_ROOT()                                                   \
  if (const auto why = bellows::container::cannot_run(); !why.empty()) \
  cr_skip_test("%s", why.c_str())
