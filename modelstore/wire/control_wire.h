// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "modelstore/wire/model_wire.h"

/// The daemon's own socket, for root and the daemon's user: SPANK's prolog has a job served through
/// it, and administrators add models. Each request has one answer, in order.
namespace bellows::modelwire {

inline constexpr std::size_t kMostTenant = 63;
inline constexpr std::size_t kMostPath = 1023;
inline constexpr std::size_t kMostVisible = 1023;

enum class ControlOp : std::uint32_t {
  serve = 1,   ///< takes clients of this user from the listening socket that comes along, for this
               ///< tenant; `name` is that of the job, to end it or to serve
               ///< another in its place. Who asks bound it where it likes
  end = 2,     ///< what serve began: the socket, its clients, and its memory on GPUs, which is free
               ///< when the answer comes; until then no other request is taken
  add = 3,     ///< `name` is a model of the tenant, in `path`; again: a new version
  remove = 4,  ///< no one gets it any more; who has it keeps it
  pin = 5,     ///< keeps it in memory, and loads it
  unpin = 6,
  evict = 7,
  prefetch = 8,  ///< loads what the tenant sees by this name, and keeps it as long as any other
  list = 9,      ///< the model behind this one, by tenant and name; neither: the first. Answered
                 ///< with a ModelLine
  status = 10,   ///< all, and the tenant behind this one. Answered with a StoreLine
  holders = 11,  ///< of a model of the tenant's: the job behind the one in `path`. Answered with a
                 ///< HolderLine
  show = 12,     ///< a model of the tenant's. Answered with a ModelLine
  verify = 13,   ///< computes the digest of a model of the tenant's, which is in memory, anew. The
                 ///< answer comes when that is done, and no other request is taken before
  gpus = 14,  ///< the job may have models on its GPUs in `path`, too: their PCI addresses, with ","
              ///< between
  prefetch_on_gpus = 15,  ///< what the job in `path` sees by this name, on all GPUs that it may
  on_gpus = 16,  ///< the model behind this one of the tenant's on the GPU in `visible` of the job
                 ///< in `path`; no model: the GPU's first; no job: the first GPU. Answered with a
                 ///< GpuLine
};

struct ControlRequest {
  std::uint32_t version = kVersion;
  ControlOp op = ControlOp::serve;
  std::uint32_t uid = 0;  ///< serve: of the clients; add: with whose rights the path is opened
  std::uint32_t tenant_length = 0;
  std::uint32_t name_length = 0;
  std::uint32_t path_length = 0;
  std::uint32_t visible_length = 0;
  std::uint32_t unused = 0;
  char tenant[kMostTenant + 1] = {};
  char name[kMostName + 1] = {};
  char path[kMostPath + 1] = {};  ///< add: absolute, or a URL: http://, https:// or s3://;
                                  ///< holders, on_gpus: a job, or nothing
  char visible[kMostVisible + 1] =
      {};  ///< add: tenants besides its own, with "," between; "*": all; on_gpus: a GPU
};

/// What is asked for is done; or the end of a list; or a failure, of any request.
struct ControlReply {
  std::uint32_t version = kVersion;
  Failure failure = Failure::none;
  std::uint32_t text_length = 0;
  std::uint32_t unused = 0;
  char text[kMostText + 1] = {};
};

static_assert(sizeof(ControlRequest) == 2400 && sizeof(ControlReply) == 528);

/// Of a tenant or a job: letters, digits, "_", "-" and "."; no "." at its begin.
bool is_plain_word(const char* text, std::size_t length);

/// Where a model may lie: an absolute path, or a URL as above.
bool is_model_place(const char* text, std::size_t length);

/// A job's name, or the path of a socket.
bool is_served_name(const char* text, std::size_t length);

/// Whether it is nothing, "*", or tenants with "," between.
bool is_visible_list(const char* text, std::size_t length);

/// As for the messages of a job's socket.
const char* check(const ControlRequest& request, std::size_t size);
const char* check(const ControlReply& reply, std::size_t size);

}  // namespace bellows::modelwire
