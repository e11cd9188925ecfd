// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "modelstore/wire/control_wire.h"

/// What the daemon's own socket tells: one line of a table in each answer, so that none is long.
/// Where a table ends, a ControlReply without a failure comes instead.
namespace bellows::modelwire {

struct ModelLine {
  static constexpr std::uint32_t kPinned = 1;
  static constexpr std::uint32_t kHasDigest = 2;
  static constexpr std::uint32_t kMoreVisible = 4;  ///< than `visible` has room for
  static constexpr std::uint32_t kConfigured = 8;   ///< it is no one's that was added
  static constexpr std::uint32_t kAllFlags = 15;
  static constexpr std::uint64_t kNever = UINT64_MAX;

  std::uint32_t version = kVersion;
  Place place = Place::absent;
  std::uint32_t flags = 0;
  Failure failure = Failure::none;  ///< of the last load
  std::uint32_t tenant_length = 0;
  std::uint32_t name_length = 0;
  std::uint32_t source_length = 0;
  std::uint32_t visible_length = 0;
  std::uint32_t text_length = 0;
  std::uint32_t unused = 0;
  std::uint64_t bytes = 0;       ///< that it takes of its tenant's budget; 0: not known
  std::uint64_t read_bytes = 0;  ///< loading: of them
  std::uint64_t references = 0;  ///< programs that have it open, once for each time
  std::uint64_t waiting = 0;     ///< programs that wait for it
  std::uint64_t uses = 0;
  std::uint64_t idle_ms = kNever;  ///< since it was last used
  std::uint8_t digest[kDigestBytes] = {};
  char tenant[kMostTenant + 1] = {};
  char name[kMostName + 1] = {};
  char source[kMostPath + 1] = {};  ///< without what is secret in a URL
  char visible[kMostVisible + 1] = {};
  char text[kMostText + 1] = {};  ///< why the last load failed
};

enum class Disk : std::uint32_t {
  none = 0,
  answers = 1,
  silent = 2,  ///< what is told of it is of when it last answered
};

/// In bytes, but for what counts models, jobs, programs, loads and images.
struct StoreLine {
  std::uint32_t version = kVersion;
  std::uint32_t tenant_length = 0;  ///< 0: there are no more
  std::uint64_t budget = 0;
  std::uint64_t used = 0;      ///< with what is on its way in, and out
  std::uint64_t evicting = 0;  ///< of `used`: on its way out
  std::uint64_t models = 0;
  std::uint64_t jobs = 0;      ///< whose sockets are served
  std::uint64_t programs = 0;  ///< that are connected
  /// Models that were loaded since the daemon began, by where they came from.
  std::uint64_t loads = 0;
  std::uint64_t disk_loads = 0;
  std::uint64_t peer_loads = 0;
  std::uint64_t tenant_budget = 0;
  std::uint64_t tenant_used = 0;
  std::uint64_t tenant_evicting = 0;
  Disk disk = Disk::none;
  std::uint32_t unused = 0;
  std::uint64_t disk_budget = 0;
  std::uint64_t disk_used = 0;
  std::uint64_t disk_images = 0;
  char tenant[kMostTenant + 1] = {};
};

struct HolderLine {
  std::uint32_t version = kVersion;
  std::uint32_t job_length = 0;
  std::uint32_t tenant_length = 0;
  std::uint32_t uid = 0;    ///< of its programs
  std::uint64_t count = 0;  ///< how often they have the model open, or wait for it
  char tenant[kMostTenant + 1] = {};
  char job[kMostPath + 1] = {};  ///< or the path of a socket
};

static_assert(sizeof(ModelLine) == 3000 && sizeof(StoreLine) == 200 && sizeof(HolderLine) == 1112);

const char* check(const ModelLine& line, std::size_t size);
const char* check(const StoreLine& line, std::size_t size);
const char* check(const HolderLine& line, std::size_t size);

}  // namespace bellows::modelwire
