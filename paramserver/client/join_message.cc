// SPDX-License-Identifier: Apache-2.0
#include "paramserver/client/join_message.h"

namespace bellows::ps {
namespace {

void set_groups(const bellows_ps_config& config, RuleTerms* terms) {
  if (config.groups == 0) {
    terms->group[0] = {config.rate, config.weight_decay};
    return;
  }
  terms->groups = config.groups;
  for (std::uint32_t g = 0; g < config.groups && g < RuleTerms::kMostGroups; ++g)
    terms->group[g] = {config.group[g].rate, config.group[g].weight_decay};
}

}  // namespace

PsMessage join_of(const bellows_ps_config& config, std::size_t tensors) {
  PsMessage message;
  message.word = PsWord::join;
  message.tensors = tensors;
  RuleTerms& terms = message.terms;
  terms.rule = static_cast<std::uint32_t>(config.rule);
  terms.gradient_type = static_cast<std::uint32_t>(config.gradient_type);
  terms.beta1 = config.beta1;
  terms.beta2 = config.beta2;
  terms.epsilon = config.epsilon;
  terms.clip_value = config.clip_value;
  terms.initial_state = config.initial_state;
  terms.nesterov = config.nesterov != 0;
  terms.decoupled = config.decoupled != 0;
  set_groups(config, &terms);
  terms.schedule.shape = static_cast<std::uint32_t>(config.schedule);
  terms.schedule.warm_up = config.warm_up;
  terms.schedule.period = config.period;
  terms.schedule.factor = config.factor;
  terms.schedule.lowest = config.lowest;
  return message;
}

}  // namespace bellows::ps
