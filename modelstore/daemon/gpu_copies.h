// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "common/child.h"
#include "common/event_loop.h"
#include "modelstore/daemon/loads.h"
#include "modelstore/daemon/model_memory.h"
#include "modelstore/loader/loader_wire.h"

namespace bellows {

/// A GPU that a job has. What is there is the job's alone.
struct GpuPlace {
  std::string job;
  std::uint64_t gpu = 0;  ///< its address, as in gpu_address.h

  auto operator<=>(const GpuPlace&) const = default;
  /// "GPU 0000:3b:00.0 of job 12"
  std::string to_string() const;
};

/// A model on a GPU that can be lent: who has the descriptor maps the GPU's memory.
struct GpuCopy {
  Fd memory;
  std::uint64_t bytes = 0;         ///< of it: no less than the model has
  ModelMemory catalogue;           ///< sealed, with the catalogue alone
  std::uint64_t catalogue_at = 0;  ///< in the model
  ModelDigest digest;
};

/// What a model of so many bytes takes of a GPU at most: drivers divide its memory by 2 MiB.
constexpr std::uint64_t room_on_gpu(std::uint64_t bytes) {
  constexpr std::uint64_t kUnit = 2 << 20;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

/// What copies come to. Each ends with one call.
class GpuCopyHost {
 public:
  virtual ~GpuCopyHost() = default;
  virtual void copy_done(std::uint64_t key, GpuCopy copy) = 0;
  virtual void copy_failed(std::uint64_t key, const Error& error) = 0;
};

struct GpuCopyOptions {
  std::string program;                     ///< bellows-model-gpu
  std::string empty_folder;                ///< only this user can write to it
  std::string library = "libcuda.so.1";    ///< the driver's
  std::chrono::milliseconds stall{60000};  ///< without any progress
};

/// The processes that copy models to GPUs, one for each GPU at a time. Never waits for one: what
/// hangs in a driver may not even end when it is killed. No further ones are started for a GPU that
/// has some of these: each keeps what it has.
class GpuCopies {
 public:
  using Time = EventLoop::Clock::time_point;

  GpuCopies(EventLoop& loop, GpuCopyHost& host, GpuCopyOptions options)
      : loop_(loop), host_(host), options_(std::move(options)) {}

  /// `key`: the caller's. The memory may be closed meanwhile.
  void start(std::uint64_t key, const GpuPlace& place, const ModelMemory& memory);
  /// Without a word to the host.
  void stop(std::uint64_t key);
  /// Nothing: there is no such copy.
  std::optional<LoadProgress> progress(std::uint64_t key) const;
  /// Whether a process may have memory of the job's GPUs still.
  bool is_at_work(const std::string& job) const;
  /// Ends what is overdue, and gives the time when to look again.
  Time tick(Time now);

 private:
  struct Copy {
    GpuPlace place;
    ModelMemory memory;
    Fd catalogue;
    std::optional<Child> child;  ///< none: it waits for another
    Fd socket;
    EventLoop::Watch watch;
    std::uint64_t done = 0;
    Time deadline = Time::max();
  };

  /// A process that was killed, and has not ended yet.
  struct Dying {
    GpuPlace place;
    Child child;
  };

  void start_queued();
  bool is_busy(std::uint64_t gpu) const;
  bool is_stuck(std::uint64_t gpu) const;
  Status begin(std::uint64_t key, Copy& copy);
  Status give_task(Copy& copy);
  void on_message(std::uint64_t key);
  Status take_done(std::uint64_t key, std::uint64_t bytes, Fd memory);
  void let_go(Copy& copy);
  void end(std::uint64_t key, const Error& error);
  Error ended(Copy& copy) const;
  Error stalled(const Copy& copy) const;

  EventLoop& loop_;
  GpuCopyHost& host_;
  const GpuCopyOptions options_;
  std::map<std::uint64_t, Copy> copies_;
  std::list<Dying> dying_;
};

}  // namespace bellows
