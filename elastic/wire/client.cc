// SPDX-License-Identifier: Apache-2.0
#include "elastic/wire/client.h"

#include <fmt/core.h>
#include <httplib.h>

#include "common/text.h"

namespace bellows {
namespace {

// httplib wants an IPv6 address bare.
std::string bare(const std::string& host) {
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

Result<std::string> ask_one(const HostPort& host, uid_t writer, const Munge& munge, Call call,
                            std::string_view body, std::chrono::seconds limit) {
  auto question = seal_question(munge, call, body, writer);
  if (!question) return question.error();
  httplib::Client client(bare(host.host), host.port);
  client.set_connection_timeout(limit.count());
  client.set_read_timeout(limit.count());
  client.set_write_timeout(limit.count());
  const std::string where = fmt::format("bellowsd at {}:{}", host.host, host.port);
  const auto response = client.Post(path_of(call), question->sealed, "text/plain");
  if (!response)
    return Error{ErrorKind::unavailable,
                 fmt::format("{} does not answer: {}", where, to_string(response.error()))};
  if (response->status == 503)
    return Error{ErrorKind::unavailable, where + " stands by or has too much to do"};
  if (response->body.size() > kMostAnswer)
    return Error{ErrorKind::denied, where + " gave an answer that is too long"};
  if (response->status != 200)
    return Error{ErrorKind::denied,
                 fmt::format("{} refused: {}", where, one_line(response->body, 500))};
  return open_answer(munge, *question, response->body, writer);
}

}  // namespace

Result<ControllerAnswer> ask_controller(const ControllerAddress& address, uid_t slurm_user,
                                        const Munge& munge, Call call, std::string_view body,
                                        std::chrono::seconds limit) {
  Error trouble{ErrorKind::unavailable, "bellowsd has no address"};
  for (std::size_t h = 0; h < address.hosts.size(); ++h) {
    auto answer =
        ask_one(address.hosts[h], address.uid.value_or(slurm_user), munge, call, body, limit);
    if (answer) return ControllerAnswer{*std::move(answer), h};
    trouble = answer.error();
  }
  return trouble;
}

}  // namespace bellows
