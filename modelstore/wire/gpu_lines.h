// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "modelstore/wire/control_wire.h"

/// What both sockets tell of models on GPUs, one line in each answer: for each GPU of a job a line
/// of its own, and behind it one for each model there. GPUs come by job and address, models by
/// tenant and name. Behind the last comes what ends the socket's other tables.
namespace bellows::modelwire {

enum class OnGpu : std::uint32_t {
  none = 0,     ///< the line is the GPU's own
  absent = 1,   ///< the last copy failed
  loading = 2,  ///< into memory, or from there to the GPU
  idle = 3,     ///< there, and nobody has it
  lent = 4,
};

/// For a job, of its own GPUs. It says nothing of whose the models are, nor of what others have on
/// these GPUs.
struct GpuEntry {
  std::uint32_t version = kVersion;
  Answer answer = Answer::gpu;
  std::uint64_t handle = 0;
  OnGpu state = OnGpu::none;
  Failure failure = Failure::none;  ///< of the last copy
  std::uint32_t name_length = 0;
  std::uint32_t text_length = 0;
  std::uint64_t gpu = 0;  ///< as in gpu_address.h
  std::uint64_t budget =
      0;                   ///< bytes that the job's models may take of it, and so are the next two
  std::uint64_t used = 0;  ///< with what is on its way in, and out
  std::uint64_t evicting = 0;      ///< of used: on its way out
  std::uint64_t bytes = 0;         ///< that the model takes; 0: not known
  std::uint64_t copied_bytes = 0;  ///< loading: of them
  std::uint64_t references = 0;    ///< programs that have it open there, once for each time
  std::uint64_t waiting = 0;       ///< programs that wait for it
  char name[kMostName + 1] = {};
  char text[kMostText + 1] = {};  ///< why the last copy failed
};

/// For administrators. A job that has ended has no tenant and no budget any more, but what is not
/// yet free of its memory.
struct GpuLine {
  std::uint32_t version = kVersion;
  OnGpu state = OnGpu::none;
  Failure failure = Failure::none;
  std::uint32_t job_length = 0;
  std::uint32_t job_tenant_length = 0;
  std::uint32_t tenant_length = 0;
  std::uint32_t name_length = 0;
  std::uint32_t text_length = 0;
  std::uint64_t gpu = 0;
  std::uint64_t budget = 0;
  std::uint64_t used = 0;
  std::uint64_t evicting = 0;
  std::uint64_t bytes = 0;
  std::uint64_t copied_bytes = 0;
  std::uint64_t references = 0;
  std::uint64_t waiting = 0;
  char job_tenant[kMostTenant + 1] = {};
  char tenant[kMostTenant + 1] = {};  ///< whose the model is
  char name[kMostName + 1] = {};
  char text[kMostText + 1] = {};
  char job[kMostPath + 1] = {};  ///< or the path of a socket
};

static_assert(sizeof(GpuEntry) == 864 && sizeof(GpuLine) == 2016);

/// As for the other messages.
const char* check(const GpuEntry& entry, std::size_t size);
const char* check(const GpuLine& line, std::size_t size);

}  // namespace bellows::modelwire
