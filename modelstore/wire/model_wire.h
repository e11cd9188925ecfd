// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "modelstore/wire/gpu_address.h"

/// A job's socket. Program and daemon are on one machine, in versions that may differ, so every
/// message names the version, and its first 16 bytes have the same meaning in all.
///
/// program                  daemon
/// open handle, name   ->   opened handle + the model's memory | failed handle
///  on a GPU           ->   catalogue handle + memory with that; opened handle + the GPU's memory
/// prefetch, name      ->   accepted | failed
/// close handle        ->   (no answer)
/// progress handle     ->   progress handle, while the model is loaded; else no answer
/// list, name          ->   entry: the model behind this one, of those that the job sees |
/// accepted:
///                          there is no other
/// show, name          ->   entry | failed
/// on_gpus, gpu, name  ->   gpu: the line behind this one, of the job's GPUs (gpu_lines.h) |
/// accepted
///
/// Answers come when they come, each with its handle. A program that leaves more than a few answers
/// untaken is let go. The end of the socket closes all.
namespace bellows::modelwire {

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMostName = 255;
inline constexpr std::size_t kMostText = 511;
inline constexpr std::size_t kDigestBytes = 32;
/// Where jobs find their socket, unless BELLOWS_MODEL_SOCKET names another.
inline constexpr const char* kSocket = "/run/bellows/models.sock";

enum class Op : std::uint32_t {
  open = 1,
  prefetch = 2,
  close = 3,
  progress = 4,
  list = 5,  ///< no name: the first
  show = 6,
  on_gpus =
      7,  ///< the model behind this one on `gpu`; no name: the GPU's first; no GPU: the first GPU
};

/// What a request says which model it means by; list, show and on_gpus: by its name.
enum class By : std::uint32_t {
  name = 0,
  digest = 1,
  file = 2,  ///< `name` is the path of one of its files, `digest` that file's identity
};

struct ModelRequest {
  std::uint32_t version = kVersion;
  Op op = Op::open;
  std::uint64_t handle = 0;  ///< open: any that this socket has not open; close: which
  By by = By::name;
  std::uint32_t name_length = 0;
  std::uint8_t digest[kDigestBytes] = {};
  char name[kMostName + 1] = {};  ///< zeros behind it
  std::uint64_t gpu = kNoGpu;     ///< where it is opened, by its PCI address; else in memory
};

enum class Answer : std::uint32_t {
  opened = 1,
  accepted = 2,
  failed = 3,
  progress = 4,
  entry = 5,
  catalogue = 6,  ///< comes before `opened` of a model on a GPU
  gpu = 7,
};

/// Numbers of enum bellows_model_result.
enum class Failure : std::int32_t {
  none = 0,
  invalid = -1,      ///< what was asked for makes no sense
  not_found = -2,    ///< there is no such model for this job
  no_room = -3,      ///< none, or none now
  corrupt = -4,      ///< the stored model is damaged, or no model
  unavailable = -5,  ///< the daemon, or what it reads from, does not work; trying again may help
};

struct ModelReply {
  std::uint32_t version = kVersion;
  Answer answer = Answer::failed;
  std::uint64_t handle = 0;
  Failure failure = Failure::none;
  std::uint32_t text_length = 0;
  std::uint64_t memory_bytes = 0;  ///< opened: of the descriptor that comes along, of a GPU's the
                                   ///< whole; progress: that the model will take, 0: not known yet
  std::uint64_t catalogue_at = 0;  ///< where in it the catalogue begins; the data begin at 0;
                                   ///< catalogue: 0, and its memory has nothing else;
                                   ///< progress: so many are read
  std::uint64_t catalogue_bytes = 0;
  std::uint8_t digest[kDigestBytes] = {};
  char text[kMostText + 1] = {};  ///< failed: a sentence; zeros behind it
};

enum class Place : std::uint32_t {
  absent = 0,
  loading = 1,
  memory = 2,
};

/// A model that the job sees. It says nothing that its programs could not find out by opening the
/// model: neither whose it is nor who else has it.
struct ModelEntry {
  static constexpr std::uint32_t kOwn = 1;  ///< the tenant's; else another shows it one
  static constexpr std::uint32_t kHasDigest = 2;
  static constexpr std::uint32_t kAllFlags = 3;

  std::uint32_t version = kVersion;
  Answer answer = Answer::entry;
  std::uint64_t handle = 0;
  Place place = Place::absent;
  std::uint32_t flags = 0;
  Failure failure = Failure::none;  ///< of the last load
  std::uint32_t name_length = 0;
  std::uint32_t text_length = 0;
  std::uint32_t unused = 0;
  std::uint64_t bytes = 0;       ///< that it takes; 0: not known
  std::uint64_t read_bytes = 0;  ///< loading: of them
  std::uint8_t digest[kDigestBytes] = {};
  char name[kMostName + 1] = {};
  char text[kMostText + 1] = {};  ///< why the last load failed
};

static_assert(sizeof(ModelRequest) == 320 && sizeof(ModelReply) == 592);
static_assert(sizeof(ModelEntry) == 856);

/// Whether a model may have such a name: words of letters, digits, "_", "-" and ".", with "/"
/// between them; no word begins with ".".
bool is_model_name(const char* name, std::size_t length);

/// Null when a message of `size` bytes may be used; else why not. Only of one that is not
/// shorter may version and handle be looked at.
const char* check(const ModelRequest& request, std::size_t size);
const char* check(const ModelReply& reply, std::size_t size);
const char* check(const ModelEntry& entry, std::size_t size);

}  // namespace bellows::modelwire
