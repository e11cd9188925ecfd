// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "checkpoint/agent/node_restore.h"
#include "common/result.h"

namespace bellows {

/// Which step the ranks of an attempt are to restore, once that is known, and what those of this
/// node share of it.
class RestoreOffer {
 public:
  /// None: begin at the start, or `none` says why no step can be offered.
  void set(std::optional<std::uint64_t> step, std::optional<Error> none);
  /// What could not be read just now may be asked for again.
  void forgive();
  /// The step has turned out bad: another will be offered.
  void retract() { known_ = false; }
  /// This step is the newest from now on.
  void commit(std::uint64_t step);

  bool known() const { return known_; }
  std::optional<std::uint64_t> step() const { return step_; }
  const std::optional<Error>& none() const { return none_; }

  /// A program may restore in several calls. The ranks share each: one may be at its third when
  /// another comes to its first. `make` is called for the first that comes.
  std::shared_ptr<NodeRestore> share(std::uint64_t call, std::uint64_t step,
                                     const std::function<std::shared_ptr<NodeRestore>()>& make);
  /// The rank saves again: its copies' memory is needed elsewhere.
  void drop_copies(std::uint32_t rank) const;
  /// Whether what this rank was given is kept for ranks that are slower.
  bool holds_memory_of(std::uint32_t rank) const;

 private:
  bool known_ = false;
  std::optional<std::uint64_t> step_;
  std::optional<Error> none_;
  std::map<std::uint64_t, std::shared_ptr<NodeRestore>> shared_;  ///< the first of each rank, ...
};

}  // namespace bellows
