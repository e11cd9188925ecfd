// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/ckpt/contents.h"
#include "launcher/ckpt/progress.h"
#include "launcher/ckpt/values.h"

namespace bellows {

/// How the elements of two arrays of one type differ. Elements are equal when their bytes are.
struct ElementDifference {
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;
  /// Of the differing, those with an infinity or not-a-number on a side. They count below as none.
  std::uint64_t not_finite = 0;
  long double largest_absolute = 0;
  /// The absolute one divided by the larger magnitude of the two.
  long double largest_relative = 0;

  bool equal() const { return differing == 0; }
  /// Adds a block of `count` elements. A pure function of the blocks, whatever their sizes.
  void add(Dtype dtype, const unsigned char* a, const unsigned char* b, std::uint64_t count);
};

/// Whether differences of elements of the type have a size: not those of opaque bytes.
inline bool has_size(Dtype dtype) { return dtype != Dtype::bytes; }

struct ArrayDifference {
  std::string title;
  std::string type_a, type_b;  ///< empty: it isn't there
  Dtype dtype = Dtype::bytes;  ///< of both, when the types are equal
  ElementDifference elements;  ///< when the types are equal

  bool same_type() const { return type_a == type_b; }
  bool equal() const { return same_type() && elements.equal(); }
};

/// All arrays of both steps, by name. Who stored what of them makes no difference. Memory is
/// bounded, whatever the arrays' sizes.
Result<std::vector<ArrayDifference>> compare_steps(const StepContents& a, const StepContents& b,
                                                   ProgressBar& progress);

}  // namespace bellows
