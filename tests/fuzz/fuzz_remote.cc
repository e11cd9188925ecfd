// SPDX-License-Identifier: Apache-2.0
/// URLs, ranges of addresses, and what servers say: heads of answers and texts. What is taken is
/// what curl will ask for and nobody else's; what is refused is so with one line.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/text.h"
#include "modelstore/remote/allow_list.h"
#include "modelstore/remote/answer_head.h"
#include "modelstore/remote/remote_url.h"
#include "modelstore/remote/server_text.h"

namespace {

using namespace bellows;

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_line(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return is_control(c); });
}

void refused(const Error& error) {
  require(!error.text.empty() && error.text.size() < 1000 && is_line(error.text));
}

void check_taken(const RemoteUrl& url) {
  require(url.is_encrypted == (url.url.rfind("https://", 0) == 0));
  require(url.is_encrypted || url.url.rfind("http://", 0) == 0);
  require(is_line(url.url) && is_line(url.shown) && is_line(url.origin) && !url.host.empty());
  require(url.url.find('#') == std::string::npos);
  const auto again = RemoteUrl::parse(url.url, {});
  require(again.ok() && again->url == url.url && again->origin == url.origin);
}

void check_url(std::string_view text) {
  S3Account account;
  account.endpoint = "https://s3.test:9000/base";
  const auto url = RemoteUrl::parse(text, account);
  if (!url) {
    require(url.error().kind == ErrorKind::invalid);
    refused(url.error());
  } else {
    check_taken(*url);
    require(!url->is_s3 || url->url.rfind("https://s3.test:9000/base/", 0) == 0);
    require(!url->is_s3 || (url->url.find("/../") == std::string::npos &&
                            url->url.find("/./") == std::string::npos));
  }
  const auto from = RemoteUrl::parse("https://host/a/b", {});
  const auto to = from->redirected(std::string(text));
  if (!to) return refused(to.error());
  check_taken(*to);
  require(to->is_encrypted);
}

void check_head(std::string_view bytes) {
  AnswerReader reader;
  while (!bytes.empty()) {
    const auto end = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
    if (const char* wrong = reader.take(bytes.substr(0, end))) {
      require(*wrong != '\0');
      return;
    }
    bytes.remove_prefix(end);
  }
  if (!reader.is_complete()) return;
  const AnswerHead& head = reader.head();
  require(head.status >= 200 && head.status <= 999);
  require(!head.range || head.range->end == 0 ||
          (head.range->begin < head.range->end && head.range->end <= head.range->size));
  // Both go into later requests.
  require(is_line(head.etag) && is_line(head.last_modified));
  require(head.etag.empty() || (head.etag.front() == '"' && head.etag.back() == '"'));
}

void check_list(const std::string& text) {
  const auto list = AllowList::make({text}, {text});
  if (!list) return refused(list.error());
  require(!list->allows_host(""));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  check_url(bytes);
  check_head(bytes);
  check_list(bytes);
  const std::string said = server_text(bytes, {"secret", "hidden"});
  require(is_line(said) && said.size() < 210 && said.find("secret") == std::string::npos);
  return 0;
}
