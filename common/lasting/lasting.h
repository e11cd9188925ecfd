// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/result.h"

/// Containers with a name that outlive their jobs, in DIRECTORY/UID/NAME on a node's disk:
///   made-from    what the container was made from; a link's text
///   lock         locked by the one job that uses the container; its time of change is that of the
///                last use
///   job          which job that is; a link's text
///   upper, work  what was written to the container: an overlay's
/// DIRECTORY is root's, and DIRECTORY/UID is made by root for its user, so nobody can take
/// another's place. What is in there is the user's own: nothing that is written there binds anybody
/// else.
namespace bellows::lasting {

inline constexpr const char* kDirectory = "/var/lib/bellows/containers";
/// Where a site has another.
inline constexpr const char* kDirectoryVariable = "BELLOWS_CONTAINERS_DIR";

/// What a container is made from. A value.
struct MadeFrom {
  std::string image;     ///< as options name it
  std::string identity;  ///< of the very file, or a digest: one word

  bool operator==(const MadeFrom&) const = default;
};

std::string origin_text(const MadeFrom& origin);
/// corrupt: it is not what origin_text() writes.
Result<MadeFrom> parse_origin(std::string_view text);

/// The user's directory. not_found: there is none yet. denied: it is not what root makes.
Result<Fd> find_users(const std::string& directory, uid_t uid);

/// The same, made where there is none. As root.
Result<Fd> make_users(const std::string& directory, uid_t uid, gid_t gid);

/// Nothing: there is no such container. Reads no file, so it may be asked as root.
Result<std::optional<MadeFrom>> origin_of(int users, const std::string& name);

/// A container in use by this job. A resource.
struct Use {
  Fd directory;
  Fd lock;            ///< held as long as a copy of it is open; invalid: the job has it already
  bool made = false;  ///< there was none
};

/// As the user. busy: another job uses it. denied: it was made from something else, or is not the
/// user's own. invalid: it was not made as such containers are.
Result<Use> use(int users, const std::string& name, const MadeFrom& origin, std::uint32_t job);

/// Takes back what use() has made of one that then could not be begun.
void forget(int users, const std::string& name, const Use& use);

}  // namespace bellows::lasting
