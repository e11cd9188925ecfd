// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/apply_rule.h"

#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "paramserver/rule/rule.h"

namespace bellows::ps {
namespace {

Terms terms_of(const RuleTerms& from) {
  Terms terms;
  terms.rate = from.rate;
  terms.beta1 = from.beta1;
  terms.beta2 = from.beta2;
  terms.epsilon = from.epsilon;
  terms.weight_decay = from.weight_decay;
  terms.decoupled = from.decoupled != 0;
  terms.nesterov = from.nesterov != 0;
  terms.clip_value = from.clip_value;
  return terms;
}

Rule rule_of(const RuleTerms& terms) { return static_cast<Rule>(terms.rule); }

GradientType type_of(const RuleTerms& terms) {
  return static_cast<GradientType>(terms.gradient_type);
}

}  // namespace

Status check_terms(const RuleTerms& terms) {
  const double numbers[] = {terms.rate,         terms.beta1,      terms.beta2,        terms.epsilon,
                            terms.weight_decay, terms.clip_value, terms.initial_state};
  for (const double number : numbers)
    if (!std::isfinite(number) || number < 0)
      return Error{
          ErrorKind::invalid,
          fmt::format("a term of an optimizer is {}: it must be a number of at least 0", number)};
  if (terms.rule > static_cast<std::uint32_t>(Rule::rmsprop) ||
      terms.gradient_type > static_cast<std::uint32_t>(GradientType::f16))
    return Error{ErrorKind::invalid, "there is no such optimizer, or type of gradients"};
  if (terms.beta1 < 1 && terms.beta2 < 1) return {};
  return Error{ErrorKind::invalid,
               fmt::format("betas of {} and {}: they must be below 1", terms.beta1, terms.beta2)};
}

std::uint32_t gradient_bytes(const RuleTerms& terms) {
  return type_of(terms) == GradientType::f32 ? 4 : 2;
}

std::uint32_t states_of(const RuleTerms& terms) {
  return states_of(rule_of(terms), terms_of(terms));
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

ApplyRule apply_rule(const RuleTerms& from) {
  const Apply apply = choose(rule_of(from), type_of(from));
  return [apply, from](const ShardUpdate& update) {
    Terms terms = terms_of(from);
    terms.step = update.version;
    // The mean. Learners in step with one another all give the same scale.
    terms.scale =
        static_cast<double>(update.scales[0]) / static_cast<double>(update.gradients.size());
    Arrays arrays;
    arrays.weights = update.weights;
    arrays.gradients = update.gradients.data();
    arrays.count = static_cast<unsigned>(update.gradients.size());
    arrays.new_weights = update.new_weights;
    for (int i = 0; i < 2; ++i) {
      arrays.state[i] = update.state[i];
      arrays.new_state[i] = update.new_state[i];
    }
    apply(factors_of(rule_of(from), terms), arrays, update.elements);
  };
}

}  // namespace bellows::ps
