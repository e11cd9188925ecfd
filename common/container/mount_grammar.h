// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/container/spec.h"
#include "common/result.h"

/// Texts that users write for --container-mounts and the smaller values in them. Pure.
namespace bellows::container {

/// No value of an option is longer.
constexpr std::size_t kMostValue = 4096;

/// invalid: it is longer than kMostValue, or has control characters.
Status check_value(std::string_view value);

/// An absolute path without ".", ".." and doubled or closing slashes; a relative one counts from
/// `base`. Only the text: links are not looked at, and ".." at the root stays there.
std::string normal_path(std::string_view path, std::string_view base);

/// A number and K, M, G or T, in MiB, rounded up; at least 1 MiB, at most 16 TiB.
Result<std::uint64_t> parse_size(std::string_view text);

/// SOURCE[:TARGET[:FLAG+FLAG]]. A relative source counts from `base`.
/// invalid: a sentence that names the mount and says what is wrong with it.
Result<Mount> parse_mount(std::string_view text, std::string_view base);

/// The same, parsed back to an equal Mount from any base.
std::string mount_text(const Mount& mount);

/// Adds it unless it is there.
void add_mount(std::vector<Mount>& mounts, Mount mount);

/// Several, with commas between them; added to `mounts`.
Status parse_mounts(std::string_view text, std::string_view base, std::vector<Mount>& mounts);

}  // namespace bellows::container
