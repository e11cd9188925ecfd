// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "slurm/compat.h"

/// Slurm's heap over malloc, in place of libslurmfull's: each block is one that AddressSanitizer
/// knows, and no Slurm is needed.
namespace bellows::fuzz {

char* copy(const std::string& text);

/// As Slurm unpacks a list: one null pointer follows. An entry that was packed empty is null.
void fill(char**& entries, std::uint32_t& count, const std::vector<std::string>& texts);

/// Frees the texts that job_desc.cc may read or write.
struct JobFreed {
  void operator()(job_desc_msg_t* job) const;
};

}  // namespace bellows::fuzz
