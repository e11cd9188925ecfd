// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/munge/munge.h"
#include "elastic/wire/message.h"

namespace bellows {

/// A call to bellowsd as it crosses the network: sealed with its path and a number of its own, so
/// that nobody can forge it, read it, send it elsewhere or send it again. The answer is sealed for
/// the caller with the same number, so that no other answer passes for it.
struct Question {
  std::string sealed;  ///< the body to send
  std::string number;
};

/// What bellowsd gets. A value.
struct Asked {
  std::string body;  ///< JSON
  std::string number;
  uid_t uid = 0;  ///< whose process asks
};

/// `reader`: the user that bellowsd runs as. Errors as those of Munge.
Result<Question> seal_question(const Munge& munge, Call call, std::string_view body, uid_t reader);
/// denied: it is not a sealed call of this kind.
Result<Asked> open_question(const Munge& munge, Call call, const std::string& sealed);

Result<std::string> seal_answer(const Munge& munge, const Asked& asked, std::string_view body);
/// denied: it is not `writer`'s answer to this question.
Result<std::string> open_answer(const Munge& munge, const Question& question,
                                const std::string& sealed, uid_t writer);

}  // namespace bellows
