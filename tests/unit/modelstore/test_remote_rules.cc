// SPDX-License-Identifier: Apache-2.0
// Which hosts, addresses and URLs are taken, and which words of servers.
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>

#include <cstring>
#include <string>
#include <vector>

#include "modelstore/remote/allow_list.h"
#include "modelstore/remote/answer_head.h"
#include "modelstore/remote/remote_url.h"
#include "modelstore/remote/server_text.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

namespace {

bool allows(const AllowList& list, const char* address) {
  sockaddr_storage storage{};
  auto* in = reinterpret_cast<sockaddr_in*>(&storage);
  auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, address, &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
  } else {
    cr_assert_eq(inet_pton(AF_INET6, address, &in6->sin6_addr), 1, "%s", address);
    in6->sin6_family = AF_INET6;
  }
  return list.allows_address(*reinterpret_cast<sockaddr*>(&storage));
}

AllowList addresses(const std::vector<std::string>& ranges) {
  const auto list = AllowList::make({}, ranges);
  cr_assert(list.ok(), "%s", list.error().text.c_str());
  return *list;
}

AllowList hosts(const std::vector<std::string>& names) { return *AllowList::make(names, {}); }

}  // namespace

Test(allow_list, public_addresses_are_nobodys_own, .timeout = 10) {
  const AllowList list = addresses({"public"});
  for (const char* address :
       {"1.1.1.1", "11.0.0.0", "9.255.255.255", "100.63.255.255", "100.128.0.0", "172.15.255.255",
        "172.32.0.0", "192.167.255.255", "192.169.0.0", "169.253.255.255", "223.255.255.255",
        "2600::1", "2a00:1450::1", "2001:4860::1", "::ffff:1.1.1.1"})
    cr_expect(allows(list, address), "%s", address);
  for (const char* address : {"0.0.0.0",
                              "10.0.0.1",
                              "10.255.255.255",
                              "100.64.0.1",
                              "127.0.0.1",
                              "127.255.0.1",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "192.0.2.1",
                              "198.18.0.1",
                              "198.19.255.255",
                              "224.0.0.1",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "fe80::1",
                              "fd00::1",
                              "fc00::1",
                              "ff02::1",
                              "2001:db8::1",
                              "2002:7f00:1::1",
                              "2001:0::1",
                              "64:ff9b::7f00:1",
                              "::ffff:127.0.0.1",
                              "::ffff:10.0.0.1",
                              "::ffff:169.254.169.254",
                              "::127.0.0.1"})
    cr_expect(!allows(list, address), "%s", address);
}

Test(allow_list, ranges_end_where_they_say, .timeout = 10) {
  const AllowList list = addresses({"10.1.0.0/17", "192.168.7.9", "fd12::/15", "127.0.0.1/32"});
  for (const char* address :
       {"10.1.0.0", "10.1.127.255", "192.168.7.9", "fd13:ffff::1", "127.0.0.1", "::ffff:10.1.2.3"})
    cr_expect(allows(list, address), "%s", address);
  for (const char* address : {"10.1.128.0", "10.0.255.255", "192.168.7.8", "fd14::1", "127.0.0.2",
                              "1.1.1.1", "::10.1.2.3"})
    cr_expect(!allows(list, address), "%s", address);
  cr_expect(!allows(addresses({}), "1.1.1.1"), "nothing is allowed where nothing is named");
  cr_expect(allows(addresses({"0.0.0.0/0"}), "127.0.0.1") &&
            !allows(addresses({"0.0.0.0/0"}), "::1"));
  cr_expect(allows(addresses({"::/0"}), "::1") && allows(addresses({"::/0"}), "10.0.0.1"));
  sockaddr local{};
  local.sa_family = AF_UNIX;
  cr_expect(!addresses({"::/0"}).allows_address(local));
}

Test(allow_list, what_is_no_range_is_refused, .timeout = 10) {
  for (const char* text : {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8",
                           "::/129", "host", "10.0.0.0/8 ", "10.0.0.0/8/8", "Public"}) {
    const auto list = AllowList::make({}, {text});
    cr_expect(!list.ok() && has(list.error().text, "is no range of addresses"), "\"%s\"", text);
  }
  const auto inside = AllowList::make({}, {"10.1.2.3/8"});
  cr_expect(!inside.ok() && has(inside.error().text, "the range's first address"));
}

Test(allow_list, hosts_are_names_and_what_lies_below_them, .timeout = 10) {
  const AllowList list = hosts({"Models.Example.org", "*.internal"});
  for (const char* host :
       {"models.example.org", "MODELS.example.ORG.", "a.internal", "a.b.internal"})
    cr_expect(list.allows_host(host), "%s", host);
  for (const char* host : {"example.org", "a.models.example.org", "internal", ".internal.evil",
                           "xinternal", "models.example.org.evil", "127.0.0.1", ""})
    cr_expect(!list.allows_host(host), "%s", host);
  cr_expect(hosts({}).allows_host("anything"));
  for (const char* host : {"", "*.", "*", "a.*", "http://a", "a b"})
    cr_expect(!AllowList::make({host}, {}).ok(), "%s", host);
}

namespace {

std::string refusal(std::string_view url, const S3Account& account = {}) {
  const auto parsed = RemoteUrl::parse(url, account);
  cr_assert(!parsed.ok(), "%s", std::string(url).c_str());
  cr_expect(parsed.error().kind == ErrorKind::invalid);
  return parsed.error().text;
}

}  // namespace

Test(remote_url, takes_http_and_https, .timeout = 10) {
  const auto url =
      RemoteUrl::parse("HTTPS://Models.Example.org/a/../b%20c?X-Amz-Signature=1#part", {});
  cr_assert(url.ok(), "%s", url.error().text.c_str());
  cr_expect_str_eq(url->host.c_str(), "models.example.org");
  cr_expect_str_eq(url->origin.c_str(), "https://models.example.org:443");
  cr_expect_str_eq(url->shown.c_str(), "https://Models.Example.org/b%20c?...");
  cr_expect(has(url->url, "/b%20c?X-Amz-Signature=1") && !has(url->url, "#"));
  cr_expect(url->is_encrypted && !url->is_s3);
  const auto other = RemoteUrl::parse("http://[::1]:8080", {});
  cr_assert(other.ok());
  cr_expect_str_eq(other->origin.c_str(), "http://[::1]:8080");
  cr_expect(!other->is_encrypted);
}

Test(remote_url, refuses_the_rest_without_telling_secrets, .timeout = 10) {
  for (const char* url : {"file:///etc/passwd", "ftp://host/x", "gopher://host/", "dict://host/x"})
    cr_expect(has(refusal(url), "only http, https and s3"), "%s", url);
  for (const char* url :
       {"https://user:hidden@host/x", "https://hidden@host/x", "https://host/x y?hidden",
        "https://host/x\n?hidden=1", "https:///user:hidden@host/x", "http:/user:hidden@host",
        "ftp://user:hidden@host/x?hidden", "https://host:99999/?hidden"})
    cr_expect(!has(refusal(url), "hidden"), "%s", refusal(url).c_str());
  cr_expect(has(refusal("https://user:hidden@host/x"), "a user or a password"));
  for (const char* url : {"", "/path", "host/path?", "https://", "http://h\xc3\xb6st/"})
    refusal(url);
  refusal("https://host/" + std::string(9000, 'x'));
}

Test(remote_url, makes_paths_of_buckets_and_keys, .timeout = 10) {
  S3Account account;
  account.endpoint = "http://127.0.0.1:9000/";
  const auto url = RemoteUrl::parse("s3://models/a b/\xc3\xa9+?#%41~._-/x", account);
  cr_assert(url.ok(), "%s", url.error().text.c_str());
  cr_expect_str_eq(url->url.c_str(),
                   "http://127.0.0.1:9000/models/a%20b/%C3%A9%2B%3F%23%2541~._-/x");
  cr_expect(url->is_s3 && !url->is_encrypted);
  cr_expect(has(url->shown, "s3://models/a b/") && has(url->shown, "at http://127.0.0.1:9000"));
  const auto amazon = RemoteUrl::parse("S3://models/x", {});
  cr_assert(amazon.ok());
  cr_expect_str_eq(amazon->url.c_str(), "https://s3.us-east-1.amazonaws.com/models/x");
}

Test(remote_url, refuses_keys_that_could_lead_elsewhere, .timeout = 10) {
  for (const char* url : {"s3://models", "s3://models/", "s3:///x", "s3://ab/x", "s3://a/b/c",
                          "s3://models/../other/x", "s3://models/a/..", "s3://models/./x",
                          "s3://a..b/x", "s3://mod els/x", "s3://mod@els/x", "s3://mod%65ls/x"})
    cr_expect(has(refusal(url), "this is not s3://BUCKET/KEY"), "%s", url);
  refusal(std::string_view("s3://models/a\0b", 15));
  refusal("s3://models/" + std::string(1025, 'x'));
  S3Account account;
  for (const char* endpoint :
       {"ftp://host", "host:9000", "https://key:secret@host", "https://host/?x"}) {
    account.endpoint = endpoint;
    cr_expect(!has(refusal("s3://models/x", account), "secret"));
  }
}

Test(remote_url, is_redirected_to_what_is_as_safe, .timeout = 10) {
  const auto http = RemoteUrl::parse("http://a/b/c", {}),
             https = RemoteUrl::parse("https://a/b/c", {});
  cr_expect(http->redirected("../d?e")->url == "http://a/d?e");
  cr_expect(http->redirected("//other:81/x")->origin == "http://other:81");
  cr_expect(http->redirected("https://b/")->origin == "https://b:443");
  cr_expect(https->redirected("/x")->url == "https://a/x");
  const auto down = https->redirected("http://a/b/c?hidden");
  cr_expect(!down.ok() && down.error().kind == ErrorKind::denied &&
            has(down.error().text, "not encrypted"));
  cr_expect(!has(down.error().text, "hidden"));
  for (const char* to : {"file:///etc/passwd", "ftp://a/", "http://u:hidden@a/", "http://a/\x1b[2J",
                         "s3://models/x", "javascript:1"}) {
    const auto target = http->redirected(to);
    cr_expect(!target.ok() && target.error().kind == ErrorKind::denied, "%s", to);
    cr_expect(!has(target.error().text, "hidden") && !has(target.error().text, "\x1b"));
  }
}

Test(content_range, is_taken_in_one_form_only, .timeout = 10) {
  const auto range = ContentRange::parse("bytes 5-9/20");
  cr_assert(range.has_value());
  cr_expect(range->begin == 5 && range->end == 10 && range->size == 20);
  const auto none = ContentRange::parse("Bytes */20");
  cr_expect(none && none->end == 0 && none->size == 20);
  for (const char* text :
       {"", "bytes", "bytes 5-9", "bytes 5-9/*", "bytes 9-5/20", "bytes 5-20/20", "bytes -9/20",
        "bytes 5-/20", "bytes 5-9/20 ", "bytes  5-9/20", "5-9/20", "bytes +5-9/20", "bytes 5-9/-1",
        "bytes 0-18446744073709551615/18446744073709551616", "bytes */9999999999999999999"})
    cr_expect(!ContentRange::parse(text), "%s", text);
}

Test(server_text, is_one_line_without_secrets, .timeout = 10) {
  const std::vector<std::string> secrets = {"topsecret", "", "abc"};
  cr_expect(server_text("", secrets) == "");
  cr_expect(server_text(" \r\n\t ", secrets) == "");
  cr_expect(server_text("a\r\n  b\x1b[1m topsecret/topsecret abc", secrets) ==
            " (a b?[1m ***/*** abc)");
  cr_expect(server_text("<?xml?><Error><Code>NoSuchKey</Code><Message>It is gone.</Message>"
                        "<AWSAccessKeyId>x</AWSAccessKeyId></Error>",
                        secrets) == " (NoSuchKey: It is gone.)");
  cr_expect(server_text("<html><head><title>404 Not Found</title></head>...", secrets) ==
            " (404 Not Found)");
  cr_expect(server_text("<Code>Only</Code>", secrets) == " (Only)");
  cr_expect(server_text("<Code>Open", secrets) == " (<Code>Open)");
  cr_expect(server_text(std::string(5000, 'x'), secrets).size() <= 210);
}
