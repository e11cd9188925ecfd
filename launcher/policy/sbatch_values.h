// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace bellows {

/// Values of sbatch's options, read as sbatch of Slurm 22.05 reads them. Nothing: sbatch would
/// refuse the text.

/// Minutes of --time, or kUnlimited; seconds are rounded up.
std::optional<std::uint32_t> parse_time_limit(std::string_view text);

/// A number of 1 or more, such as --ntasks takes.
std::optional<std::uint32_t> parse_count(std::string_view text);

/// The least and the most of --nodes.
std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_nodes(std::string_view text);

/// The different nodes of a list such as "n[1-3],m"; not those of a file.
std::optional<std::uint32_t> count_hosts(std::string_view list);

/// Whether it is a size such as 512M.
bool is_memory(std::string_view text);

/// Whether it is [R|B:]SIGNAL[@SECONDS].
bool is_signal(std::string_view text);

/// --gpus and similar options as slurmctld receives them: "a100:2,h100:1" is
/// "gres:gpu:a100:2,gres:gpu:h100:1".
std::string spell_gpu_option(std::string_view value);

/// --gres in the same way; "" for none.
std::string spell_gres(std::string_view value);

}  // namespace bellows
