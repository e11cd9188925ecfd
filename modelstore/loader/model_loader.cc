// SPDX-License-Identifier: Apache-2.0
// bellows-model-loader: reads one model for bellows-modeld, which starts it. README.md has what
// they say to each other, on this process's standard input.
//
// usage: bellows-model-loader [SETTINGS], the file of SiteSettings for models that lie elsewhere
#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "checkpoint/system/block_workers.h"
#include "common/text.h"
#include "modelstore/digest/tree_digest.h"
#include "modelstore/disk/image_file.h"
#include "modelstore/helper/helper_main.h"
#include "modelstore/loader/confine.h"
#include "modelstore/loader/daemon_line.h"
#include "modelstore/loader/loader_wire.h"
#include "modelstore/loader/loading.h"
#include "modelstore/loader/model_place.h"
#include "modelstore/loader/model_source.h"
#include "modelstore/loader/peer_connection.h"

namespace bellows {
namespace {

constexpr int kReportMs = 100;
/// Some wait for the disk while others hash.
constexpr unsigned kThreadsOfCore = 2;
constexpr unsigned kMostThreads = 16;
/// From far away, more of them wait, each for more.
constexpr unsigned kRemoteThreads = 8;
constexpr std::uint64_t kRemoteLeaves = 4;
/// Of a huge page, so that no two threads get the same one.
constexpr std::uint64_t kHugeLeaves = 2;

/// Memory that the daemon gave, while it is mapped.
class GivenMemory {
 public:
  GivenMemory() = default;
  GivenMemory(const GivenMemory&) = delete;
  GivenMemory& operator=(const GivenMemory&) = delete;
  ~GivenMemory() { leave(); }

  /// All of it, of which the model takes `bytes`: huge pages can't be unmapped in part.
  Status map(int fd, std::uint64_t bytes, int protection, bool huge = false) {
    struct stat s;
    if (fstat(fd, &s) < 0) return errno_error("look at", "the model's memory");
    if (static_cast<std::uint64_t>(s.st_size) < bytes)
      return Error{ErrorKind::internal, "bellows-modeld gave its loader too little memory"};
    bytes_ = static_cast<std::size_t>(s.st_size);
    void* data = mmap(nullptr, bytes_, protection, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return errno_error("map", "the model's memory");
    data_ = static_cast<unsigned char*>(data);
    // Where the kernel gives shared memory huge pages to those who ask.
    if (huge) (void)madvise(data_, bytes_, MADV_HUGEPAGE);
    return {};
  }
  unsigned char* data() const { return data_; }
  /// From here on it can be sealed.
  void leave() {
    if (data_) munmap(data_, bytes_);
    data_ = nullptr;
  }

 private:
  unsigned char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Tells the daemon how far it is until all is done: the last of so many passes, and `before` it.
/// unavailable: the daemon is gone.
Result<ModelDigest> run(Loading& loading, unsigned threads, std::uint64_t passes = 1,
                        std::uint64_t before = 0) {
  if (auto started = loading.start(threads); !started) return started.error();
  for (;;) {
    pollfd fds[] = {{loading.event(), POLLIN, 0}, {kDaemon, 0, 0}};
    (void)poll(fds, 2, kReportMs);
    if (fds[0].revents) return loading.finish();
    if (fds[1].revents) return Error{ErrorKind::unavailable, "bellows-modeld has gone"};
    say_progress(before + loading.bytes_done() / passes);
  }
}

unsigned threads_for_disk() {
  return std::min(kThreadsOfCore * std::thread::hardware_concurrency(), kMostThreads);
}

Status say_digest(LoaderWord word, const ModelDigest& digest) {
  LoaderMessage message;
  message.word = word;
  message.digest = digest;
  return tell(message);
}

/// So that the daemon finds the model by its files. One of very many is not found so.
Status say_files(const std::vector<plain::FileIdentity>& files) {
  constexpr std::size_t kOfMessage = LoaderMessage::kMostText / sizeof(plain::FileIdentity);
  constexpr std::size_t kMost = 1024;
  for (std::size_t at = 0; at < files.size() && files.size() <= kMost; at += kOfMessage) {
    const std::size_t count = std::min(kOfMessage, files.size() - at);
    LoaderMessage message;
    message.word = LoaderWord::files;
    message.set_bytes(
        {reinterpret_cast<const char*>(files[at].data()), count * sizeof(plain::FileIdentity)});
    if (auto sent = tell(message); !sent) return sent;
  }
  return {};
}

/// A model about to be read, and how.
struct Reading {
  std::uint64_t bytes = 0;
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
  ReadPiece read;
  unsigned threads = 1;
  std::uint64_t leaves = 1;
  /// All at once, where a piece of memory is not one of a file; instead of read.
  std::function<Status(unsigned char* memory, const Progress& progress)> read_all{};
  std::string peer{};  ///< the node that gives it
};

/// Of what is read at once: its pages, its bytes, and then its digest.
constexpr std::uint64_t kPasses = 3;

/// Says how far two of the passes are. Called by several threads.
class PassProgress {
 public:
  explicit PassProgress(std::uint64_t bytes) : most_(2 * bytes) {}
  /// What is read may be more than what is wanted of it.
  void add(std::uint64_t bytes) {
    constexpr std::uint64_t kSaid = 32 << 20;
    const std::uint64_t before = done_.fetch_add(bytes);
    if (before / kSaid == (before + bytes) / kSaid) return;
    say_progress(std::min(before + bytes, most_) / kPasses);
    pollfd daemon = {kDaemon, 0, 0};
    // Nobody wants the model any more, and nobody else stops the other threads.
    if (poll(&daemon, 1, 0) == 1) _exit(1);
  }

 private:
  const std::uint64_t most_;
  std::atomic<std::uint64_t> done_{0};
};

/// To memory that is hashed afterwards.
Status read_all(const Reading& reading, unsigned char* memory) {
  constexpr std::uint64_t kPiece = 4 << 20;
  PassProgress progress(reading.bytes);
  const auto pages = [&](std::uint64_t number, unsigned char*) {
    const std::uint64_t begin = number * kPiece;
    const std::uint64_t bytes = std::min(kPiece, reading.bytes - begin);
    progress.add(bytes);
    return get_pages(memory + begin, bytes, reading.bytes);
  };
  const std::uint64_t pieces = (reading.bytes + kPiece - 1) / kPiece;
  if (auto got = work_on_blocks(pieces, 1, "getting memory", pages); !got) return got;
  return reading.read_all(memory, [&](std::uint64_t bytes) { progress.add(bytes); });
}

/// Says how large it is, and fills the memory that the daemon then gives.
Result<ModelDigest> fill(const Reading& reading) {
  LoaderMessage message;
  message.word = LoaderWord::sized;
  message.bytes = reading.bytes;
  message.catalogue_at = reading.catalogue_at;
  message.catalogue_bytes = reading.catalogue_bytes;
  message.set_text(reading.peer);
  if (auto sent = tell(message); !sent) return sent.error();
  plain::Handle fd;
  if (auto received = await_message(&message, &fd); !received) return received.error();
  if (message.word != LoaderWord::fill || fd.get() < 0)
    return Error{ErrorKind::internal, "bellows-modeld gave its loader no memory"};
  const bool huge = message.asks != 0;
  // Only what is mapped gets huge pages.
  if (!reading.read_all && !huge) {
    Loading loading(fd.get(), reading.bytes, reading.read, reading.leaves);
    return run(loading, reading.threads);
  }
  GivenMemory memory;
  if (auto mapped = memory.map(fd.get(), reading.bytes, PROT_READ | PROT_WRITE, huge); !mapped)
    return mapped.error();
  if (reading.read_all)
    if (auto read = read_all(reading, memory.data()); !read) return read.error();
  const std::uint64_t leaves = huge ? std::max(reading.leaves, kHugeLeaves) : reading.leaves;
  Loading loading(memory.data(), reading.bytes, reading.read, leaves);
  if (!reading.read_all) return run(loading, reading.threads);
  return run(loading, reading.threads, kPasses, reading.bytes / kPasses * (kPasses - 1));
}

Status load_image(Fd file) {
  const auto image = ImageFile::open(std::move(file), "the model's image on the disk");
  if (!image) return image.error();
  if (auto given_up = give_up(GivenUp::files); !given_up) return given_up;
  const DiskImage& is = image->image();
  const auto digest = fill({is.bytes, is.catalogue_at, is.catalogue_bytes,
                            [&](std::uint64_t begin, unsigned char* to, std::uint64_t bytes) {
                              return image->read(begin, to, bytes);
                            },
                            threads_for_disk(), 1});
  return digest ? say_digest(LoaderWord::done, *digest) : Status(digest.error());
}

/// `why` corrupt or busy: it isn't asked for this model; else not for anything.
void say_lost(const std::string& node, const Error& why) {
  LoaderMessage message;
  message.word = LoaderWord::peer_lost;
  message.error = static_cast<std::uint32_t>(why.kind);
  message.set_bytes(node + "\n" + why.text);
  (void)tell(message);
}

/// As the daemon knows it. not_found: it is none of its nodes.
Result<PeerNode> node_called(const std::string& name) {
  LoaderMessage message;
  message.word = LoaderWord::peer_at;
  message.set_text(name);
  if (auto told = tell(message); !told) return told.error();
  plain::Handle fd;
  if (auto received = await_message(&message, &fd); !received) return received.error();
  const auto words = split(message.text_view(), ' ');
  const std::uint64_t port = words.size() == 2 ? parse_uint(words[1]).value_or(0) : 0;
  if (message.word != LoaderWord::peer_at || port == 0 || port > UINT16_MAX)
    return Error{ErrorKind::not_found, "another node names it, and --peers does not"};
  return PeerNode{name, std::string(words[0]), static_cast<std::uint16_t>(port)};
}

/// What one node, or one that it names, has to offer. Nothing: neither has the model.
std::optional<std::pair<std::string, PeerOffer>> offer_of(PeerNode node, PeerMode mode,
                                                          const PeerCall& call) {
  constexpr int kMostSteps = 8;
  for (int step = 0; step < kMostSteps; ++step) {
    auto offer = ask_peer(node, mode, call);
    if (!offer) {
      say_lost(node.name, offer.error());
      return std::nullopt;
    }
    const auto& wanted = call.question.digest;
    // Before room is made for it.
    if (offer->answer.word == PeerWord::have && wanted && offer->answer.digest != *wanted) {
      say_lost(node.name, {ErrorKind::corrupt, "it has another digest than was asked for"});
      return std::nullopt;
    }
    if (offer->answer.word == PeerWord::have) return std::pair(node.name, std::move(*offer));
    if (offer->answer.word == PeerWord::none) return std::nullopt;
    auto next = node_called(offer->answer.text);
    if (!next) {
      say_lost(offer->answer.text, next.error());
      return std::nullopt;
    }
    node = std::move(*next);
    mode = PeerMode::loading;
    call.progress();
  }
  return std::nullopt;
}

Status take_offer(const std::string& node, PeerOffer offer) {
  const PeerAnswer& answer = offer.answer;
  PeerStream stream(offer.connection);
  const auto digest = fill({answer.bytes,
                            answer.catalogue_at,
                            answer.catalogue_bytes,
                            [&](std::uint64_t begin, unsigned char* to, std::uint64_t bytes) {
                              return stream.read(begin, to, bytes);
                            },
                            threads_for_disk(),
                            1,
                            {},
                            node});
  if (!digest) return digest.error();
  // Nobody seals the bytes themselves.
  if (*digest != answer.digest)
    return Error{ErrorKind::corrupt, "what it sent does not have the digest that it told"};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  (void)offer.connection.send(frame_of(PeerFrame::got, ""), deadline);
  return say_digest(LoaderWord::done, *digest);
}

/// False: none of the nodes has it.
Result<bool> load_from_peers(const LoaderMessage& message, const ModelDigest& source,
                             const ModelSource::Progress& progress) {
  const auto task = PeersTask::parse(message.text_view());
  if (!task) return task.error();
  PeerCall call;
  call.munge = Munge(task->munge_socket);
  call.first = std::chrono::milliseconds(task->first_ms);
  call.patience = std::chrono::milliseconds(task->patience_ms);
  call.progress = progress;
  call.question.from = task->self;
  call.question.tenant = task->tenant;
  call.question.model = task->model;
  call.question.source = source;
  call.question.digest = task->digest;
  for (const auto& [mode, node] : task->nodes) {
    progress();
    auto offer = offer_of(node, mode, call);
    if (!offer) continue;
    if (auto taken = take_offer(offer->first, std::move(offer->second)); !taken)
      return taken.error();
    return true;
  }
  return false;
}

Result<ModelSource> open_source(const LoaderMessage& task, const std::string& settings,
                                const ModelSource::Progress& progress) {
  const std::string place(task.text_view());
  if (!is_remote_place(place)) return ModelSource::open(place, task.uid);
  if (settings.empty())
    return Error{ErrorKind::denied,
                 fmt::format("{}: this bellows-modeld reads no models from afar: an administrator "
                             "starts it with --remote to change that",
                             shown_place(place))};
  // The keys are nobody's but this process's: no core file has them, and nobody attaches to it.
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) return errno_error("protect", "the keys in memory");
  return ModelSource::open_remote(place, settings, progress);
}

Status load(const LoaderMessage& task, const std::string& settings) {
  std::uint64_t steps = 0;
  const auto progress = [&steps] { say_progress(++steps); };
  auto source = open_source(task, settings, progress);
  if (!source) return source.error();
  if (auto said = say_files(source->identities()); !said) return said;
  if (task.asks) {
    const auto version = source->version();
    if (!version) return version.error();
    if (auto said = say_digest(LoaderWord::version, *version); !said) return said;
    LoaderMessage answer;
    plain::Handle fd;
    if (auto received = await_message(&answer, &fd); !received) return received;
    if (answer.word == LoaderWord::image && fd.get() >= 0) return load_image(Fd(fd.release()));
    if (answer.word == LoaderWord::peers) {
      const auto loaded = load_from_peers(answer, *version, progress);
      if (!loaded) return loaded.error();
      if (*loaded) return {};
    } else if (answer.word != LoaderWord::go_on)
      return Error{ErrorKind::internal, "bellows-modeld does not say whether there is an image"};
  }
  const bool is_remote = is_remote_place(task.text_view());
  if (!is_remote)
    if (auto given_up = give_up(GivenUp::files); !given_up) return given_up;
  if (auto read = source->read_headers(progress); !read) return read;
  const ModelLayout& layout = source->layout();
  Reading reading = {layout.bytes,
                     layout.catalogue_at,
                     layout.catalogue.size(),
                     [&](std::uint64_t begin, unsigned char* to, std::uint64_t bytes) {
                       return source->read(begin, to, bytes);
                     },
                     is_remote ? kRemoteThreads : threads_for_disk(),
                     is_remote ? kRemoteLeaves : 1};
  if (source->is_put_together()) {
    reading.read = {};
    reading.read_all = [&](unsigned char* memory, const Progress& read) {
      return source->fill(memory, read);
    };
  }
  const auto digest = fill(reading);
  if (!digest) return digest.error();
  if (auto unchanged = source->check_unchanged(); !unchanged) return unchanged;
  return say_digest(LoaderWord::done, *digest);
}

Status check(const LoaderMessage& task, int fd) {
  GivenMemory memory;
  if (auto mapped = memory.map(fd, task.bytes, PROT_READ); !mapped) return mapped;
  Loading loading(memory.data(), task.bytes, {});
  const auto digest = run(loading, threads_for_disk());
  return digest ? say_digest(LoaderWord::done, *digest) : Status(digest.error());
}

Status serve(const std::string& settings) {
  // OpenSSL reads files when it is first used, and later it can't.
  if (auto hasher = TreeHasher::make(); !hasher) return hasher.error();
  LoaderMessage task;
  plain::Handle fd;
  if (auto received = await_message(&task, &fd); !received) return received;
  if (task.word == LoaderWord::load) return load(task, settings);
  if (task.word == LoaderWord::image && fd.get() >= 0) return load_image(Fd(fd.release()));
  if (task.word == LoaderWord::check && fd.get() >= 0) return check(task, fd.get());
  return Error{ErrorKind::internal, "bellows-modeld gave its loader no task"};
}

}  // namespace
}  // namespace bellows

int main(int argc, char** argv) {
  return bellows::helper_main(
      "the loader", [&] { return bellows::serve(argc > 1 ? argv[1] : ""); }, bellows::say_failed);
}
