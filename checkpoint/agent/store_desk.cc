// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/store_desk.h"

#include <new>
#include <optional>
#include <utility>

namespace bellows {

void StoreDesk::begin(std::shared_ptr<StoreWriter> writer) {
  writer_ = std::move(writer);
  not_owned_ = false;
  tidying_ = 0;
}

void StoreDesk::own(std::function<void(const Status&)> then) {
  jobs_.post(
      thread_, [writer = writer_] { return writer->take_ownership(); },
      [this, then = std::move(then)](const Status& owned) {
        not_owned_ = !owned;
        then(owned);
      });
}

void StoreDesk::find(Search search) {
  jobs_.post(
      thread_,
      [this, writer = writer_, search = std::move(search)]() mutable {
        // Whoever asks may not have heard that a step it knows as bad was saved again.
        std::erase_if(search.bad, [this](const SkippedStep& s) { return fresh_.contains(s.step); });
        fresh_.clear();
        return writer->find(search);
      },
      [this](const Result<NewestStep>& newest) {
        if (!newest) return voice_.say_error("find", {}, newest.error());
        voice_.say(event::Found{newest->step, newest->skipped});
      });
}

void StoreDesk::commit(std::uint64_t step, std::vector<ShardFile> shards) {
  auto committed = std::make_shared<std::optional<StoreWriter::Committed>>();
  jobs_.post(
      thread_,
      [this, writer = writer_, step, committed, shards = std::move(shards)]() -> Status {
        const bool added = fresh_.insert(step).second;
        auto done = writer->commit_step(step, shards);
        if (!done && added) fresh_.erase(step);
        if (!done) return done.error();
        *committed = std::move(*done);
        return {};
      },
      [this, step](const Status& done) {
        if (!done) return voice_.say_error("commit", step, done.error());
        voice_.say(event::Committed{step});
      });
  // Before the next commit, but the ranks need not wait for it.
  try {
    jobs_.post(
        thread_,
        [writer = writer_, committed]() -> Status {
          if (*committed) writer->tidy(&**committed);
          return {};
        },
        [this, step, committed](const Status&) {
          --tidying_;
          if (!*committed) return;
          for (const std::string& warning : (*committed)->warnings) {
            voice_.say_error("retention", step, Error{ErrorKind::io, warning});
          }
        });
    ++tidying_;
  } catch (const std::bad_alloc&) {
    // The step is being committed in any case, and the next commit cleans up.
  }
}

void StoreDesk::after_all(std::function<void()> then) {
  jobs_.post(
      thread_, [] { return Status(); }, [then = std::move(then)](const Status&) { then(); });
}

}  // namespace bellows
