// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "common/plain/file_identity.h"
#include "common/plain/packet.h"
#include "modelstore/client/model_handle.h"

namespace bellows::modelclient {
namespace {

constexpr int kTenMinutes = 600000;
/// Between two questions how far the model is.
constexpr std::int64_t kAskMs = 250;
constexpr std::uint64_t kHandle = 1;
constexpr char kDigestBegin[] = "sha256:";
constexpr char kFileBegin[] = "file:";

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool read_digest(const char* text, std::uint8_t* digest) {
  if (strlen(text) != 2 * modelwire::kDigestBytes) return false;
  for (std::size_t i = 0; i < modelwire::kDigestBytes; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    digest[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

/// A file that this program may read itself.
int request_file(bellows_model* model, const char* path, modelwire::ModelRequest* request) {
  const std::size_t length = strlen(path);
  if (*path != '/' || length > modelwire::kMostName)
    return model->fail(BELLOWS_MODEL_ERR_INVALID,
                       "file %.80s: its path must be absolute and of at "
                       "most %zu bytes",
                       path, modelwire::kMostName);
  const plain::Handle file(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat s;
  if (file.get() < 0 || fstat(file.get(), &s) < 0)
    return model->fail(BELLOWS_MODEL_ERR_NOT_FOUND, "file %s: %s", path, strerror(errno));
  if (!S_ISREG(s.st_mode))
    return model->fail(BELLOWS_MODEL_ERR_INVALID, "%s is not a plain file", path);
  const plain::FileIdentity identity = plain::identity_of(s);
  static_assert(sizeof request->digest == sizeof identity);
  request->by = modelwire::By::file;
  memcpy(request->digest, identity.data(), sizeof identity);
  request->name_length = static_cast<std::uint32_t>(length);
  memcpy(request->name, path, length);
  return BELLOWS_MODEL_OK;
}

int make_request(bellows_model* model, const char* name, modelwire::ModelRequest* request) {
  const std::size_t file = sizeof kFileBegin - 1;
  if (name && strncmp(name, kFileBegin, file) == 0)
    return request_file(model, name + file, request);
  const std::size_t begin = sizeof kDigestBegin - 1;
  if (name && strncmp(name, kDigestBegin, begin) == 0) {
    request->by = modelwire::By::digest;
    if (read_digest(name + begin, request->digest)) return BELLOWS_MODEL_OK;
    return model->fail(BELLOWS_MODEL_ERR_INVALID,
                       "%.80s is no digest: it takes 64 hexadecimal digits", name);
  }
  const std::size_t length = name ? strlen(name) : 0;
  if (!modelwire::is_model_name(name, length))
    return model->fail(BELLOWS_MODEL_ERR_INVALID, "no model can have the name \"%.80s\"",
                       name ? name : "");
  request->name_length = static_cast<std::uint32_t>(length);
  memcpy(request->name, name, length);
  return BELLOWS_MODEL_OK;
}

std::int64_t now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/// 0, ETIMEDOUT, or another errno value. `end`: as now_ms has it, -1: none.
int await_message(int socket, std::int64_t end) {
  for (;;) {
    const std::int64_t left = end < 0 ? -1 : end - now_ms();
    if (end >= 0 && left < 0) return ETIMEDOUT;
    pollfd p = {socket, POLLIN, 0};
    const int ready = poll(&p, 1, static_cast<int>(left));
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return errno;
  }
}

int closed(bellows_model* model) {
  return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE,
                     "bellows-modeld closed the connection: its socket is another user's, or it "
                     "has too many programs or was ended");
}

int receive_answer(bellows_model* model, modelwire::ModelReply* reply, plain::Handle* passed) {
  const iovec part = {reply, sizeof *reply};
  std::size_t got = 0;
  const int failure = plain::receive_packet(model->socket.get(), &part, 1, &got, passed, 0);
  if (failure == EPIPE) return closed(model);
  const char* wrong = failure == 0 ? modelwire::check(*reply, got) : strerror(failure);
  if (!wrong) return BELLOWS_MODEL_OK;
  return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE,
                     "the answer of bellows-modeld makes no sense: %s", wrong);
}

/// What a program is told that waits.
class Progress {
 public:
  explicit Progress(const bellows_model_config& config) : config_(config) {}

  bool is_wanted() const { return config_.progress; }
  /// Asks for it, once for each answer. Whoever can't be asked has ended, which the next read
  /// tells.
  void ask(int socket) {
    if (asked_) return;
    modelwire::ModelRequest request;
    request.op = modelwire::Op::progress;
    request.handle = kHandle;
    const iovec part = {&request, sizeof request};
    asked_ = plain::send_packet(socket, &part, 1, -1, MSG_DONTWAIT) == 0;
  }
  void take(const modelwire::ModelReply& reply) {
    asked_ = false;
    done_ = reply.catalogue_at;
    total_ = reply.memory_bytes;
  }
  /// False: the program wants to wait no longer.
  bool tell() {
    told_ = true;
    return config_.progress(config_.argument, done_, total_) == 0;
  }
  void tell_end(std::uint64_t total) {
    if (told_) (void)config_.progress(config_.argument, total, total);
  }

 private:
  const bellows_model_config& config_;
  bool asked_ = false, told_ = false;
  std::uint64_t done_ = 0, total_ = 0;
};

/// Waits for an answer that ends the wait.
int await_answer(bellows_model* model, const char* name, const bellows_model_config& config,
                 int wait_ms, Received* received) {
  modelwire::ModelReply* reply = &received->reply;
  const std::int64_t end = wait_ms < 0 ? -1 : now_ms() + wait_ms;
  Progress progress(config);
  for (;;) {
    const std::int64_t soon = now_ms() + kAskMs;
    const bool slice = progress.is_wanted() && (end < 0 || soon < end);
    const int failure = await_message(model->socket.get(), slice ? soon : end);
    if (failure == ETIMEDOUT && slice) {
      progress.ask(model->socket.get());
    } else if (failure == ETIMEDOUT) {
      return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE, "model %s was not loaded in time", name);
    } else if (failure != 0) {
      return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE, "waiting for model %s: %s", name,
                         strerror(failure));
    } else {
      const int rc = receive_answer(model, reply, &received->memory);
      if (rc != BELLOWS_MODEL_OK) return rc;
      if (reply->answer == modelwire::Answer::catalogue) {
        received->catalogue_reply = *reply;
        received->catalogue.reset(received->memory.release());
        continue;
      }
      if (reply->answer == modelwire::Answer::opened) progress.tell_end(reply->memory_bytes);
      if (reply->answer != modelwire::Answer::progress) return rc;
      progress.take(*reply);
    }
    if (progress.is_wanted() && !progress.tell())
      return model->fail(BELLOWS_MODEL_ERR_CANCELLED, "model %s: the wait was given up", name);
  }
}

}  // namespace

int ask(bellows_model* model, modelwire::Op op, const char* name,
        const bellows_model_config& config, std::uint64_t gpu, Received* received) {
  const modelwire::ModelReply* reply = &received->reply;
  modelwire::ModelRequest request;
  request.op = op;
  request.gpu = gpu;
  request.handle = kHandle;
  int rc = make_request(model, name, &request);
  if (rc != BELLOWS_MODEL_OK) return rc;
  const char* variable = getenv("BELLOWS_MODEL_SOCKET");
  const char* path = config.socket           ? config.socket
                     : variable && *variable ? variable
                                             : modelwire::kSocket;
  const int wait_ms = config.wait_ms == 0 ? kTenMinutes : config.wait_ms;
  int failure = plain::connect_to(path, &model->socket, wait_ms);
  const iovec part = {&request, sizeof request};
  if (failure == 0) failure = plain::send_packet(model->socket.get(), &part, 1, -1, 0);
  if (failure == EPIPE || failure == ECONNRESET) return closed(model);
  if (failure == ENOENT || failure == ECONNREFUSED)
    return model->fail(
        BELLOWS_MODEL_ERR_UNAVAILABLE,
        "the model store of this node, %s: there is no bellows-modeld that serves it; "
        "a job needs sbatch --model and a node where bellows-modeld runs",
        path);
  if (failure != 0)
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE, "the model store of this node, %s: %s", path,
                       strerror(failure));
  rc = await_answer(model, name, config, wait_ms, received);
  if (rc != BELLOWS_MODEL_OK) return rc;
  if (reply->answer == modelwire::Answer::opened && request.by == modelwire::By::digest &&
      memcmp(reply->digest, request.digest, sizeof reply->digest) != 0)
    return model->fail(BELLOWS_MODEL_ERR_CORRUPT, "model %s: bellows-modeld gave another", name);
  if (reply->answer != modelwire::Answer::failed) return rc;
  return model->fail(static_cast<int>(reply->failure), "model %s: %s", name, reply->text);
}

}  // namespace bellows::modelclient
