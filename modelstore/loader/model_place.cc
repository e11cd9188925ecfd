// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/model_place.h"

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::string_view kS3 = "s3://";

bool begins(std::string_view place, std::string_view scheme) {
  return to_lower(place.substr(0, scheme.size())) == scheme;
}

}  // namespace

bool is_remote_place(std::string_view place) {
  return begins(place, "http://") || begins(place, "https://") || begins(place, kS3);
}

std::string shown_place(std::string_view place) {
  if (!is_remote_place(place) || begins(place, kS3)) return std::string(place);
  // Of what is no right URL, nobody knows where a user's name and password end.
  std::string shown(place.substr(0, place.find_first_of("?#")));
  if (const auto at = shown.rfind('@'); at != std::string::npos) shown.replace(0, at, "***");
  return shown;
}

}  // namespace bellows
