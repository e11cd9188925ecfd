// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tests/fault/program_support.h"

// The ranks of the small training program.
namespace bellows::fault_test {

/// The whole life of a rank. `mine` and `theirs`: pipes from and to the other one.
int run_rank(int number, const Plan& plan, Board& board, int mine, int theirs);

/// In a fresh process: restores as a single rank, whatever the world was, and goes on training.
/// 0, or the board's text says what was wrong.
int restore_and_save(const Plan& plan, Board& board, const std::string& dir,
                     std::uint64_t acknowledged);

}  // namespace bellows::fault_test
