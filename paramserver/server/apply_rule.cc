// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/apply_rule.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "paramserver/rule/rule.h"
#include "paramserver/rule/schedule.h"
#include "paramserver/server/shard_rows.h"

namespace bellows::ps {
namespace {

/// Of a group, at an update.
Terms terms_of(const RuleTerms& from, std::uint32_t group, std::uint64_t update) {
  RateSchedule schedule;
  schedule.shape = static_cast<RateShape>(from.schedule.shape);
  schedule.rate = from.group[group].rate;
  schedule.warm_up = from.schedule.warm_up;
  schedule.period = from.schedule.period;
  schedule.factor = from.schedule.factor;
  schedule.lowest = from.schedule.lowest;
  Terms terms;
  terms.rate = rate_of(schedule, update);
  terms.step = update;
  terms.beta1 = from.beta1;
  terms.beta2 = from.beta2;
  terms.epsilon = from.epsilon;
  terms.weight_decay = from.group[group].weight_decay;
  terms.decoupled = from.decoupled != 0;
  terms.nesterov = from.nesterov != 0;
  terms.clip_value = from.clip_value;
  return terms;
}

Rule rule_of(const RuleTerms& terms) { return static_cast<Rule>(terms.rule); }

GradientType type_of(const RuleTerms& terms) {
  return static_cast<GradientType>(terms.gradient_type);
}

/// A rule, and what it has to remember of a shard.
class ShardRule {
 public:
  ShardRule(const RuleTerms& terms, std::vector<GroupRange> ranges)
      : terms_(terms),
        apply_(choose(rule_of(terms), type_of(terms))),
        states_(states_of(terms)),
        element_(gradient_bytes(terms)),
        ranges_(std::move(ranges)),
        rows_(ranges_) {}

  std::optional<Nonsense> operator()(const ShardUpdate& update) {
    if (auto nonsense = rows_.read(update)) return nonsense;
    rows_.bring_forward(update, states_);
    std::size_t matrix = 0;
    std::vector<const void*> gradients;
    for (const GroupRange& range : ranges_) {
      Terms terms = terms_of(terms_, range.group, update.version);
      // The mean. Learners in step with one another all give the same scale.
      terms.scale =
          static_cast<double>(update.scales[0]) / static_cast<double>(update.gradients.size());
      const Arrays arrays = arrays_of(update, range, &gradients);
      if (range.width == 0) {
        apply_(factors_of(rule_of(terms_), terms), arrays, range.count);
        continue;
      }
      RowList changed = apply_rows(apply_, row_factors_of(rule_of(terms_), terms), type_of(terms_),
                                   arrays, rows_.lists(matrix), range.width);
      rows_.add(matrix++, update.version, std::move(changed));
    }
    return std::nullopt;
  }

 private:
  /// `gradients`: room for where they begin.
  Arrays arrays_of(const ShardUpdate& update, const GroupRange& range,
                   std::vector<const void*>* gradients) const {
    gradients->clear();
    for (const void* gradient : update.gradients)
      gradients->push_back(static_cast<const unsigned char*>(gradient) + range.begin * element_);
    Arrays arrays;
    arrays.weights = update.weights + range.begin;
    arrays.gradients = gradients->data();
    arrays.count = static_cast<unsigned>(gradients->size());
    arrays.new_weights = update.new_weights + range.begin;
    for (std::uint32_t i = 0; i < states_; ++i) {
      arrays.state[i] = update.state[i] + range.begin;
      arrays.new_state[i] = update.new_state[i] + range.begin;
    }
    return arrays;
  }

  RuleTerms terms_;
  Apply apply_;
  std::uint32_t states_;
  std::uint32_t element_;
  std::vector<GroupRange> ranges_;
  ShardRows rows_;
};

}  // namespace

Status check_terms(const RuleTerms& terms) {
  if (terms.groups < 1 || terms.groups > RuleTerms::kMostGroups)
    return Error{ErrorKind::invalid, fmt::format("{} groups of tensors: there may be 1 to {}",
                                                 terms.groups, RuleTerms::kMostGroups)};
  std::vector<double> numbers = {terms.beta1,          terms.beta2,         terms.epsilon,
                                 terms.clip_value,     terms.initial_state, terms.schedule.factor,
                                 terms.schedule.lowest};
  for (std::uint32_t g = 0; g < terms.groups; ++g) {
    numbers.push_back(terms.group[g].rate);
    numbers.push_back(terms.group[g].weight_decay);
  }
  for (const double number : numbers)
    if (!std::isfinite(number) || number < 0)
      return Error{
          ErrorKind::invalid,
          fmt::format("a term of an optimizer is {}: it must be a number of at least 0", number)};
  if (terms.rule > static_cast<std::uint32_t>(Rule::rmsprop) ||
      terms.gradient_type > static_cast<std::uint32_t>(GradientType::f16) ||
      terms.schedule.shape > static_cast<std::uint32_t>(RateShape::cosine))
    return Error{ErrorKind::invalid, "there is no such optimizer, schedule or type of gradients"};
  if (terms.schedule.period < 1)
    return Error{ErrorKind::invalid, "a schedule's period is 0: it is at least 1 update"};
  if (terms.beta1 < 1 && terms.beta2 < 1) return {};
  return Error{ErrorKind::invalid,
               fmt::format("betas of {} and {}: they must be below 1", terms.beta1, terms.beta2)};
}

std::uint32_t gradient_bytes(const RuleTerms& terms) {
  return type_of(terms) == GradientType::f32 ? 4 : 2;
}

std::uint32_t states_of(const RuleTerms& terms) {
  return states_of(rule_of(terms), terms_of(terms, 0, 1));
}

std::vector<std::string> state_names(const RuleTerms& terms) {
  std::vector<std::string> names;
  switch (rule_of(terms)) {
    case Rule::sgd:
      break;
    case Rule::momentum:
      names = {"momentum_buffer"};
      break;
    case Rule::adagrad:
      names = {"sum"};
      break;
    case Rule::adam:
      names = {"exp_avg", "exp_avg_sq"};
      break;
    case Rule::rmsprop:
      names = {"square_avg", "momentum_buffer"};
  }
  names.resize(states_of(terms));
  return names;
}

float initial_state(const RuleTerms& terms) { return static_cast<float>(terms.initial_state); }

ApplyRule apply_rule(const RuleTerms& terms, std::vector<GroupRange> ranges) {
  return ShardRule(terms, std::move(ranges));
}

}  // namespace bellows::ps
