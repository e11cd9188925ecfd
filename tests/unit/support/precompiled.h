// SPDX-License-Identifier: Apache-2.0
// What most tests include, for --enable-precompiled-header.
#pragma once

#include <criterion/criterion.h>

#include <fstream>
#include <random>

#include "common/precompiled.h"
