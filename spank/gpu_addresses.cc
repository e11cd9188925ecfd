// SPDX-License-Identifier: Apache-2.0
#include "spank/gpu_addresses.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "common/fd.h"
#include "common/text.h"
#include "spank/container/gpu_nodes.h"

namespace bellows::spank {
namespace {

constexpr std::size_t kMostBytes = 4096;

std::optional<unsigned> minor_of(const std::string& information) {
  const auto text = read_file(information, kMostBytes);
  if (!text) return std::nullopt;
  constexpr std::string_view key = "Device Minor:";
  for (const std::string_view line : split(*text, '\n')) {
    if (!line.starts_with(key)) continue;
    const auto number = parse_uint(trim(line.substr(key.size())));
    if (number && *number <= UINT16_MAX) return static_cast<unsigned>(*number);
  }
  return std::nullopt;
}

/// The driver shows each instance of a GPU as a folder "giN".
bool is_divided(const std::string& root, unsigned minor) {
  std::error_code error;
  std::filesystem::directory_iterator parts(
      fmt::format("{}/proc/driver/nvidia/capabilities/gpu{}/mig", root, minor), error);
  for (; !error && parts != std::filesystem::directory_iterator(); parts.increment(error))
    if (parts->path().filename().string().starts_with("gi")) return true;
  return false;
}

}  // namespace

std::map<unsigned, std::string> gpu_addresses(const std::string& root) {
  std::map<unsigned, std::string> addresses;
  std::error_code error;
  std::filesystem::directory_iterator gpus(root + "/proc/driver/nvidia/gpus", error);
  for (; !error && gpus != std::filesystem::directory_iterator(); gpus.increment(error))
    if (const auto minor = minor_of(gpus->path() / "information"))
      addresses[*minor] = gpus->path().filename();
  return addresses;
}

std::map<unsigned, std::string> whole_gpus(const std::string& root) {
  auto gpus = gpu_addresses(root);
  std::erase_if(gpus, [&](const auto& gpu) { return is_divided(root, gpu.first); });
  return gpus;
}

std::set<unsigned> open_gpus() {
  std::set<unsigned> minors;
  const auto nodes = container::find_gpu_nodes("/");
  if (!nodes) return minors;
  for (const container::GpuNode& node : *nodes)
    if (node.kind == container::GpuNode::Kind::gpu &&
        node.access == container::DeviceAccess::allowed)
      minors.insert(node.minor);
  return minors;
}

}  // namespace bellows::spank
