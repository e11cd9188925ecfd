// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/farewell.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "checkpoint/include/bellows.h"

namespace bellows {
namespace {

using State = event::Rank::State;

}  // namespace

void Farewell::take_bye(RankLink& link, bool finished) {
  if (!link.saves.empty()) {
    return turn_out(link, Error{ErrorKind::invalid, "a rank left in the middle of a save"});
  }
  if (!parts_.store.tidies()) return say_goodbye(link, finished);
  // Once the program has ended, the directory should contain everything that it is meant to
  // contain.
  parts_.store.after_all([this, id = link.id] {
    RankLink* leaving = parts_.links.find(id);
    if (leaving && leaving->leaving) say_goodbye(*leaving, *leaving->leaving);
  });
  link.leaving = finished;
}

void Farewell::say_goodbye(RankLink& link, bool finished) {
  link.leaving.reset();
  link.said_bye = true;
  ++(finished ? parts_.session->finished : parts_.session->stopped);
  link.answer(wire::Op::goodbye);
  parts_.voice.say(event::Rank{link.number(), finished ? State::finished : State::stopped});
  hang_up(link);
}

void Farewell::turn_out(RankLink& link, const Error& error) {
  link.fail(BELLOWS_ERR_INVALID, error.text);
  hang_up(link);
}

void Farewell::hang_up(RankLink& link) {
  if (link.leaving) return say_goodbye(link, *link.leaving);
  link.gone = true;
  if (link.page) any_left_ = true;
}

void Farewell::forget_departed() {
  for (int fd : parts_.links.dead()) {
    const std::unique_ptr<RankLink> link = parts_.links.remove(fd);
    if (!link->said_bye) parts_.keep_copies(*link);
    if (!link->page) continue;
    if (Session* session = parts_.session.get(); session && link->page->step() != wire::kNoStep) {
      session->newest = std::max(session->newest.value_or(0), link->page->step());
    }
    if (link->said_bye) continue;
    parts_.voice.say(event::Rank{link->number(), link->exits ? State::exited : State::lost});
  }
}

}  // namespace bellows
