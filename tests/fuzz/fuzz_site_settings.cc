// SPDX-License-Identifier: Apache-2.0
/// The file of settings for remote places, and the records of the disk tier: each is refused with a
/// sentence that has nothing of the text in it that could be a key, or taken.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "modelstore/disktier/disk_records.h"
#include "modelstore/remote/site_settings.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bellows;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto settings = SiteSettings::parse(text);
  if (settings) {
    require(!settings->limits.addresses.empty() && settings->limits.tries > 0);
  } else {
    require(settings.error().kind == ErrorKind::invalid && settings.error().text.size() < 120);
  }
  const auto records = parse_records(text);
  if (!records) {
    require(records.error().kind == ErrorKind::corrupt);
    return 0;
  }
  const auto back = text_of(*records);
  require(back.ok() && *parse_records(*back) == *records);
  return 0;
}
