// SPDX-License-Identifier: Apache-2.0
// What most tests include, for --enable-precompiled-header. Criterion is left out: to compile it
// first saves nothing that can be measured, and without optimization its functions stay in every
// object, of which some are linked without it.
#pragma once

#include <fstream>
#include <random>

#include "common/precompiled.h"
