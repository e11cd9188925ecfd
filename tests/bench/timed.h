// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

/// Seconds that work takes.
inline double timed(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
