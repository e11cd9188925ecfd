// SPDX-License-Identifier: Apache-2.0
#include "modelstore/disktier/disk_desk.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "common/directory.h"

namespace bellows {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMostRecords = 64 << 20;
constexpr seconds kWritePause{1};
constexpr milliseconds kTellPause{100};
constexpr std::int64_t kMostAge = 1'000'000'000'000;

std::int64_t today_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// A model's sealed memory, while it is written down.
class MappedMemory {
 public:
  static Result<MappedMemory> map(int fd, std::uint64_t bytes) {
    struct stat s;
    if (fstat(fd, &s) < 0) return errno_error("look at", "the model's memory");
    if (static_cast<std::uint64_t>(s.st_size) < bytes)
      return Error{ErrorKind::invalid, "the model's memory is smaller than the model"};
    MappedMemory memory;
    // All of it: huge pages can't be mapped in part.
    memory.bytes_ = static_cast<std::size_t>(s.st_size);
    void* data = mmap(nullptr, memory.bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return errno_error("map", "the model's memory");
    memory.data_ = static_cast<unsigned char*>(data);
    return memory;
  }
  MappedMemory(MappedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  MappedMemory& operator=(MappedMemory&&) = delete;
  ~MappedMemory() {
    if (data_) munmap(data_, bytes_);
  }
  const unsigned char* data() const { return data_; }

 private:
  MappedMemory() = default;
  unsigned char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace

DiskDesk::DiskDesk(const DiskOptions& options, DiskTier tier, Send send)
    : tier_(std::move(tier)),
      records_path_(options.directory + "/records"),
      send_(std::move(send)),
      book_(options.limits),
      wrote_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
  for (const auto& [name, budget] : options.tenants) book_.add_tenant(tenant(name), budget);
}

Result<std::unique_ptr<DiskDesk>> DiskDesk::open(const DiskOptions& options, Send send) {
  auto tier = DiskTier::open(options.directory, options.limits.bytes);
  if (!tier) return tier.error();
  std::unique_ptr<DiskDesk> desk(new DiskDesk(options, std::move(*tier), std::move(send)));
  if (auto read = desk->read_records(); !read) return read.error();
  auto worker = DiskWorker::make();
  if (!worker) return worker.error();
  desk->worker_ = std::move(*worker);
  desk->adopt_all();
  return desk;
}

void DiskDesk::remove_unfinished_records() const {
  const std::string begin = records_path_.substr(records_path_.rfind('/') + 1) + ".tmp.";
  const std::string folder = records_path_.substr(0, records_path_.rfind('/') + 1);
  const Directory listing = read_directory(Fd(::open(folder.c_str(), O_RDONLY | O_CLOEXEC)));
  while (const dirent* entry = listing ? readdir(listing.get()) : nullptr)
    if (std::string_view(entry->d_name).starts_with(begin))
      (void)unlinkat(dirfd(listing.get()), entry->d_name, 0);
}

Status DiskDesk::read_records() {
  // What replace_file leaves when it is killed.
  remove_unfinished_records();
  const auto text = read_file(records_path_, kMostRecords);
  if (!text) return text.error().kind == ErrorKind::not_found ? Status() : Status(text.error());
  auto records = parse_records(*text);
  if (records) {
    records_ = std::move(*records);
  } else {
    say(fmt::format("{}: {}: all images are removed, since nobody knows whose they are",
                    records_path_, records.error().text));
  }
  return {};
}

void DiskDesk::adopt_all() {
  const std::vector<DiskImage> images = tier_.images();
  DiskRecords known;
  known.swap(records_);
  std::vector<std::pair<ImageOf, std::uint64_t>> owned;  // and bytes
  for (const DiskImage& image : images) {
    auto of = known.lower_bound({image.digest, ""});
    if (of == known.end() || of->first.digest != image.digest) remove_file(image.digest);
    for (; of != known.end() && of->first.digest == image.digest; ++of) {
      owned.emplace_back(of->first, image.file_bytes());
      // All at first: the file stays when one of its tenants loses it.
      records_.insert(*of);
    }
  }
  // What does not fit any more is what was used longest ago.
  std::stable_sort(owned.begin(), owned.end(), [&](const auto& a, const auto& b) {
    return known.at(a.first).last_used_ms > known.at(b.first).last_used_ms;
  });
  const std::int64_t today = today_ms();
  for (const auto& [image, bytes] : owned) {
    const DiskRecord& record = known.at(image);
    const ModelId model = model_of(image);
    book_.add_model(model, tenant(image.tenant));
    auto decisions = book_.adopt(model, bytes, now());
    // A clock may be set back.
    const milliseconds age(std::clamp<std::int64_t>(today - record.last_used_ms, 0, kMostAge));
    book_.remember(model, {now() - age, record.uses, milliseconds(record.load_ms)});
    perform(std::move(decisions));
  }
  changed_ = true;
}

TenantId DiskDesk::tenant(const std::string& name) {
  return tenants_.emplace(name, static_cast<TenantId>(tenants_.size() + 1)).first->second;
}

ModelId DiskDesk::model_of(const ImageOf& image) {
  const auto [place, is_new] = models_.emplace(image, next_model_);
  if (is_new) images_[next_model_++] = image;
  return place->second;
}

std::optional<ModelDigest> DiskDesk::find_source(const ModelDigest& source,
                                                 const std::string& tenant) const {
  for (const auto& [image, record] : records_)
    if (image.tenant == tenant &&
        std::find(record.sources.begin(), record.sources.end(), source) != record.sources.end())
      return image.digest;
  return std::nullopt;
}

bool DiskDesk::is_anyones(const ModelDigest& digest) const {
  const auto first = records_.lower_bound({digest, ""});
  return first != records_.end() && first->first.digest == digest;
}

void DiskDesk::reply(DiskWord word, std::uint64_t number, const std::string& text) {
  DiskMessage message;
  message.word = word;
  message.number = number;
  message.set_text(text);
  send_(message, -1);
}

void DiskDesk::take(const DiskMessage& message, Fd passed) {
  switch (message.word) {
    case DiskWord::find:
      return find(message);
    case DiskWord::release:
      return perform(book_.close(message.number, now()));
    case DiskWord::store:
      return store(message, std::move(passed));
    case DiskWord::damaged:
      return drop_damaged(message.digest);
    default:
      return say("bellows-modeld said what makes no sense to bellows-model-disk");
  }
}

void DiskDesk::find(const DiskMessage& message) {
  // Another tenant's image would tell, by its speed, that the other has these bytes.
  const std::string tenant(message.text_view());
  const auto digest = message.of_source ? find_source(message.digest, tenant) : message.digest;
  const auto model = digest ? models_.find({*digest, tenant}) : models_.end();
  if (model == models_.end() || book_.state(model->second) != ModelBook::State::resident)
    return reply(DiskWord::none, message.number);
  auto image = tier_.open_image(*digest);
  if (!image) {
    say(image.error().text);
    const ErrorKind kind = image.error().kind;
    if (kind == ErrorKind::corrupt || kind == ErrorKind::not_found) drop_damaged(*digest);
    return reply(DiskWord::none, message.number);
  }
  // From here on it stays, until it is released.
  perform(book_.open(message.number, model->second, now()));
  note_use({*digest, tenant});
  DiskMessage found;
  found.word = DiskWord::found;
  found.number = message.number;
  found.digest = *digest;
  const Fd file = std::move(*image).take_file();
  send_(found, file.get());
}

void DiskDesk::note_use(const ImageOf& image) {
  DiskRecord& record = records_[image];
  record.last_used_ms = today_ms();
  const ModelUse use = book_.use(models_.at(image));
  record.uses = use.uses;
  changed_ = true;
}

void DiskDesk::store(const DiskMessage& message, Fd memory) {
  const DiskImage image = message.image();
  if (store_ || !memory || !image.trailer())
    return reply(DiskWord::failed, message.number, "one image is stored at a time");
  const ImageOf owned{image.digest, std::string(message.text_view())};
  const ModelId model = model_of(owned);
  if (book_.state(model) == ModelBook::State::absent) {
    book_.add_model(model, tenant(owned.tenant));
    records_[owned] = {today_ms(), 0, message.load_ms, {}};
  }
  if (message.of_source) records_[owned].add_source(message.source);
  changed_ = true;
  store_ = Store{message.number, model,           owned.tenant,
                 image,          message.load_ms, std::make_shared<Fd>(std::move(memory))};
  // Whoever stores it waits for it as if to read it: so it is known what became of it.
  perform(book_.open(message.number, model, now()));
  perform(book_.sized(model, image.file_bytes(), now()));
}

void DiskDesk::perform(BookDecisions decisions) {
  for (const BookDecision& decision : decisions) perform_one(decision);
}

void DiskDesk::perform_one(const BookDecision& decision) {
  if (std::holds_alternative<decide::Fill>(decision)) return write_image();
  if (const auto* evict = std::get_if<decide::Evict>(&decision))
    return remove(evict->model, evict->eviction);
  const bool of_store = store_ && ((std::holds_alternative<decide::Grant>(decision) &&
                                    std::get<decide::Grant>(decision).ticket == store_->number) ||
                                   (std::holds_alternative<decide::Refuse>(decision) &&
                                    std::get<decide::Refuse>(decision).ticket == store_->number));
  if (!of_store) return;
  const Store ended = std::move(*store_);
  store_.reset();
  if (const auto* refused = std::get_if<decide::Refuse>(&decision)) {
    records_.erase({ended.image.digest, ended.tenant});
    // The tenant that had it may have lost it meanwhile.
    if (!is_anyones(ended.image.digest)) remove_file(ended.image.digest);
    return reply(DiskWord::failed, ended.number, refused->error.text);
  }
  reply(DiskWord::stored, ended.number, ended.image.digest.to_string());
  perform(book_.close(ended.number, now()));
}

void DiskDesk::write_image() {
  if (!store_) return;
  // First whose it is: an image of which that is not known goes after a crash.
  *wrote_ = told_ = 0;
  worker_->add(
      [this, write_records = records_writer(), image = store_->image, memory = store_->memory,
       wrote = wrote_]() -> Status {
        if (auto written = write_records(); !written) return written;
        const auto mapped = MappedMemory::map(memory->get(), image.bytes);
        if (!mapped) return mapped.error();
        return tier_.store(image, mapped->data(), [&](std::uint64_t bytes) { *wrote = bytes; });
      },
      [this](const Status& written) { image_written(written); });
}

void DiskDesk::image_written(const Status& written) {
  if (!store_) return;
  const ModelId model = store_->model;
  const std::uint64_t load_ms = store_->load_ms;
  if (!written) return perform(book_.failed(model, written.error(), now()));
  perform(book_.loaded(model, now()));
  ModelUse use = book_.use(model);
  use.load_time = milliseconds(load_ms);
  book_.remember(model, use);
}

void DiskDesk::remove(ModelId model, EvictionId eviction) {
  const auto image = images_.find(model);
  if (image != images_.end()) {
    records_.erase(image->second);
    changed_ = true;
  }
  // One that was damaged went before, and one that is another tenant's too stays for that.
  if (image == images_.end() || is_anyones(image->second.digest))
    return worker_->add([] { return Status(); },
                        [this, eviction](const Status&) { perform(book_.freed(eviction, now())); });
  worker_->add(
      [this, gone = image->second.digest]() -> Status {
        auto removed = tier_.remove(gone);
        return !removed && removed.error().kind == ErrorKind::not_found ? Status() : removed;
      },
      [this, eviction](const Status& removed) {
        // Its room is not free then.
        if (!removed) return say(removed.error().text);
        perform(book_.freed(eviction, now()));
      });
}

void DiskDesk::drop_damaged(const ModelDigest& digest) {
  std::vector<ModelId> gone;
  for (auto found = models_.lower_bound({digest, ""});
       found != models_.end() && found->first.digest == digest;) {
    if (book_.state(found->second) != ModelBook::State::resident) {
      ++found;
      continue;
    }
    gone.push_back(found->second);
    images_.erase(found->second);
    records_.erase(found->first);
    found = models_.erase(found);
  }
  if (gone.empty()) return;
  changed_ = true;
  remove_file(digest);
  for (const ModelId model : gone) perform(book_.retire(model, now()));
}

void DiskDesk::remove_file(const ModelDigest& digest) {
  worker_->add([this, digest] { return tier_.remove(digest); },
               [this](const Status& removed) {
                 const bool is_gone = removed || removed.error().kind == ErrorKind::not_found;
                 if (!is_gone) say(removed.error().text);
               });
}

DiskWorker::Work DiskDesk::records_writer() {
  changed_ = false;
  auto text = text_of(records_);
  return [text = std::move(text), path = records_path_]() -> Status {
    return text ? replace_file(path, *text, 0600) : Status(text.error());
  };
}

void DiskDesk::tell_held() {
  const std::uint64_t images = records_.size(), bytes = book_.room().used;
  if (images == told_images_ && bytes == told_bytes_) return;
  DiskMessage message;
  message.word = DiskWord::held;
  message.number = told_images_ = images;
  message.bytes = told_bytes_ = bytes;
  send_(message, -1);
}

DiskDesk::Time DiskDesk::tick(Time at) {
  perform(book_.expire(at));
  tell_held();
  if (changed_ && !writing_ && !store_ && at >= write_at_) {
    writing_ = true;
    worker_->add(records_writer(), [this](const Status& written) {
      writing_ = false;
      write_at_ = now() + kWritePause;
      if (!written) say(written.error().text);
    });
  }
  Time next = changed_ && !writing_ ? std::max(write_at_, at + kTellPause) : Time::max();
  if (store_) {
    next = at + kTellPause;
    if (const std::uint64_t bytes = *wrote_; bytes != told_) {
      DiskMessage message;
      message.word = DiskWord::progress;
      message.number = store_->number;
      message.bytes = told_ = bytes;
      send_(message, -1);
    }
  }
  const auto expiry = book_.next_expiry();
  return expiry ? std::min(next, *expiry) : next;
}

void DiskDesk::end() {
  if (changed_ && worker_->is_idle()) (void)records_writer()();
}

}  // namespace bellows
