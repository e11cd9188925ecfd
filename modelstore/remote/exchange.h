// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "modelstore/remote/answer_head.h"
#include "modelstore/remote/remote_connection.h"

namespace bellows {

/// One question and its answer, as curl's callbacks see them: takes nothing but what was asked for,
/// and says what is wrong with anything else.
class Exchange {
 public:
  Exchange(const RangeQuestion& question, const RemoteContext& context);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Curl's callbacks, and where it writes its error.
  void attach(CURL* curl);
  /// What came of it. `code`: as curl_easy_perform gave it.
  RangeAnswer finish(CURL* curl, CURLcode code);

 private:
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
  static curl_socket_t on_socket(void* self, curlsocktype purpose, curl_sockaddr* address);

  /// False: nothing more is wanted of this answer.
  bool take_header(std::string_view line);
  bool take_body(std::string_view bytes);
  bool judge_head();
  bool judge_part();
  bool judge_version(const FileVersion& version);
  bool judge_whole();
  /// Notes what is wrong with the answer. Returns false.
  bool lie(std::string_view what,
           std::string_view advice = "tell who runs it, or put the file elsewhere");
  bool changed();

  RangeAnswer failure(ErrorKind kind, std::string_view what, bool may_pass = false) const;
  std::vector<std::string> secrets() const;
  RangeAnswer empty() const;
  RangeAnswer judge(CURLcode code) const;
  RangeAnswer refused_by_server() const;
  RangeAnswer failed(CURLcode code) const;

  const RangeQuestion& question_;
  const RemoteContext& context_;
  AnswerReader reader_;
  FileVersion version_;
  bool is_part_ = false;  ///< the bytes are those that were asked for
  std::uint64_t got_ = 0;
  std::uint64_t ignored_ = 0;
  std::string text_;  ///< what the server says instead of bytes
  std::optional<RangeAnswer> verdict_;
  std::string forbidden_;  ///< an address that may not be asked
  bool tried_address_ = false;
  char curl_error_[CURL_ERROR_SIZE] = {};
};

}  // namespace bellows
