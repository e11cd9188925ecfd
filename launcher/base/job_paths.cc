// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/job_paths.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/text.h"

namespace bellows {

std::optional<std::uint32_t> job_id_from_environment() {
  const char* text = std::getenv("SLURM_JOB_ID");
  auto id = text ? parse_uint(text) : std::nullopt;
  if (!id || *id == 0 || *id > 0xffffffffu) return std::nullopt;
  return static_cast<std::uint32_t>(*id);
}

std::string own_program() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "bellows" : path.string();
}

std::string run_dir_of(std::uint32_t job_id) {
  if (const char* dir = std::getenv("BELLOWS_RUN_DIR"); dir && *dir) return dir;
  return fmt::format("/tmp/bellows-{}-{}", getuid(), job_id);
}

}  // namespace bellows
