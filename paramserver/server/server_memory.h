// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/fd.h"
#include "common/plain/handle.h"
#include "common/result.h"
#include "paramserver/memory/views.h"

namespace bellows::ps {

/// The memory of a server: it outlives the server wherever its descriptors are kept.
struct MemoryFiles {
  Fd control;
  Fd weights;
  Fd states;  ///< none where the rule has none
};

/// What a server has mapped.
class ServerMemory {
 public:
  /// New memory, of version 0 and weights of zeroes. `counts`: elements of each shard, all but the
  /// last multiples of kAlignElements.
  static Result<ServerMemory> make(Geometry geometry, const std::vector<std::uint64_t>& counts);
  /// That of a server that has ended. corrupt: it is not whole.
  static Result<ServerMemory> adopt(MemoryFiles files);

  const ControlView& control() const { return control_view_; }
  const ArrayView& weights() const { return weights_view_; }
  const ArrayView& states() const { return states_view_; }
  const MemoryFiles& files() const { return files_; }

 private:
  ServerMemory() = default;
  Status map_arrays();

  MemoryFiles files_;
  std::unique_ptr<plain::Mapping> control_ = std::make_unique<plain::Mapping>();
  std::unique_ptr<plain::Mapping> weights_ = std::make_unique<plain::Mapping>();
  std::unique_ptr<plain::Mapping> states_ = std::make_unique<plain::Mapping>();
  ControlView control_view_;
  ArrayView weights_view_;
  ArrayView states_view_;
};

/// A learner's slot, which the server only reads.
class SlotMemory {
 public:
  static Result<SlotMemory> make(const Geometry& geometry, std::uint32_t base);
  static Result<SlotMemory> adopt(Fd file, const Geometry& geometry);

  const Fd& file() const { return file_; }
  const SlotView& view() const { return view_; }

 private:
  SlotMemory() = default;

  Fd file_;
  std::unique_ptr<plain::Mapping> mapping_ = std::make_unique<plain::Mapping>();
  SlotView view_;
};

}  // namespace bellows::ps
