// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "paramserver/memory/layout.h"

namespace bellows::ps {

/// learner                            server
/// join [+ TensorSpecs]          ->   granted + control, more + weights, more + slot, more + bell
///                                    or: initial: the memory is new; its weights are wanted
/// initial [+ the weights]       ->   granted ...
///                                    or: refused: a sentence
/// leave                         ->   left, once all that was published is applied
/// report                        ->   report: how the training goes. Of anybody
enum class PsWord : std::uint32_t {
  join = 1,
  initial = 2,
  granted = 3,
  more = 4,
  refused = 5,
  leave = 6,
  left = 7,
  report = 8
};

enum class PsRefusal : std::uint32_t { invalid = 0, full = 1, unavailable = 2 };

/// One tensor, as a join names it: so many of these in its memfd.
struct TensorSpec {
  std::uint64_t count = 0;  ///< of elements
  std::uint64_t width =
      0;  ///< of a row, and gradients name the rows that they have; 0: they do not
  std::uint32_t group = 0;
  std::uint32_t unused = 0;

  std::uint64_t rows() const { return width == 0 ? 0 : count / width; }
  /// Of a gradient's: how many rows it has, and room for their numbers. Tensors' follow each other.
  std::uint64_t row_words() const { return width == 0 ? 0 : 1 + rows(); }

  bool operator==(const TensorSpec&) const = default;
};

/// What differs between groups of tensors.
struct GroupTerms {
  double rate = 0;
  double weight_decay = 0;

  bool operator==(const GroupTerms&) const = default;
};

/// How the rates change with the number of updates: a RateSchedule of ../rule/, but for the rate.
struct ScheduleTerms {
  std::uint32_t shape = 0;  ///< a RateShape
  std::uint64_t warm_up = 0;
  std::uint64_t period = 1;
  double factor = 1;
  double lowest = 0;

  bool operator==(const ScheduleTerms&) const = default;
};

/// What is done with gradients. All learners say the same.
struct RuleTerms {
  static constexpr std::uint32_t kMostGroups = 64;

  std::uint32_t rule = 0;           ///< a Rule of ../rule/
  std::uint32_t gradient_type = 0;  ///< a GradientType of ../rule/
  std::uint32_t groups = 1;
  GroupTerms group[kMostGroups];
  ScheduleTerms schedule;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double clip_value = 0;     ///< 0: no clipping
  double initial_state = 0;  ///< Adagrad's sum of squares
  std::uint32_t nesterov = 0;
  std::uint32_t decoupled = 0;  ///< weight decay as AdamW has it

  bool operator==(const RuleTerms&) const = default;
};

/// How the training goes, since its beginning.
struct PsReport {
  std::uint64_t learners = 0;   ///< that take part now
  std::uint64_t updates = 0;    ///< of the part of the parameters that has had the most
  std::uint64_t gradients = 0;  ///< of all parts
  std::uint64_t staleness = 0;  ///< the sum over them, in versions
  std::uint64_t most_staleness = 0;
};

struct PsMessage {
  static constexpr std::uint32_t kVersion = 3;
  static constexpr std::size_t kMostText = 1023;
  static constexpr std::uint32_t kAnyLead = UINT32_MAX;
  static constexpr std::uint64_t kMostTensors = 1 << 20;

  std::uint32_t version = kVersion;
  PsWord word = PsWord::refused;
  std::uint64_t tensors = 0;  ///< of a join: so many TensorSpecs in the memfd
  RuleTerms terms;            ///< of a join
  Geometry geometry;          ///< of what is granted
  std::uint32_t learner = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t base = 0;
  std::uint64_t clock = 0;                 ///< of the learner that is granted a seat
  std::uint32_t lead = kAnyLead;           ///< how far it may be ahead of the slowest, by its clock
  PsRefusal refusal = PsRefusal::invalid;  ///< of what is refused
  PsReport report;
  std::uint32_t length = 0;
  char text[kMostText + 1] = {};

  bool is_sound(std::size_t size) const {
    return size == sizeof *this && version == kVersion && word >= PsWord::join &&
           word <= PsWord::report && length <= kMostText && tensors <= kMostTensors;
  }
};

}  // namespace bellows::ps
