// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store/store_writer.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <nlohmann/json.hpp>
#include <ratio>
#include <utility>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/virtual_view.h"
#include "checkpoint/read/step_reader.h"
#include "checkpoint/store/store.h"
#include "checkpoint/system/file_read.h"
#include "common/text.h"

namespace bellows {
namespace {

/// How tmp_path begins for a step that is about to be replaced, where names can't be exchanged.
constexpr std::string_view kSpare = ".tmp-spare-";

// In whole quarters, which have one decimal text: of other numbers not all libraries find the
// shortest, and a manifest's digest is of the text.
double seconds_since_1970() {
  using namespace std::chrono;
  using Quarters = duration<std::int64_t, std::ratio<1, 4>>;
  return static_cast<double>(floor<Quarters>(system_clock::now().time_since_epoch()).count()) / 4;
}

}  // namespace

Result<std::string> read_owner(const std::string& dir) {
  auto text = read_file(dir + "/owner.json", 65536);
  if (!text && text.error().kind == ErrorKind::not_found) return std::string();
  return text;
}

std::optional<StoreOwner> parse_owner(const std::string& text) {
  const auto owner = nlohmann::json::parse(text, nullptr, false);
  if (!owner.is_object() || !owner.contains("attempt") || !owner["attempt"].is_string()) return {};
  const auto time = owner.value("time", nlohmann::json());
  return StoreOwner{owner["attempt"], time.is_number() ? time.get<double>() : 0};
}

Status remove_names(FileOps& ops, const std::string& dir,
                    const std::function<bool(const std::string&)>& chosen) {
  auto names = list_names(dir);
  if (!names) return names.error();
  Status first;
  for (const std::string& name : *names) {
    if (!chosen(name)) continue;
    auto status = ops.remove_tree(dir + "/" + name);
    if (first.ok() && !status) first = status;
  }
  return first;
}

StoreWriter::StoreWriter(FileOps& ops, StorePlace place, std::string attempt, Retention retention)
    : ops_(ops),
      place_(std::move(place)),
      dir_(place_.dir),
      attempt_(std::move(attempt)),
      retention_(retention) {}

std::string StoreWriter::tmp_path(const std::string& what) const {
  return fmt::format("{}/.tmp-{}-{}", dir_, what, attempt_);
}

// A name of its own each time: what can't be removed of one must not be in the next one's way.
std::string StoreWriter::gone_path(std::uint64_t step) {
  return tmp_path(fmt::format("gone-{}-{}", step, ++gone_));
}

void StoreWriter::note_owner() {
  const auto text = read_owner(dir_);
  const auto owner = text ? parse_owner(*text) : std::nullopt;
  replaces_ = owner ? owner->attempt : std::string();
}

// A newer attempt may have come since whoever chose to begin here looked, and must not be fenced
// off.
Status StoreWriter::check_replaced_owner() const {
  const auto text = read_owner(dir_);
  if (!text) return text.error();
  const auto owner = parse_owner(*text);
  return !owner || owner->attempt == replaces_ ? Status() : check_owner();
}

Status StoreWriter::write_owner() {
  const nlohmann::json owner = {{"attempt", attempt_}, {"time", seconds_since_1970()}};
  // A name that the next start removes, should this one end here.
  const std::string path = tmp_path("owner");
  auto status = write_text(path, owner.dump() + "\n");
  if (status) status = ops_.rename(path, dir_ + "/owner.json");
  return status ? ops_.sync_directory(dir_) : status;
}

Status StoreWriter::take_ownership() {
  const bool known = replaces_.has_value();
  if (!known) note_owner();
  failed_to_own_ = true;
  if (auto status = make_place(ops_, place_); !status) return status;
  // Until the end: files of a later attempt that begin with .tmp- must not be considered left over.
  auto held = lock_store(dir_);
  if (!held) return held.error();
  if (!known) {
    note_owner();
  } else if (auto status = check_replaced_owner(); !status) {
    return status;
  }
  if (auto status = write_owner(); !status) return status;
  failed_to_own_ = false;
  in_use_ = share_store(dir_);
  // Not this attempt's: a rank may be saving already. What can't go, as while an attempt on a node
  // that was cut off still writes, costs room only; the next attempt tries again.
  (void)collect_leftovers().ok();
  return {};
}

Status StoreWriter::check_owner() const {
  const std::string path = dir_ + "/owner.json";
  auto text = read_file(path, 65536);
  if (!text) return text.error();
  const auto owner = parse_owner(*text);
  if (!owner) return Error{ErrorKind::corrupt, path + " does not say who owns the directory"};
  if (owner->attempt == attempt_) return {};
  return Error{ErrorKind::busy, fmt::format("{}: attempt {} owns the directory now, and this is {}",
                                            path, owner->attempt, attempt_)};
}

// A step that was moved out of the way for a newer one of its number, which then did not come: it
// was acknowledged, so it must not go. True also when it can't be moved now.
bool StoreWriter::brings_back(const std::string& name) const {
  if (!name.starts_with(kSpare)) return false;
  const auto number = std::string_view(name).substr(kSpare.size());
  const auto step = parse_uint(number.substr(0, number.find('-')));
  struct stat s;
  if (!step || lstat(step_path(dir_, *step).c_str(), &s) == 0 || errno != ENOENT) return false;
  (void)ops_.rename(dir_ + "/" + name, step_path(dir_, *step));
  return true;
}

Status StoreWriter::collect_leftovers() const {
  return remove_names(ops_, dir_, [&](const std::string& name) {
    return name.starts_with(".tmp-") && !name.ends_with("-" + attempt_) && !brings_back(name);
  });
}

// Steps that are not older than the commit before this one may still be written, or again.
Status StoreWriter::collect_own_leftovers(std::uint64_t committed) {
  const auto oldest_in_flight = last_committed_ ? std::min(*last_committed_, committed) : 0;
  last_committed_ = committed;
  return remove_names(ops_, dir_, [&](const std::string& name) {
    if (!name.starts_with(".tmp-") || !name.ends_with("-" + attempt_)) return false;
    const auto what = std::string_view(name).substr(5, name.size() - attempt_.size() - 6);
    const auto step = parse_uint(what);
    return (!step || *step < oldest_in_flight) && !brings_back(name);
  });
}

Result<NewestStep> StoreWriter::find(const Search& search) {
  if (auto status = check_place(place_); !status) return status.error();
  auto newest = newest_step(dir_, search);
  if (!newest) return newest;
  bad_.clear();
  for (const SkippedStep& skipped : newest->skipped) bad_.insert(skipped.step);
  return newest;
}

std::string StoreWriter::shard_path(std::uint64_t step, std::uint32_t rank,
                                    std::uint32_t world) const {
  return fmt::format("{}/{}", tmp_path(std::to_string(step)), shard_name(rank, world));
}

Status StoreWriter::begin_step(std::uint64_t step) {
  if (auto status = check_place(place_); !status) return status;
  return ops_.make_directory(tmp_path(std::to_string(step)));
}

Result<std::shared_ptr<const StepReader>> StoreWriter::check_shards(
    const std::string& from, const Manifest& manifest) const {
  for (const ShardFile& shard : manifest.shards) {
    auto fd = open_shard(fmt::format("{}/{}", from, shard.file), shard.size);
    if (!fd) return fd.error();
  }
  auto reader = StepReader::open(from, manifest);
  if (!reader) return reader;
  if (auto status = (*reader)->check_whole(); !status) return status.error();
  return reader;
}

Status StoreWriter::write_text(const std::string& path, const std::string& text) {
  auto fd = ops_.create(path);
  if (!fd) return fd.error();
  auto status = ops_.write_at(fd->get(), text.data(), text.size(), 0, path);
  if (status) status = ops_.sync(fd->get(), path);
  return status;
}

Status StoreWriter::write_manifest(const std::string& from, const Manifest& manifest) {
  auto status = write_text(from + "/manifest.json", manifest.to_string());
  return status ? ops_.sync_directory(from) : status;
}

Status StoreWriter::publish(const std::string& from, std::uint64_t step) {
  // From the check of the owner to the rename: an attempt fenced off in between can't commit.
  auto held = lock_store(dir_);
  if (!held) return held.error();
  no_locks_ = held->none;
  if (auto status = check_owner(); !status) return status;
  const std::string to = step_path(dir_, step);
  struct stat s;
  Status status;
  if (lstat(to.c_str(), &s) == 0) {
    // The step was saved before: by this timeline, or by one that was left for an older step.
    status = ops_.exchange(from, to, tmp_path(fmt::format("spare-{}", step)));
  } else {
    status = ops_.rename(from, to);
  }
  return status ? ops_.sync_directory(dir_) : status;
}

// What the step was before is removed later, while it may be saved once more.
void StoreWriter::move_aside(const std::string& from, std::uint64_t step) {
  struct stat s;
  if (lstat(from.c_str(), &s) == 0) (void)ops_.rename(from, gone_path(step));
}

Status StoreWriter::move_latest(std::uint64_t step) {
  const std::string link = tmp_path("latest");
  auto status = ops_.remove_file(link);
  if (status) status = ops_.make_symlink(fmt::format("step-{:020}", step), link);
  if (status) status = ops_.rename(link, dir_ + "/latest");
  if (status) status = ops_.sync_directory(dir_);
  return status;
}

// Their files go with the other leftovers.
Status StoreWriter::remove_old(std::uint64_t committed) {
  // A step that is given a name meanwhile must not go.
  auto held = lock_store(dir_);
  if (!held) return held.error();
  if (auto status = check_owner(); !status) return status;
  auto steps = list_steps(dir_);
  if (!steps) return steps.error();
  auto kept = named_steps(dir_);
  if (!kept) return kept.error();
  kept->insert(committed);
  const auto old = steps_to_remove(*steps, bad_, *kept, retention_);
  for (std::uint64_t step : old) {
    // Renamed first: half a step under a good name would be reported as damaged at the next start.
    auto status = ops_.rename(step_path(dir_, step), gone_path(step));
    if (!status) return status;
    bad_.erase(step);
  }
  // Else a power loss may undo the renaming and keep what was removed.
  return old.empty() ? Status() : ops_.sync_directory(dir_);
}

namespace {

template <typename Work>
void note(std::vector<std::string>* warnings, const Work& work) {
  try {
    if (auto status = work(); !status) warnings->push_back(status.error().text);
  } catch (const std::bad_alloc&) {
    warnings->emplace_back("there was not enough memory to tidy up");
  }
}

}  // namespace

Result<StoreWriter::Committed> StoreWriter::commit_step(std::uint64_t step,
                                                        std::vector<ShardFile> shards) {
  if (failed_to_own_) {
    if (auto status = take_ownership(); !status) return status.error();
  }
  // Somebody may have held it for a moment, as bellows ckpt prune does.
  if (auto status = check_place(place_); !status) return status.error();
  if (!in_use_) in_use_ = share_store(dir_);
  const std::string from = tmp_path(std::to_string(step));
  std::sort(shards.begin(), shards.end(),
            [](const ShardFile& a, const ShardFile& b) { return a.rank < b.rank; });
  Manifest manifest{step, static_cast<std::uint32_t>(shards.size()), attempt_, seconds_since_1970(),
                    std::move(shards)};
  // What can't be read back must not be committed: the names and digests come from other nodes.
  auto sane = Manifest::parse(manifest.to_string());
  if (!sane) return Error{ErrorKind::invalid, "cannot commit: " + sane.error().text};
  auto reader = check_shards(from, manifest);
  if (!reader) return reader.error();
  auto status = write_manifest(from, manifest);
  if (status) status = publish(from, step);
  if (!status) return status.error();
  bad_.erase(step);
  Committed out{std::move(*reader), {}};
  if (!no_locks_.empty() && !std::exchange(said_no_locks_, true)) out.warnings.push_back(no_locks_);
  // The step is committed: nothing that goes wrong from here on may say otherwise.
  note(&out.warnings, [&] {
    move_aside(from, step);
    return move_latest(step);
  });
  return out;
}

void StoreWriter::tidy(Committed* committed) {
  const std::uint64_t step = committed->step->manifest().step;
  note(&committed->warnings, [&] {
    return write_virtual_view(ops_, step_path(dir_, step), tmp_path("whole"),
                              committed->step->shards());
  });
  note(&committed->warnings, [&] {
    auto removed = remove_old(step);
    return removed ? collect_own_leftovers(step) : removed;
  });
}

Result<std::vector<std::string>> StoreWriter::commit(std::uint64_t step,
                                                     std::vector<ShardFile> shards) {
  auto committed = commit_step(step, std::move(shards));
  if (!committed) return committed.error();
  tidy(&*committed);
  return std::move(committed->warnings);
}

}  // namespace bellows
