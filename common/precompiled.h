// SPDX-License-Identifier: Apache-2.0
// What most sources include, for --enable-precompiled-header. JSON is left out: to look names up
// among its templates costs the files that don't use it more than its users gain.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
