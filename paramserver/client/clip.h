// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace bellows::ps {

/// One tensor's gradient, where it lies.
struct GradientPart {
  unsigned char* data = nullptr;
  std::uint64_t count = 0;  ///< of elements
};

/// As PsMessage has them.
enum class ElementType : std::uint32_t { f32 = 0, bf16 = 1, f16 = 2 };

/// Makes the Euclidean norm of all parts together at most `most`, as torch's clip_grad_norm_ does:
/// each element is multiplied by most / (norm + 1e-6), if that is below 1. The norm before that.
double clip_norm(const GradientPart* parts, std::size_t number, ElementType type, double most);

}  // namespace bellows::ps
