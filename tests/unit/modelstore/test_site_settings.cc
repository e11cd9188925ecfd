// SPDX-License-Identifier: Apache-2.0
// What an administrator says of remote places.
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "modelstore/remote/site_settings.h"
#include "tests/unit/modelstore/model_files.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

std::string refusal(const std::string& text) {
  const auto settings = SiteSettings::parse(text);
  return settings ? "" : settings.error().text;
}

RemoteUrl url_of(const std::string& text) {
  auto url = RemoteUrl::parse(text, {});
  cr_assert(url.ok());
  return *url;
}

}  // namespace

Test(site_settings, has_what_each_line_says, .timeout = 10) {
  const auto settings = SiteSettings::parse(
      "# Of this site\n\nhost = models.example.org\n host=*.example.com \naddress = 10.0.0.0/8\n"
      "ca_file = /etc/ca.pem\ns3_endpoint = https://s3.example.org\ns3_region = eu-1\n"
      "s3_access_key = AK\ns3_secret_key = a=b/c\ns3_session_token = st\n"
      "token = https://hub.example.org hf_1\nconnect_seconds = 3\nslow_seconds = 4\n"
      "slow_bytes = 5\nwhole_seconds = 6\ntries = 7\n");
  cr_assert(settings.ok(), "%s", settings.error().text.c_str());
  const RemoteLimits& limits = settings->limits;
  cr_expect(limits.hosts == std::vector<std::string>({"models.example.org", "*.example.com"}));
  cr_expect(limits.addresses == std::vector<std::string>({"10.0.0.0/8"}));
  cr_expect(limits.ca_file == "/etc/ca.pem" && limits.connect.count() == 3000 &&
            limits.slow_for.count() == 4 && limits.slowest_bytes_per_second == 5 &&
            limits.whole.count() == 6000 && limits.tries == 7);
  cr_expect(settings->s3.endpoint == "https://s3.example.org" && settings->s3.region == "eu-1" &&
            settings->s3.access_key == "AK" && settings->s3.secret_key == "a=b/c" &&
            settings->s3.session_token == "st");
  const auto empty = SiteSettings::parse("");
  cr_expect(empty->limits.addresses == std::vector<std::string>({"public"}));
}

Test(site_settings, gives_each_key_to_whom_it_is_for, .timeout = 10) {
  const auto settings = SiteSettings::parse(
      "token = https://hub.example.org hf_1\ns3_access_key = AK\ns3_secret_key = SK\n");
  cr_assert(settings.ok());
  cr_expect(settings->credentials_for(url_of("https://hub.example.org:443/m")).bearer == "hf_1");
  for (const char* other : {"https://hub.example.org:444/m", "http://hub.example.org/m",
                            "https://example.org/m", "https://hub.example.org.evil.org/m"}) {
    const auto credentials = settings->credentials_for(url_of(other));
    cr_expect(credentials.bearer.empty() && credentials.s3.access_key.empty(), "%s", other);
  }
  const auto s3 = settings->credentials_for(url_of("s3://bucket/key"));
  cr_expect(s3.bearer.empty() && s3.s3.secret_key == "SK");
}

Test(site_settings, refuses_what_it_does_not_know_without_telling_it, .timeout = 10) {
  for (const char* value :
       {"s3_secret SECRET", "s3_secret_keys = SECRET", "SECRET", "address = SECRET",
        "ca_file = SECRET", "tries = SECRET", "tries = 0", "tries = 1000", "slow_bytes = -1",
        "connect_seconds = 99999999999", "token = http://hub.example.org SECRET", "token = SECRET",
        "host = SECRET@x", "s3_region ="}) {
    const std::string why = refusal("# first\n" + std::string(value));
    cr_expect(has(why, "line 2: ") && !has(why, "SECRET"), "%s: %s", value, why.c_str());
  }
  cr_expect(has(refusal("s3_secret_keys = x"), "is s3_secret_key meant?"));
}

Test(site_settings, is_read_from_a_file_of_ones_own_only, .timeout = 10) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/remote.conf";
  write_file(path, "tries = 3\n");
  for (const mode_t mode : {0644, 0640, 0620, 0604}) {
    chmod(path.c_str(), mode);
    const auto settings = SiteSettings::read(path);
    cr_expect(!settings && settings.error().kind == ErrorKind::denied, "mode %o", mode);
  }
  chmod(path.c_str(), 0600);
  cr_expect(SiteSettings::read(path)->limits.tries == 3);
  cr_expect(SiteSettings::read(path + "x").error().kind == ErrorKind::not_found);
  if (geteuid() == 0) {
    cr_assert_eq(chown(path.c_str(), 65534, 65534), 0);
    cr_expect(!SiteSettings::read(path), "it is another user's");
  }
}
