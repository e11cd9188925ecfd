// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/restore_desk.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "checkpoint/include/bellows.h"

namespace bellows {
namespace {

/// Descriptors on their way to all ranks together: a user's are limited.
constexpr std::size_t kSourcesAtOnce = 256;

}  // namespace

void RestoreDesk::offer(const command::Restore& restore) {
  Session& session = *parts_.session;
  session.offer.set(restore.step, restore.error);
  if (restore.step)
    parts_.kept.keep_only(*restore.step);
  else
    parts_.kept.clear();
  event::Ready ready;
  if (restore.rendezvous && session.leader) {
    auto port = ReservedPort::take();
    if (!port) return parts_.voice.say_error("restore", restore.step, port.error());
    ready.rendezvous = {own_address(session.node), port->port()};
    session.port.emplace(std::move(*port));
  }
  parts_.voice.say(std::move(ready));
  parts_.links.each([this](RankLink& link) {
    if (link.restoring) begin(link);
  });
  session.offer.forgive();
}

void RestoreDesk::ask(RankLink& link, bool whole) {
  ++link.restores;
  link.restoring = true;
  link.wants_whole = whole;
  if (parts_.session->offer.known() || parts_.store.not_owned()) begin(link);
}

void RestoreDesk::begin(RankLink& link) try {
  link.restoring = false;
  // The cause may have gone away.
  if (parts_.store.not_owned()) return own_directory(link.id);
  const RestoreOffer& offer = parts_.session->offer;
  if (offer.none()) {
    link.fail(code_of(offer.none()->kind), offer.none()->text);
  } else if (offer.step()) {
    read(link, *offer.step());
  } else {
    link.answer(wire::Op::restored, 0, 0);
  }
} catch (const std::bad_alloc&) {
  link.fail(BELLOWS_ERR_MEMORY, no_memory().text);
}

void RestoreDesk::own_directory(std::uint64_t link_id) {
  parts_.store.own([this, link_id](const Status& owned) {
    RankLink* link = parts_.links.find(link_id);
    if (!link) return;
    if (!owned) return (void)link->fail(code_of(owned.error().kind), owned.error().text);
    link->restoring = true;
    begin_if_known(*link);
  });
}

void RestoreDesk::begin_if_known(RankLink& link) {
  if (parts_.session->offer.known()) begin(link);
}

void RestoreDesk::read(RankLink& link, std::uint64_t step) {
  Placed placed;
  if (!link.arrays.complete() || !place_parts(link.arrays.parts, &placed)) {
    return farewell_.turn_out(link,
                              Error{ErrorKind::invalid, "a rank asked for arrays it did not name"});
  }
  Session& session = *parts_.session;
  auto restore = session.offer.share(link.restores, step, [&] {
    return std::make_shared<NodeRestore>(session.hello.place(), step, session.ranks_here(),
                                         parts_.copies_of(step), parts_.bin);
  });
  parts_.jobs.post(
      parts_.shards,
      [restore = std::move(restore), rank = link.number(), whole = link.wants_whole,
       ranks = session.ranks_here(), in_job = link.belongs[0] != '/',
       placed = std::move(placed)]() -> Result<RestoredArrays> {
        ReadCount count;
        BlockOffers offers;
        offers.per_rank = in_job;
        offers.most_sources =
            std::clamp(kSourcesAtOnce / ranks, std::size_t{1}, offers.most_sources);
        auto memory = restore->read(rank, placed, &count, whole ? nullptr : &offers);
        if (!memory) return memory.error();
        return RestoredArrays{*memory, std::move(offers), count.memory, count.store};
      },
      [this, id = link.id, step](const Result<RestoredArrays>& arrays) { take(id, step, arrays); });
}

void RestoreDesk::take(std::uint64_t link_id, std::uint64_t step,
                       const Result<RestoredArrays>& arrays) {
  RankLink* link = parts_.links.find(link_id);
  if (!link) return;
  if (arrays) return take_arrays(*link, step, *arrays);
  const Error& error = arrays.error();
  if (error.kind == ErrorKind::invalid || error.kind == ErrorKind::unavailable) {
    const bool mismatch = error.kind == ErrorKind::invalid;
    link->fail(mismatch ? BELLOWS_ERR_MISMATCH : code_of(error.kind), error.text);
    return;
  }
  // The step is bad, or can't be read. A rank that was told this might start from scratch, so it
  // has to wait.
  link->restoring = true;
  parts_.session->offer.retract();
  parts_.voice.say(event::RestoreError{link->number(), step, error});
}

void RestoreDesk::take_arrays(RankLink& link, std::uint64_t step, const RestoredArrays& arrays) {
  const bool all_there = arrays.offers.blocks.empty();
  link.taking = {step, arrays.from_memory, arrays.from_store};
  if (link.answer_restored(step, *arrays.memory, arrays.offers)) {
    if (all_there) say_restored(link);
    return;
  }
  // A kernel that holds too many descriptors on their way refuses more.
  all_there ? give_up(link) : take_taken(link, false);
}

// Without an answer it would wait forever.
void RestoreDesk::give_up(RankLink& link) {
  link.fail(BELLOWS_ERR_AGENT,
            "the kernel does not pass on the restored arrays: too many open files are on their way "
            "to this node's ranks; raise the limit on open files (ulimit -n)");
  farewell_.hang_up(link);
}

void RestoreDesk::take_taken(RankLink& link, bool all) {
  if (!link.taking) {
    return farewell_.turn_out(link, Error{ErrorKind::invalid, "a rank took what it was not given"});
  }
  if (all) return say_restored(link);
  link.taking.reset();
  link.wants_whole = link.restoring = true;
  begin_if_known(link);
}

void RestoreDesk::say_restored(RankLink& link) {
  const RankLink::Taking taken = *std::exchange(link.taking, std::nullopt);
  parts_.voice.say(event::Restored{link.number(), taken.step, taken.from_memory, taken.from_store});
}

}  // namespace bellows
