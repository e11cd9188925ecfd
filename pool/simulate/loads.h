// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bellows::pool {

/// steps, cyclic, day (compressed to an hour), crowd (a flash crowd).
const std::vector<std::string>& load_names();

/// Calls a second for each second of an hour, at most `peak`, with noise of 2 % that `seed`
/// chooses. Empty: there is no load of that name.
std::vector<double> make_load(const std::string& name, double peak, std::uint32_t seed);

}  // namespace bellows::pool
