// SPDX-License-Identifier: Apache-2.0
// Where keys and tokens go, and where readers may be sent.
#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/text.h"
#include "tests/unit/modelstore/remote_support.h"
#include "tests/unit/modelstore/tls_identity.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr const char* kToken = "token-that-nobody-sees";
constexpr const char* kSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

void redirect(HttpPeer& peer, const std::string& location,
              const std::string& status = "302 Found") {
  peer.send("HTTP/1.1 " + status + "\r\nContent-Length: 5\r\nLocation: " + location +
            "\r\n\r\nthere");
}

std::string bytes_of(std::string_view text) { return std::string(text); }

std::string hmac(const std::string& key, const std::string& text) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), out, &length);
  return std::string(reinterpret_cast<char*>(out), length);
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    text += two;
  }
  return text;
}

std::string sha256(const std::string& text) {
  unsigned char out[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out);
  return std::string(reinterpret_cast<char*>(out), sizeof out);
}

/// The value of NAME in "..., NAME=VALUE, ...".
std::string value_in(const std::string& text, const std::string& name) {
  const auto at = text.find(name + "=");
  if (at == std::string::npos) return "";
  const auto from = at + name.size() + 1;
  return text.substr(from, text.find(',', from) - from);
}

/// Whether a request is signed as S3 demands, by the rules of "AWS Signature Version 4".
bool is_signed_by(const HttpRequest& request, const std::string& secret) {
  const std::string authorization = request.field("authorization");
  const std::string scope = value_in(authorization, "Credential");
  const std::string names = value_in(authorization, "SignedHeaders");
  const auto parts = split(scope, '/');
  if (parts.size() != 5 || parts[4] != "aws4_request") return false;
  std::string canonical = request.method + "\n" + request.path + "\n\n";
  for (const std::string_view name : split(names, ';')) {
    // What is not sent cannot be checked.
    if (request.fields.count(bytes_of(name)) == 0) return false;
    canonical += bytes_of(name) + ":" + request.field(bytes_of(name)) + "\n";
  }
  canonical += "\n" + names + "\n" + request.field("x-amz-content-sha256");
  const std::string below = scope.substr(scope.find('/') + 1);
  const std::string text = "AWS4-HMAC-SHA256\n" + request.field("x-amz-date") + "\n" + below +
                           "\n" + hex(sha256(canonical));
  std::string key = "AWS4" + secret;
  for (std::size_t i = 1; i < parts.size(); ++i) key = hmac(key, bytes_of(parts[i]));
  return hex(hmac(key, text)) == value_in(authorization, "Signature");
}

RemoteCredentials s3_keys(const std::string& endpoint) {
  RemoteCredentials credentials;
  credentials.s3.endpoint = endpoint;
  credentials.s3.region = "eu-north-7";
  credentials.s3.access_key = "AKIAEXAMPLE";
  credentials.s3.secret_key = kSecret;
  return credentials;
}

RemoteCredentials token() {
  RemoteCredentials credentials;
  credentials.bearer = kToken;
  return credentials;
}

/// A server with TLS and what is needed to trust it.
struct Trusted {
  Trusted() { identity.write_certificate(path); }
  RemoteLimits limits() const {
    RemoteLimits limits = quick_limits();
    limits.ca_file = path;
    return limits;
  }

  const ScratchDir scratch;
  const std::string path = scratch.path() + "/ca.pem";
  const TlsIdentity identity;
};

}  // namespace

Test(remote_secrets, s3_requests_are_signed, .timeout = 60) {
  std::string token_seen;
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    cr_expect(is_signed_by(request, kSecret), "%s", request.field("authorization").c_str());
    cr_expect(!is_signed_by(request, "another"));
    cr_expect(has(request.field("authorization"), "/eu-north-7/s3/aws4_request"));
    cr_expect(request.path == "/models/a%20b/%C3%A9%2B.bin");
    token_seen = request.field("x-amz-security-token");
    answer(request, peer, "0123456789");
  });
  RemoteCredentials credentials = s3_keys(server.url(""));
  const std::string url = "s3://models/a b/\xc3\xa9+.bin";
  cr_expect(read_part(open_file_at(url, quick_limits(), credentials), 3, 4) == "3456");
  cr_expect(token_seen.empty());
  credentials.s3.session_token = "for+a/while==";
  cr_expect(read_part(open_file_at(url, quick_limits(), credentials), 3, 4) == "3456");
  cr_expect(token_seen == "for+a/while==");
}

Test(remote_secrets, public_buckets_need_no_keys, .timeout = 60) {
  HostileServer server([](const HttpRequest& request, HttpPeer& peer) {
    cr_expect(request.field("authorization").empty());
    answer(request, peer, "0123456789");
  });
  RemoteCredentials credentials;
  credentials.s3.endpoint = server.url("");
  cr_expect(read_part(open_file_at("s3://models/x", quick_limits(), credentials), 0, 2) == "01");
}

Test(remote_secrets, s3_is_not_redirected, .timeout = 60) {
  HostileServer server([&](const HttpRequest&, HttpPeer& peer) { redirect(peer, "/elsewhere"); });
  expect_error(opening_error("s3://models/x", quick_limits(), s3_keys(server.url(""))),
               ErrorKind::unavailable, "check the region and the endpoint");
  cr_expect_eq(server.requests(), 1);
}

Test(remote_secrets, what_a_server_repeats_is_hidden, .timeout = 60) {
  Trusted trusted;
  const auto repeat = [](const HttpRequest& request, HttpPeer& peer) {
    std::string text = "you sent";
    for (const auto& [name, value] : request.fields) text += " " + name + ": " + value;
    text += bytes_of(" ") + kSecret;
    peer.send("HTTP/1.1 403 No\r\nContent-Length: " + std::to_string(text.size()) + "\r\n\r\n" +
              text);
  };
  HostileServer s3(repeat), https(repeat, trusted.identity.context());
  const Error by_s3 = opening_error("s3://models/x", quick_limits(), s3_keys(s3.url("")));
  expect_error(by_s3, ErrorKind::denied, "you sent");
  cr_expect(!has(by_s3.text, kSecret) && !has(by_s3.text, "AKIAEXAMPLE"), "%s", by_s3.text.c_str());
  const Error by_https = opening_error(https.url(), trusted.limits(), token());
  expect_error(by_https, ErrorKind::denied, "Bearer ***");
  cr_expect(!has(by_https.text, kToken));
}

Test(remote_secrets, a_token_stays_with_its_host, .timeout = 60) {
  Trusted trusted;
  std::atomic<bool> was_leaked{false}, was_sent{false};
  HostileServer other(
      [&](const HttpRequest& request, HttpPeer& peer) {
        if (!request.field("authorization").empty()) was_leaked = true;
        answer(request, peer, "0123456789");
      },
      trusted.identity.context());
  HostileServer server(
      [&](const HttpRequest& request, HttpPeer& peer) {
        was_sent = request.field("authorization") == bytes_of("Bearer ") + kToken;
        redirect(peer, other.url("/there"));
      },
      trusted.identity.context());
  const RemoteFile file = open_file_at(server.url(), trusted.limits(), token());
  cr_expect(read_part(file, 2, 3) == "234");
  cr_expect(was_sent && !was_leaked);
  expect_error(opening_error("http://127.0.0.1:1/", quick_limits(), token()), ErrorKind::invalid,
               "a token is sent over https only");
}

Test(remote_secrets, no_credential_brings_headers_of_its_own, .timeout = 60) {
  const auto refuse = [](auto change) {
    RemoteCredentials credentials = s3_keys("http://127.0.0.1:1");
    change(credentials);
    const Error error = opening_error("s3://models/x", quick_limits(), credentials);
    cr_expect(error.kind == ErrorKind::invalid && !has(error.text, "hidden"), "%s",
              error.text.c_str());
  };
  refuse([](RemoteCredentials& c) { c.bearer = "hidden\r\nX: y"; });
  refuse([](RemoteCredentials& c) { c.s3.access_key = "hidden\n"; });
  refuse([](RemoteCredentials& c) { c.s3.secret_key = "hidden key"; });
  refuse([](RemoteCredentials& c) { c.s3.session_token = "hidden\n"; });
  refuse([](RemoteCredentials& c) { c.s3.secret_key.clear(); });
  refuse([](RemoteCredentials& c) { c.s3.region = "eu:other"; });
  refuse([](RemoteCredentials& c) { c.s3.region = ""; });
}

Test(remote_secrets, a_server_must_be_who_it_says, .timeout = 60) {
  Trusted trusted;
  HostileServer server(
      [](const HttpRequest& request, HttpPeer& peer) { answer(request, peer, "x"); },
      trusted.identity.context());
  cr_expect_eq(open_file_at(server.url(), trusted.limits()).size(), 1);
  const unsigned requests = server.requests();
  expect_error(opening_error(server.url()), ErrorKind::denied, "certificate is not good");
  RemoteLimits limits = trusted.limits();
  limits.addresses = {"127.0.0.1", "::1"};
  const std::string by_name = "https://localhost:" + std::to_string(server.port()) + "/m";
  expect_error(opening_error(by_name, limits), ErrorKind::denied, "certificate is not good");
  cr_expect_eq(server.requests(), requests, "nothing was asked");
}

Test(remote_redirects, lead_on_and_are_remembered, .timeout = 60) {
  std::atomic<unsigned> redirected{0};
  std::atomic<bool> has_expired{false};
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    if (request.path == "/m") {
      ++redirected;
      return redirect(peer, has_expired ? "/new?signature=2" : "/old?signature=1");
    }
    if (has_expired && request.path != "/new?signature=2")
      return static_cast<void>(peer.send("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"));
    answer(request, peer, "0123456789");
  });
  const RemoteFile file = open_file_at(server.url());
  cr_expect(read_part(file, 0, 3) == "012" && read_part(file, 3, 3) == "345");
  cr_expect_eq(redirected, 1);
  has_expired = true;
  cr_expect(read_part(file, 6, 3) == "678" && read_part(file, 0, 10) == "0123456789");
  cr_expect_eq(redirected, 2);
}

Test(remote_redirects, have_an_end, .timeout = 60) {
  HostileServer server([](const HttpRequest& request, HttpPeer& peer) {
    redirect(peer, "/" + std::to_string(request.number));
  });
  expect_error(opening_error(server.url()), ErrorKind::unavailable, "more than 5 times");
  cr_expect_eq(server.requests(), 6);
}

Test(remote_redirects, do_not_get_around_the_rules, .timeout = 60) {
  Trusted trusted;
  HostileServer forbidden(
      [](const HttpRequest& request, HttpPeer& peer) { answer(request, peer, "x"); });
  std::string target;
  HostileServer server([&](const HttpRequest&, HttpPeer& peer) { redirect(peer, target); },
                       trusted.identity.context());
  const std::string port = ":" + std::to_string(forbidden.port()) + "/";
  const auto error = [&](const std::string& to, const RemoteLimits& limits) {
    target = to;
    return opening_error(server.url(), limits);
  };
  expect_error(error(forbidden.url(), trusted.limits()), ErrorKind::denied, "not encrypted");
  expect_error(error("file:///etc/passwd", trusted.limits()), ErrorKind::denied, "not taken");
  expect_error(error("https://127.0.0.2" + port, trusted.limits()), ErrorKind::denied,
               "address 127.0.0.2 is none that this site lets be asked");
  RemoteLimits limits = trusted.limits();
  limits.hosts = {"127.0.0.1"};
  expect_error(error("https://localhost" + port, limits), ErrorKind::denied,
               "host localhost is none");
  cr_expect_eq(forbidden.connections(), 0);
}

Test(remote_rules, forbidden_places_are_not_connected_to, .timeout = 60) {
  HostileServer server(
      [](const HttpRequest& request, HttpPeer& peer) { answer(request, peer, "x"); });
  RemoteLimits limits = quick_limits();
  limits.addresses = {"public"};
  const std::string port = ":" + std::to_string(server.port()) + "/";
  for (const char* host : {"127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]"})
    expect_error(opening_error("http://" + bytes_of(host) + port, limits), ErrorKind::denied,
                 "is none that this site lets be asked");
  expect_error(opening_error("http://169.254.169.254/latest/meta-data", limits), ErrorKind::denied,
               "169.254.169.254");
  limits = quick_limits();
  limits.hosts = {"models.example.org"};
  expect_error(opening_error(server.url(), limits), ErrorKind::denied,
               "the host 127.0.0.1 is none");
  cr_expect_eq(server.connections(), 0);
}

Test(remote_rules, the_environment_has_no_say, .timeout = 60) {
  HostileServer proxy(
      [](const HttpRequest& request, HttpPeer& peer) { answer(request, peer, "proxy"); });
  HostileServer server(
      [](const HttpRequest& request, HttpPeer& peer) { answer(request, peer, "right"); });
  for (const char* name : {"http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"})
    setenv(name, proxy.url("").c_str(), 1);
  cr_expect(read_part(open_file_at(server.url()), 0, 5) == "right");
  cr_expect_eq(proxy.connections(), 0);
}
