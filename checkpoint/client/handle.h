// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "checkpoint/client/cuda.h"
#include "checkpoint/client/env.h"
#include "checkpoint/client/socket.h"
#include "checkpoint/include/bellows.h"
#include "checkpoint/wire/wire.h"

namespace bellows::client {

struct Registered {
  wire::Array array;
  char name[wire::kMostName + 1];
  std::uint32_t name_length;
  void* data;
};

/// A save that failed, until a call of the program gives it as its result.
struct SaveFailure {
  std::uint64_t step = 0;
  int code = 0;
  char text[kErrorBytes] = "";
};

/// Saves in flight, oldest first, and what became of those that no longer are. A call begins at
/// most one save and gives at most one failure, if there is one: so there is room for all.
struct Saves {
  static constexpr std::size_t kMost = wire::kBuffers + 2;
  std::uint64_t in_flight[kMost] = {};
  std::size_t count = 0;
  SaveFailure failures[kMost];
  std::size_t failed = 0;
  std::uint64_t newest_saved = wire::kNoStep;  ///< by this handle
  std::uint64_t newest_known = wire::kNoStep;  ///< or restored

  bool flies(std::uint64_t step) const;
  void land(std::uint64_t step);
};

/// A snapshot buffer as this process sees it.
struct Buffer {
  Mapping memory;
  bool tried = false;  ///< to register it with CUDA, once
  bool pinned = false;
};

}  // namespace bellows::client

struct bellows_handle {
  const pid_t process = getpid();
  bellows::client::ErrorText error;
  bellows::client::Place place;
  bellows::client::Handle socket;
  bellows::client::Mapping control;
  bellows::client::Buffer buffers[bellows::wire::kBuffers];
  bellows::client::Cuda cuda;
  bellows::client::Message answer;
  bellows::client::Saves saves;
  bellows::client::Registered* arrays = nullptr;
  std::size_t count = 0;
  std::size_t capacity = 0;
  bool layout_sent = false;
  std::uint64_t memory = UINT64_MAX;  ///< what the agent may use for this rank's buffers

  bellows_handle() = default;
  bellows_handle(const bellows_handle&) = delete;
  bellows_handle& operator=(const bellows_handle&) = delete;
  ~bellows_handle();

  /// Whether this is another process's, forked: what it holds is only to be freed.
  bool is_forked() const { return getpid() != process; }
  /// Before a buffer is mapped again.
  void unpin(bellows::client::Buffer* buffer);

  bellows::wire::Control* page() {
    return reinterpret_cast<bellows::wire::Control*>(control.data());
  }
};

namespace bellows::client {

/// The agent is gone, or speaks nonsense: says so and closes the socket.
int lost(bellows_t* b, int failure);
/// The fields of a handle may be used only after this. A forked process is refused: two on one
/// socket would take each other's answers.
int check_connected(bellows_t* b);

int send(bellows_t* b, wire::Op op, std::uint64_t step, std::uint64_t value);
/// Waits for `op`, taking news of saves that come before it; a failed message becomes this call's
/// error.
int receive(bellows_t* b, wire::Op op);
int call(bellows_t* b, wire::Op ask, std::uint64_t step, std::uint64_t value, wire::Op answer);

/// Tells the agent the arrays when it doesn't know them yet.
int send_layout(bellows_t* b);

/// Has the agent make the first save's buffer meanwhile, so that the save need not wait for it.
/// Without memory for one the save will say so.
int reserve_buffer(bellows_t* b);

/// Copies the arrays into a buffer of the agent and leaves the rest to it.
int begin_save(bellows_t* b, std::uint64_t step, bool waits);
/// Waits until the save isn't in flight any more.
int await_save(bellows_t* b, std::uint64_t step);
int await_all(bellows_t* b);
/// What came already, without waiting for more.
int take_news(bellows_t* b);
/// The oldest failure that the program was not told; `own` is the step it asked to save just now.
int give_failure(bellows_t* b, std::uint64_t own);

}  // namespace bellows::client
