// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bellows::container {

/// One of --container-mounts: SOURCE[:TARGET[:FLAG+FLAG]]. A value.
struct Mount {
  enum class Kind { bind, tmpfs, umount };

  Kind kind = Kind::bind;
  std::string source;  ///< bind: an absolute path on the host
  std::string target;  ///< an absolute path in the container
  bool read_only = false;
  bool no_exec = false;
  bool recursive = true;  ///< rbind: with what is mounted below the source
  bool create = true;     ///< x-create=auto: a missing target is created; x-create=none: refused
  bool no_atime = false;
  bool no_dir_atime = false;
  bool unbindable = false;       ///< nothing can be bound from it
  bool optional = false;         ///< nofail: where it can't be had, the container does without
  bool quiet = false;            ///< silent: and nothing is said of that
  std::uint64_t size_mib = 0;    ///< tmpfs: the size=N flag; 0: the kernel's default
  std::optional<unsigned> mode;  ///< tmpfs: of its root; unset: 1777
  std::string huge;              ///< tmpfs: its huge pages, in the kernel's words; empty: none

  bool operator==(const Mount&) const = default;
};

/// How --container-name's container may be used: NAME[:auto|create|exec|no_exec], as pyxis has it.
enum class NameMode { automatic, create, exec, no_exec };

inline constexpr const char* kHostImage = "/";

/// The home directory of a user who appears as root in a container (--container-remap-root).
inline constexpr const char* kRootHome = "/root";

/// A container as the options, the variables and the contract together describe it. A value; what
/// it names is neither looked up nor allowed yet.
struct Spec {
  /// An absolute path of a squashfs file or a directory, or the text of an ImageReference; empty:
  /// what the job has, if it has one; kHostImage: none, whatever the job has.
  std::string image;
  std::vector<Mount> mounts;  ///< in order, duplicates dropped
  std::optional<std::string> workdir;
  std::string name;  ///< of --container-name; empty: none
  NameMode name_mode = NameMode::automatic;
  std::optional<bool> mount_home;  ///< unset: the site's default
  std::optional<bool> remap_root;
  std::optional<bool> writable;
  std::optional<bool> entrypoint;  ///< whether the image's runs before the program
  bool entrypoint_log = false;     ///< what it writes is shown
  std::vector<std::string> env;    ///< variables whose value on the host beats the image's
  bool unshare_net = false;
  bool unshare_ipc = false;
  bool unshare_uts = false;
  std::optional<std::uint64_t> tmp_mib;  ///< of --container-tmp: size of the private /tmp
  bool verbose = false;
  std::string save;  ///< of --container-save: an absolute path on the host; empty: none

  bool operator==(const Spec&) const = default;
};

/// The site's choice about containers with a name. A value.
struct LastingContainers {
  bool wanted = false;                                    ///< they outlive their jobs
  std::string directory = "/var/lib/bellows/containers";  ///< in which each user has one
  std::uint32_t days = 30;  ///< one that no job has used for so long is removed
  std::uint64_t mib = 0;    ///< with more in them, a user gets no further one; 0: no limit

  bool operator==(const LastingContainers&) const = default;
};

/// What the administrator sets for a node, in plugstack.conf. A value.
struct Site {
  std::vector<std::string> image_dirs;  ///< where squashfs images may lie; empty: nowhere
  std::string image_importer;           ///< the program that fetches images; empty: Bellows's own
  std::string image_cache;  ///< a directory with one of images for each user; empty: in their homes
  std::uint64_t image_budget_mib =
      0;  ///< the most that all images of a user may have; 0: the importer's
  /// The program that reads other squashfs files for their user; empty: there are no others.
  std::string squashfuse = "/usr/bin/squashfuse_ll";
  /// The program that writes containers to files; empty: none are written.
  std::string mksquashfs = "/usr/bin/mksquashfs";
  LastingContainers lasting;
  std::vector<std::string> devices;  ///< further device nodes of a container (fabric), patterns
  std::uint64_t tmp_mib = 0;         ///< size of the private /tmp and /var/tmp; 0: half of memory
  std::uint64_t shm_mib = 0;         ///< of the private /dev/shm; 0: half of memory
  std::vector<std::string>
      tmp_keep;  ///< directories below /tmp, /var/tmp or /dev/shm that jobs still see
  bool mount_home = false;
  bool remap_root = false;
  bool user_namespace = false;  ///< also where the user is not root
  bool writable = false;
  bool entrypoint = false;
  bool batch_in_container = true;  ///< where the contract says so
  bool task_prolog_in_container = false;
  bool no_new_privs = true;
  bool require_fence = true;  ///< a job with GPUs is not started where Slurm does not fence them
  std::uint32_t max_containers = 64;  ///< of one job on a node, with a name or without
  std::uint32_t phase_seconds = 30;   ///< the most that one phase of the set-up may take
  std::uint32_t save_seconds = 600;   ///< the most that saving a container may take
  std::string pause_at;  ///< the phase at which a set-up stops itself, for tests of crashes

  bool operator==(const Site&) const = default;
};

}  // namespace bellows::container
