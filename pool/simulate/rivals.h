// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pool/simulate/autoscaler.h"
#include "pool/simulate/service.h"

namespace bellows::pool {

/// bellows (pool/policy's Decider), the rules of others at their documented defaults, and `bound`,
/// which knows the load and reacts at once.
const std::vector<std::string>& autoscaler_names();

/// Null: there is none of that name. Each aims at `service.target` calls for a member.
std::unique_ptr<Autoscaler> make_autoscaler(const std::string& name, const Service& service,
                                            const std::vector<double>& load);

}  // namespace bellows::pool
