// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/attempt_name.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cctype>
#include <ctime>
#include <random>
#include <vector>

#include "common/text.h"

namespace bellows {

namespace {

std::string random_part() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

RunName RunName::make(std::uint32_t job, std::uint32_t restart, std::uint64_t submitted) {
  return {job, restart, submitted, random_part()};
}

std::optional<RunName> RunName::of_attempt(std::string_view attempt) {
  // A program outside a job has HOST.PID.TIME.RANDOM.
  const std::vector<std::string_view> parts = split(attempt, '.');
  if (parts.size() != 5) return std::nullopt;
  const auto job = parse_uint(parts[0]);
  const auto restart = parse_uint(parts[1]);
  const auto submitted = parse_uint(parts[2]);
  if (!job || *job == 0 || *job > UINT32_MAX || !restart || *restart > UINT32_MAX || !submitted ||
      !parse_uint(parts.back()))
    return std::nullopt;
  return RunName{static_cast<std::uint32_t>(*job), static_cast<std::uint32_t>(*restart), *submitted,
                 std::string(parts[3])};
}

std::string RunName::to_string() const {
  return fmt::format("{}.{}.{}.{}", job, restart, submitted, random);
}

std::string RunName::attempt(std::uint32_t number) const {
  return fmt::format("{}.{}", to_string(), number);
}

std::string program_attempt(const std::string& host) {
  // As far as it fits into a file name.
  std::string name = host.substr(0, 64);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  }
  return fmt::format("{}.{}.{}.{}", name, getpid(), std::time(nullptr), random_part());
}

}  // namespace bellows
