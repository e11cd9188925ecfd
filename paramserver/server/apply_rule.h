// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "paramserver/protocol/shard_steps.h"
#include "paramserver/server/tensors.h"
#include "paramserver/wire/ps_wire.h"

namespace bellows::ps {

/// invalid: no optimizer has such terms.
Status check_terms(const RuleTerms& terms);
/// Of terms that are checked.
std::uint32_t gradient_bytes(const RuleTerms& terms);
std::uint32_t states_of(const RuleTerms& terms);
/// What torch.optim calls each of its states.
std::vector<std::string> state_names(const RuleTerms& terms);
float initial_state(const RuleTerms& terms);
/// `ranges`: of the shard to which it is applied.
ApplyRule apply_rule(const RuleTerms& terms, std::vector<GroupRange> ranges);

}  // namespace bellows::ps
