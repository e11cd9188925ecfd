// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/kept_state.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "common/listen_at.h"

namespace bellows {
namespace {

/// Keys below are those of models.
constexpr std::uint64_t kFirstCopyKey = std::uint64_t{1} << 62;
constexpr std::uint64_t kFirstJobKey = std::uint64_t{1} << 63;

}  // namespace

Status KeptState::restore() {
  next_job_key_ = kFirstJobKey;
  auto items = link_.start([this] { put_all(); });
  if (!items) return items.error();
  // Before the models: what no longer fits is evicted at once, and the keeper has to let go of it.
  tier_.set_watcher(this);
  // The latest first: of two versions of one name it is the one that counts.
  std::sort(items->begin(), items->end(),
            [](const KeptItem& a, const KeptItem& b) { return a.key > b.key; });
  for (KeptItem& item : *items)
    if (auto* model = std::get_if<KeptModel>(&item.record))
      restore_model(item.key, *model, std::move(item.fd));
  registry_.set_watcher(this);
  for (KeptItem& item : *items)
    if (auto* job = std::get_if<KeptJob>(&item.record))
      restore_job(item.key, *job, std::move(item.fd));
  clients_.set_watcher(this);
  next_copy_key_ = kFirstCopyKey;
  // As for the models.
  if (gpus_) gpus_->set_watcher(this);
  restore_copies(*items);
  return {};
}

void KeptState::restore_copies(std::vector<KeptItem>& items) {
  std::map<std::uint64_t, Fd> catalogues;
  // By falling keys: a copy's catalogue comes before it.
  for (KeptItem& item : items) {
    const auto* kept = std::get_if<KeptCopy>(&item.record);
    if (!kept) continue;
    next_copy_key_ = std::max(next_copy_key_, (item.key | 1) + 1);
    if (kept->is_catalogue) {
      catalogues[item.key] = std::move(item.fd);
    } else if (restore_copy(item.key, *kept, item.fd, std::move(catalogues[item.key + 1]))) {
      catalogues.erase(item.key + 1);
    } else {
      link_.drop(item.key);
      if (gpus_) gpus_->discard(kept->place, std::move(item.fd), kept->bytes);
    }
  }
  for (const auto& [key, fd] : catalogues) link_.drop(key);
}

bool KeptState::restore_copy(std::uint64_t key, const KeptCopy& kept, Fd& memory, Fd catalogue) {
  const ServedJob* job = clients_.find_job(kept.place.job);
  const auto* model = registry_.get(kept.model);
  if (!gpus_ || !job || job->gpus.count(kept.place.gpu) == 0 || !model || !memory || !catalogue ||
      model->digest != kept.digest)
    return false;
  GpuCopy copy;
  copy.bytes = kept.bytes;
  copy.catalogue_at = kept.catalogue_at;
  copy.digest = kept.digest;
  struct stat s {};
  if (fstat(catalogue.get(), &s) != 0) return false;
  copy.catalogue.reader = std::move(catalogue);
  copy.catalogue.bytes = copy.catalogue.catalogue_bytes = static_cast<std::uint64_t>(s.st_size);
  if (!copy.catalogue.check_sealed()) return false;
  copy.memory = std::move(memory);
  copy_keys_[{kept.place, kept.model}] = key;
  gpus_->adopt(kept.place, kept.model, std::move(copy));
  return true;
}

void KeptState::copy_changed(const GpuPlace& place, ModelId model, const GpuCopy* copy) {
  const auto found = copy_keys_.try_emplace({place, model}, next_copy_key_).first;
  const std::uint64_t key = found->second;
  if (!copy) {
    copy_keys_.erase(found);
    link_.drop(key + 1);
    return link_.drop(key);
  }
  next_copy_key_ = std::max(next_copy_key_, key + 2);
  KeptCopy kept{place, model, false, copy->bytes, copy->catalogue_at, copy->digest};
  link_.put(key, kept, copy->memory.get());
  kept.is_catalogue = true;
  kept.bytes = copy->catalogue.bytes;
  link_.put(key + 1, kept, copy->catalogue.reader.get());
}

void KeptState::restore_model(std::uint64_t key, KeptModel& kept, Fd fd) {
  kept.model.tenant = registry_.tenant(kept.tenant);
  const auto digest = kept.model.digest;
  const bool pinned = kept.pinned;
  if (!registry_.restore(key, std::move(kept.model))) return link_.drop(key);
  tier_.add_model(key);
  if (!fd || !digest) return pinned ? tier_.pin(key, true) : void();
  ModelMemory memory;
  memory.reader = std::move(fd);
  memory.bytes = kept.bytes;
  memory.catalogue_at = kept.catalogue_at;
  memory.catalogue_bytes = kept.catalogue_bytes;
  memory.digest = *digest;
  tier_.adopt(key, std::move(memory));
  if (pinned) tier_.pin(key, true);
}

void KeptState::restore_job(std::uint64_t key, KeptJob& kept, Fd listener) {
  kept.job.tenant = registry_.tenant(kept.tenant);
  next_job_key_ = std::max(next_job_key_, key + 1);
  if (!listener || lost_its_name(listener.get()) || !clients_.serve(kept.job, std::move(listener)))
    return link_.drop(key);
  job_keys_[kept.job.name] = key;
}

void KeptState::model_changed(ModelId model) {
  const auto* registered = registry_.get(model);
  if (!registered) return link_.drop(model);
  KeptModel kept;
  kept.tenant = registry_.tenant_name(registered->tenant);
  kept.model = *registered;
  kept.pinned = tier_.book().entry(model).pinned;
  const ModelMemory* memory = tier_.memory(model);
  if (memory) {
    kept.bytes = memory->bytes;
    kept.catalogue_at = memory->catalogue_at;
    kept.catalogue_bytes = memory->catalogue_bytes;
  }
  link_.put(model, kept, memory ? memory->reader.get() : -1);
}

void KeptState::job_served(const ServedJob& job, int listener) {
  const auto key = job_keys_.emplace(job.name, next_job_key_);
  if (key.second) ++next_job_key_;
  link_.put(key.first->second, KeptJob{registry_.tenant_name(job.tenant), job}, listener);
}

void KeptState::job_ended(const std::string& job) {
  const auto found = job_keys_.find(job);
  if (found == job_keys_.end()) return;
  link_.drop(found->second);
  job_keys_.erase(found);
}

void KeptState::put_all() {
  for (const ModelId model : registry_.all()) model_changed(model);
  clients_.tell_of_jobs();
  if (gpus_) gpus_->tell_of_copies();
}

}  // namespace bellows
