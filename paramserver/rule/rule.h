// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace bellows::ps {

/// How new weights come from old ones and a gradient. All are those of torch.optim, operation by
/// operation as its loops over single tensors have them in 1.13 (sgd.py, adagrad.py, adam.py,
/// adamw.py, rmsprop.py), in 32-bit floats, with a rounding after each operation. In the formulas g
/// is the gradient, w a weight, s and t are what `state` has.
enum class Rule {
  sgd,       ///< w - rate g
  momentum,  ///< s = beta1 s + g; w - rate s, or with Nesterov's w - rate (g + beta1 s). No
             ///< dampening
  adagrad,   ///< s = s + g g; w - rate g / (sqrt(s) + epsilon)
  adam,      ///< s = beta1 s + (1 - beta1) g; t = beta2 t + (1 - beta2) g g;
             ///< w - rate / (1 - beta1^step) s / (sqrt(t) / sqrt(1 - beta2^step) + epsilon)
  rmsprop,   ///< s = beta2 s + (1 - beta2) g g; w - rate g / (sqrt(s) + epsilon); with beta1 > 0
             ///< t = beta1 t + g / (sqrt(s) + epsilon); w - rate t. Not centered
};

enum class GradientType { f32, bf16, f16 };

/// Which code computes; all give the same bits.
enum class InstructionSet { scalar, avx2, avx512 };

/// The fastest that this processor has.
InstructionSet fastest_set();

/// Whether this processor has it.
bool runs_here(InstructionSet set);

/// What a rule is told for one update. Doubles, as Python has them: 1 - beta is not the same when
/// beta was rounded to a float before.
struct Terms {
  double rate = 0;
  double beta1 = 0;  ///< momentum, also RMSprop's; Adam's first
  double beta2 = 0;  ///< Adam's second; RMSprop's alpha
  double epsilon = 0;
  double weight_decay = 0;
  bool decoupled = false;  ///< w is first multiplied by 1 - rate weight_decay, as AdamW does;
                           ///< otherwise weight_decay w is added to the gradient
  bool nesterov = false;
  double scale = 1;        ///< of the summed gradient: 1 / learners, clipping by norm
  double clip_value = 0;   ///< then each element lies between this and its negative; 0: no clipping
  std::uint64_t step = 1;  ///< the number of this update, from 1
};

/// Terms as the loops need them, made once for an update. They can be used for any number of
/// arrays.
struct Factors {
  float scale, clip;  // clip: infinite if there is none
  float decay, kept;  // of w: added to the gradient; what is left of it
  float rate;         // negative; Adam's is corrected for its bias
  float beta1, beta2;
  float rest1, rest2;  // 1 - beta
  float root;          // of 1 - beta2^step
  float epsilon;
  bool decays, nesterov, second;  // second: RMSprop has momentum
};

Factors factors_of(Rule rule, const Terms& terms);

/// How many arrays of state a rule has: 0 to 2. New ones contain zeros, or for Adagrad the initial
/// sum of squares.
unsigned states_of(Rule rule, const Terms& terms);

/// Stores of so many bytes go past the cache; see README.md for how it was measured.
constexpr std::size_t kPastCache = std::size_t{8} << 20;

/// Where the numbers are. Each array has as many elements as the call says and is aligned as its
/// elements are; stores past the cache also need new arrays at equal distances from multiples of 64
/// bytes. A new array may be the old one itself, and may otherwise overlap nothing.
struct Arrays {
  const float* weights = nullptr;
  const float* state[2] = {};
  const void* const* gradients = nullptr;  ///< summed in this order
  unsigned count = 1;                      ///< of gradients, at least 1
  float* new_weights = nullptr;
  float* new_state[2] = {};
  std::size_t past_cache = kPastCache;  ///< from so many bytes to write on
};

/// Computes the new weights and state of so many elements. A NaN is always stored as 0x7fc00000.
/// The thread must round to nearest and not flush denormal numbers to zero, as it is by default.
using Apply = void (*)(const Factors& factors, const Arrays& arrays, std::size_t elements);

/// To be called once. `set`: one that runs here.
Apply choose(Rule rule, GradientType type, InstructionSet set = fastest_set());

/// The sum of the squares of a gradient's elements, or of the sum of several, in double. The order
/// of the additions is that of the elements' positions, whatever the instruction set.
using SumSquares = double (*)(const void* const* gradients, unsigned count, std::size_t elements);

SumSquares choose_squares(GradientType type, InstructionSet set = fastest_set());

/// What to multiply a gradient by so that its norm is at most `most`: that of
/// torch.nn.utils.clip_grad_norm_. 1 if it is already.
double norm_scale(double norm, double most);

}  // namespace bellows::ps
