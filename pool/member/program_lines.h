// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "common/event_loop.h"
#include "common/fd.h"
#include "common/result.h"
#include "pool/member/member_notes.h"

namespace bellows::pool {

/// The socket by which a member's program speaks to its agent. Takes what it says into the notes.
class ProgramLines {
 public:
  /// Listens at `path`.
  static Result<std::unique_ptr<ProgramLines>> open(EventLoop& loop, MemberNotes& notes,
                                                    const std::string& path);
  ProgramLines(const ProgramLines&) = delete;
  ProgramLines& operator=(const ProgramLines&) = delete;

  /// To all that watch; also to those that come later.
  void tell_drain(std::uint32_t seconds);
  void tell_size(std::uint32_t members);
  bool watched() const;

 private:
  struct Speaker {
    Fd socket;
    EventLoop::Watch watch;
    bool watches = false;
  };

  ProgramLines(EventLoop& loop, MemberNotes& notes, Fd listener);
  void accept_all();
  void read_from(std::list<Speaker>::iterator speaker);
  void tell(std::string_view line);

  EventLoop& loop_;
  MemberNotes& notes_;
  Fd listener_;
  EventLoop::Watch listening_;
  std::list<Speaker> speakers_;
  std::string drain_;  ///< the line; empty: not told
  std::string size_;
};

}  // namespace bellows::pool
