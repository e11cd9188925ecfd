// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// A GPU is known by its address on the PCI bus, "0000:3b:00.0", which is the same for the driver,
/// Slurm and all processes, as a number: domain, bus, device, function, in 32, 8, 5 and 3 bits.
namespace bellows::modelwire {

inline constexpr std::uint64_t kNoGpu = UINT64_MAX;
inline constexpr std::uint64_t kLastGpu = (std::uint64_t{1} << 48) - 1;
/// Of "00000000:00:00.0" and its end.
inline constexpr std::size_t kGpuText = 17;

/// Takes "0000:3b:00.0", "3B:00.0" and "00000000:3B:00.0", as tools write them. False: it is none.
bool read_gpu(const char* text, std::size_t length, std::uint64_t* gpu);
/// "0000:3b:00.0"
void write_gpu(std::uint64_t gpu, char (&text)[kGpuText]);
/// Whether it is nothing, or addresses with "," between.
bool is_gpu_list(const char* text, std::size_t length);

}  // namespace bellows::modelwire
