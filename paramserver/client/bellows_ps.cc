// SPDX-License-Identifier: Apache-2.0
#include "paramserver/include/bellows_ps.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <new>

#include "common/plain/packet.h"
#include "paramserver/client/array.h"
#include "paramserver/client/clip.h"
#include "paramserver/client/device_side.h"
#include "paramserver/client/join_memory.h"
#include "paramserver/client/join_message.h"
#include "paramserver/client/learner.h"
#include "paramserver/wire/ps_wire.h"

using namespace bellows;
using ps::PsMessage;
using ps::PsWord;

namespace {

using ps::Array;

constexpr int kTries = 20;
constexpr useconds_t kPauseUs = 50'000;

/// Where a tensor lies.
struct Place {
  std::uint32_t shard;
  std::uint64_t at;       ///< in elements, from the shard's first
  std::uint64_t rows_at;  ///< what its gradients say of rows
};

}  // namespace

struct bellows_ps {
  char error[PsMessage::kMostText + 1] = "";
  char path[sizeof(sockaddr_un::sun_path)] = "";
  plain::Handle socket;
  ps::Learner learner;
  std::uint32_t number = 0;
  int wait_ms = -1;
  std::size_t tensors = 0;
  Array<ps::TensorSpec> specs;
  Array<Place> places;
  Array<const float*> weights;  ///< of each shard
  bool pulled = false;
  double clip_norm = 0;
  Array<ps::GradientPart> parts;  ///< of each tensor, as bellows_ps_push finds them
  ps::ElementType type = ps::ElementType::f32;
  unsigned char* gradient = nullptr;
  std::uint64_t updates = 0;

  ps::DeviceSide device;  ///< behind `learner`, so that it ends first
  bool spoilt = false;    ///< a copy of this gradient has failed

  /// Returns `code`, so that callers can `return ps->fail(code, ...)`.
  int fail(int code, const char* format, ...) __attribute__((format(printf, 3, 4)));
};

int bellows_ps::fail(int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, sizeof error, format, arguments);
  va_end(arguments);
  return code;
}

namespace {

int gone(bellows_ps* ps) { return ps->fail(BELLOWS_PS_ERR_UNAVAILABLE, "bellows-ps has ended"); }

int send(bellows_ps* ps, const PsMessage& message, int passed) {
  const iovec part = {const_cast<PsMessage*>(&message), sizeof message};
  const int error = plain::send_packet(ps->socket.get(), &part, 1, passed, 0);
  return error == 0 ? BELLOWS_PS_OK : gone(ps);
}

int refused(bellows_ps* ps, const PsMessage& message) {
  const int code = message.refusal == ps::PsRefusal::full          ? BELLOWS_PS_ERR_FULL
                   : message.refusal == ps::PsRefusal::unavailable ? BELLOWS_PS_ERR_UNAVAILABLE
                                                                   : BELLOWS_PS_ERR_INVALID;
  return ps->fail(code, "%.*s", static_cast<int>(message.length), message.text);
}

/// The next message, and its descriptor.
int receive(bellows_ps* ps, PsMessage* message, plain::Handle* passed) {
  pollfd fds = {ps->socket.get(), POLLIN, 0};
  int ready;
  do {
    ready = poll(&fds, 1, ps->wait_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0)
    return ps->fail(BELLOWS_PS_ERR_TIMEOUT, "bellows-ps does not answer within %d ms", ps->wait_ms);
  const iovec part = {message, sizeof *message};
  std::size_t got = 0;
  if (plain::receive_packet(ps->socket.get(), &part, 1, &got, passed, 0) != 0) return gone(ps);
  if (!message->is_sound(got))
    return ps->fail(BELLOWS_PS_ERR_UNAVAILABLE,
                    "bellows-ps and this library are of different releases");
  return message->word == PsWord::refused ? refused(ps, *message) : BELLOWS_PS_OK;
}

std::uint64_t padded(std::uint64_t count) {
  return (count + ps::kAlignElements - 1) / ps::kAlignElements * ps::kAlignElements;
}

int no_memory(bellows_ps* ps) {
  return ps->fail(BELLOWS_PS_ERR_MEMORY, "there is no memory: %s", strerror(errno));
}

int send_initial(bellows_ps* ps, const std::uint64_t* counts, const float* const* initial) {
  ps::JoinMemory all;
  for (std::size_t i = 0; i < ps->tensors; ++i) {
    const std::uint64_t end = all.size() + padded(counts[i]) * sizeof(float);
    if (!all.add(initial[i], counts[i] * sizeof(float)) || !all.pad_to(end)) return no_memory(ps);
  }
  PsMessage message;
  message.word = PsWord::initial;
  return send(ps, message, all.fd());
}

/// Of tensors one after another; each lies in one shard.
int find_places(bellows_ps* ps) {
  const std::uint32_t shards = ps->learner.geometry().shards;
  if (!ps->places.make(ps->tensors) || !ps->weights.make(shards) || !ps->parts.make(ps->tensors))
    return no_memory(ps);
  std::uint64_t at = 0, rows_at = 0;
  std::uint32_t shard = 0;
  for (std::size_t i = 0; i < ps->tensors; ++i) {
    while (shard < shards && at >= ps->learner.shard(shard).begin + ps->learner.shard(shard).count)
      ++shard;
    if (shard == shards)
      return ps->fail(BELLOWS_PS_ERR_UNAVAILABLE, "bellows-ps has fewer parameters than there are");
    ps->places[i] = {shard, at - ps->learner.shard(shard).begin, rows_at};
    at += padded(ps->specs[i].count);
    rows_at += ps->specs[i].row_words();
  }
  return BELLOWS_PS_OK;
}

int take_grant(bellows_ps* ps, const PsMessage& granted, const plain::Handle& control) {
  plain::Handle others[3];
  for (plain::Handle& each : others) {
    PsMessage more;
    if (const int rc = receive(ps, &more, &each); rc != BELLOWS_PS_OK) return rc;
    if (more.word != PsWord::more || each.get() < 0) return gone(ps);
  }
  const ps::Grant grant = {granted.geometry,
                           {granted.learner, granted.incarnation, granted.base},
                           granted.clock,
                           granted.lead};
  if (!ps->learner.attach(grant, control.get(), others[0].get(), others[1].get(), others[2]))
    return no_memory(ps);
  ps->number = granted.learner;
  return find_places(ps);
}

int describe_tensors(bellows_ps* ps, const bellows_ps_config& config, const std::uint64_t* counts) {
  if (!ps->specs.make(ps->tensors)) return no_memory(ps);
  for (std::size_t i = 0; i < ps->tensors; ++i) {
    // Also so that none of their bytes overflow.
    if (counts[i] == 0 || counts[i] > ps::kMostElements)
      return ps->fail(BELLOWS_PS_ERR_INVALID,
                      "tensor %zu has %llu elements: there may be 1 to %llu", i,
                      static_cast<unsigned long long>(counts[i]),
                      static_cast<unsigned long long>(ps::kMostElements));
    ps->specs[i].count = counts[i];
    ps->specs[i].width = config.width ? config.width[i] : 0;
    ps->specs[i].group = config.groups > 0 && config.group_of ? config.group_of[i] : 0;
  }
  return BELLOWS_PS_OK;
}

int connect(bellows_ps* ps, const bellows_ps_config& config) {
  const char* path = config.socket ? config.socket : getenv("BELLOWS_PS_SOCKET");
  if (!path)
    return ps->fail(BELLOWS_PS_ERR_UNAVAILABLE,
                    "there is no parameter server: neither a socket was given nor is "
                    "BELLOWS_PS_SOCKET set");
  if (strlen(path) >= sizeof ps->path)
    return ps->fail(BELLOWS_PS_ERR_INVALID, "the socket's path has more than %zu bytes",
                    sizeof ps->path - 1);
  strcpy(ps->path, path);
  const int error = plain::connect_to(path, &ps->socket, config.wait_ms == 0 ? 1 : config.wait_ms);
  if (error == 0) return BELLOWS_PS_OK;
  return ps->fail(BELLOWS_PS_ERR_UNAVAILABLE, "bellows-ps at %.200s: %s", path, strerror(error));
}

int join(bellows_ps* ps, const bellows_ps_config& config, const std::uint64_t* counts,
         const float* const* initial) {
  if (ps->tensors == 0 || ps->tensors > PsMessage::kMostTensors || !counts || !initial)
    return ps->fail(BELLOWS_PS_ERR_INVALID, "there must be 1 to %llu tensors, and their values",
                    static_cast<unsigned long long>(PsMessage::kMostTensors));
  if (config.groups > 0 && !config.group)
    return ps->fail(BELLOWS_PS_ERR_INVALID, "there are %u groups, and `group` is NULL",
                    config.groups);
  if (!(config.clip_norm >= 0))
    return ps->fail(BELLOWS_PS_ERR_INVALID, "clip_norm is %g: it is a number of at least 0",
                    config.clip_norm);
  if (const int rc = describe_tensors(ps, config, counts); rc != BELLOWS_PS_OK) return rc;
  if (const int rc = connect(ps, config); rc != BELLOWS_PS_OK) return rc;
  ps::JoinMemory sizes;
  if (!sizes.add(&ps->specs[0], ps->tensors * sizeof ps->specs[0])) return no_memory(ps);
  if (const int rc = send(ps, ps::join_of(config, ps->tensors), sizes.fd()); rc != BELLOWS_PS_OK)
    return rc;
  PsMessage answer;
  plain::Handle control;
  if (const int rc = receive(ps, &answer, &control); rc != BELLOWS_PS_OK) return rc;
  if (answer.word == PsWord::initial) {
    if (const int rc = send_initial(ps, counts, initial); rc != BELLOWS_PS_OK) return rc;
    if (const int rc = receive(ps, &answer, &control); rc != BELLOWS_PS_OK) return rc;
  }
  if (answer.word != PsWord::granted || control.get() < 0) return gone(ps);
  return take_grant(ps, answer, control);
}

int put_out(bellows_ps* ps) {
  return ps->fail(
      BELLOWS_PS_ERR_UNAVAILABLE,
      "bellows-ps has put this learner out: what it said that it published made no sense");
}

/// A server that was killed is followed by another, on the same socket. Whether there is one.
bool has_server(bellows_ps* ps) {
  plain::Handle probe;
  // Not 0, which sets no limit.
  const int error = plain::connect_to(ps->path, &probe, 1);
  return error != ECONNREFUSED && error != ENOENT;
}

int device_failed(bellows_ps* ps, const ps::DeviceError& error) {
  if (error.code == ps::DeviceSide::kNoMemory) return no_memory(ps);
  if (error.code == ps::DeviceSide::kNotLoaded)
    return ps->fail(BELLOWS_PS_ERR_DEVICE,
                    "this program has not loaded libcuda.so.1, the driver of NVIDIA's, or one that "
                    "is too old: its first call of CUDA loads it");
  return ps->fail(BELLOWS_PS_ERR_DEVICE, "CUDA cannot %s: %s", error.what,
                  ps->device.error_name(error.code));
}

/// Of a program whose header may be an older one, or a newer one.
int take_config(bellows_ps* ps, const bellows_ps_config* from, bellows_ps_config* config) {
  if (!from) return BELLOWS_PS_OK;
  constexpr std::size_t kMostSize = 4096;
  // No header had one that ends within a pointer or a number.
  if (from->size < sizeof from->size || from->size > kMostSize || from->size % alignof(*from) != 0)
    return ps->fail(BELLOWS_PS_ERR_INVALID, "config.size is %zu: begin with BELLOWS_PS_CONFIG_INIT",
                    from->size);
  for (std::size_t i = sizeof *config; i < from->size; ++i)
    if (reinterpret_cast<const unsigned char*>(from)[i] != 0)
      return ps->fail(BELLOWS_PS_ERR_INVALID,
                      "config has %zu bytes, of which this library knows %zu, and others are set: "
                      "the program needs a newer libbellows_ps",
                      from->size, sizeof *config);
  memcpy(config, from, from->size < sizeof *config ? from->size : sizeof *config);
  return BELLOWS_PS_OK;
}

/// What the next gradient says of a tensor's rows; see SlotView.
std::uint64_t* rows_of(const bellows_ps* ps, std::size_t tensor) {
  return ps->learner.rows(ps->places[tensor].rows_at);
}

/// That the next gradient has of a tensor.
std::uint64_t elements_of(const bellows_ps* ps, std::size_t tensor) {
  const ps::TensorSpec& spec = ps->specs[tensor];
  return spec.width == 0 ? spec.count : *rows_of(ps, tensor) * spec.width;
}

int timed_out(bellows_ps* ps) {
  const std::uint32_t missing = ps->learner.missing();
  if (missing == ps::Slowest::kNobody || missing == ps->number)
    return ps->fail(BELLOWS_PS_ERR_TIMEOUT, "bellows-ps applies nothing for %d ms", ps->wait_ms);
  return ps->fail(BELLOWS_PS_ERR_TIMEOUT,
                  "bellows-ps applies nothing for %d ms: it waits for learner %u, with which this "
                  "one is in step",
                  ps->wait_ms, missing);
}

/// Waits for what `done` looks at, at most a part of a second at a time.
template <typename Done>
int wait(bellows_ps* ps, Done done) {
  constexpr int kLook = 500;
  for (int waited = 0;; waited = ps->wait_ms < 0 ? 0 : waited + kLook) {
    const int left = ps->wait_ms < 0 ? INT_MAX : ps->wait_ms - waited;
    if (done(left < kLook ? left : kLook)) return BELLOWS_PS_OK;
    if (ps->learner.is_fenced()) return put_out(ps);
    if (left <= kLook) return timed_out(ps);
    if (plain::hung_up(ps->socket.get()) && !has_server(ps)) return gone(ps);
  }
}

}  // namespace

int bellows_ps_join(const bellows_ps_config* config, const uint64_t* counts,
                    const float* const* initial, size_t tensors, bellows_ps_t** out) {
  *out = static_cast<bellows_ps*>(calloc(1, sizeof(bellows_ps)));
  if (!*out) return BELLOWS_PS_ERR_MEMORY;
  auto* const ps = new (static_cast<void*>(*out)) bellows_ps;
  bellows_ps_config whole = BELLOWS_PS_CONFIG_INIT;
  if (const int rc = take_config(ps, config, &whole); rc != BELLOWS_PS_OK) return rc;
  ps->wait_ms = whole.wait_ms;
  ps->tensors = tensors;
  ps->device.set_tensors(tensors);
  ps->clip_norm = whole.clip_norm;
  ps->type = static_cast<ps::ElementType>(whole.gradient_type);
  int rc = join(ps, whole, counts, initial);
  // A server that is killed meanwhile is followed by another.
  for (int i = 0; i < kTries && rc == BELLOWS_PS_ERR_UNAVAILABLE && *ps->path && has_server(ps);
       ++i) {
    usleep(kPauseUs);
    rc = join(ps, whole, counts, initial);
  }
  return rc;
}

uint32_t bellows_ps_learner(const bellows_ps_t* ps) { return ps->number; }

int bellows_ps_pull(bellows_ps_t* ps) {
  if (ps->learner.is_fenced()) return put_out(ps);
  // From here on the server may write to what they read.
  if (const ps::DeviceError error = ps->device.await_weights()) return device_failed(ps, error);
  std::uint32_t slowest = 0;
  const int rc = wait(ps, [&](int wait_ms) {
    const ps::Learner::Others others = ps->learner.wait_for_others(wait_ms);
    slowest = others.slowest;
    return others.come;
  });
  if (rc == BELLOWS_PS_ERR_TIMEOUT)
    return ps->fail(rc, "learner %u is too far behind this one, and has pushed nothing for %d ms",
                    slowest, ps->wait_ms);
  if (rc != BELLOWS_PS_OK) return rc;
  ps->updates = 0;
  for (std::uint32_t s = 0; s < ps->learner.geometry().shards; ++s) {
    ps->weights[s] = ps->learner.pull(s);
    const std::uint64_t version = ps->learner.pulled(s).version;
    if (version > ps->updates) ps->updates = version;
  }
  ps->pulled = true;
  return BELLOWS_PS_OK;
}

const float* bellows_ps_weights(const bellows_ps_t* ps, size_t tensor) {
  if (!ps->pulled || tensor >= ps->tensors) return nullptr;
  return ps->weights[ps->places[tensor].shard] + ps->places[tensor].at;
}

uint64_t bellows_ps_updates(const bellows_ps_t* ps) { return ps->updates; }

int bellows_ps_weights_to_device(bellows_ps_t* ps, size_t tensor, void* to, void* stream) {
  const float* const from = bellows_ps_weights(ps, tensor);
  if (!from)
    return ps->fail(BELLOWS_PS_ERR_INVALID, "there is no tensor %zu, or no pull yet", tensor);
  const std::uint32_t shard = ps->places[tensor].shard;
  const ps::DeviceError error =
      ps->device.copy_weights(ps->learner, tensor, shard, ps->weights[shard], from, to,
                              ps->specs[tensor].count * sizeof(float), stream);
  return error ? device_failed(ps, error) : BELLOWS_PS_OK;
}

const char* bellows_ps_unpinned(const bellows_ps_t* ps) { return ps->device.unpinned(); }

int bellows_ps_begin(bellows_ps_t* ps) {
  ps->spoilt = false;
  const int rc =
      wait(ps, [ps](int wait_ms) { return (ps->gradient = ps->learner.gradient(wait_ms)); });
  if (rc != BELLOWS_PS_OK) return rc;
  for (std::size_t i = 0; i < ps->tensors; ++i)
    if (ps->specs[i].width > 0) *rows_of(ps, i) = 0;
  return BELLOWS_PS_OK;
}

void* bellows_ps_gradient(const bellows_ps_t* ps, size_t tensor) {
  if (!ps->gradient || tensor >= ps->tensors) return nullptr;
  const Place& place = ps->places[tensor];
  const std::uint64_t element = ps->learner.shard(place.shard).begin + place.at;
  return ps->gradient + element * ps->learner.geometry().gradient_bytes;
}

int bellows_ps_gradient_rows(bellows_ps_t* ps, size_t tensor, const uint64_t* rows, size_t count) {
  if (!bellows_ps_gradient(ps, tensor) || ps->specs[tensor].width == 0)
    return ps->fail(BELLOWS_PS_ERR_INVALID,
                    "there is no tensor %zu with a width in the configuration, or no gradient to "
                    "write to: bellows_ps_begin first",
                    tensor);
  const std::uint64_t all = ps->specs[tensor].rows();
  for (std::size_t i = 0; i < count; ++i)
    if (rows[i] >= all || (i > 0 && rows[i] <= rows[i - 1]))
      return ps->fail(BELLOWS_PS_ERR_INVALID,
                      "entry %zu of the rows of tensor %zu is %llu: they ascend, each once, below "
                      "%llu",
                      i, tensor, static_cast<unsigned long long>(rows[i]),
                      static_cast<unsigned long long>(all));
  std::uint64_t* const to = rows_of(ps, tensor);
  // Without one, `rows` may be NULL.
  if (count > 0) memcpy(to + 1, rows, count * sizeof *rows);
  *to = count;
  return BELLOWS_PS_OK;
}

int bellows_ps_gradient_from_device(bellows_ps_t* ps, size_t tensor, const void* from,
                                    void* stream) {
  void* const to = bellows_ps_gradient(ps, tensor);
  if (!to)
    return ps->fail(BELLOWS_PS_ERR_INVALID,
                    "there is no tensor %zu, or no gradient to write to: bellows_ps_begin first",
                    tensor);
  const std::uint64_t bytes = elements_of(ps, tensor) * ps->learner.geometry().gradient_bytes;
  if (bytes == 0) return BELLOWS_PS_OK;
  const ps::DeviceError error =
      ps->device.copy_gradient(ps->learner, tensor, to, from, bytes, stream);
  if (!error) return BELLOWS_PS_OK;
  ps->spoilt = true;
  return device_failed(ps, error);
}

int bellows_ps_push(bellows_ps_t* ps, float scale) {
  if (!ps->gradient)
    return ps->fail(BELLOWS_PS_ERR_INVALID, "there is no gradient to push: bellows_ps_begin first");
  if (ps->spoilt)
    return ps->fail(BELLOWS_PS_ERR_DEVICE,
                    "a copy of this gradient has failed: bellows_ps_begin, and write all of it");
  if (const ps::DeviceError error = ps->device.await_gradients()) {
    ps->spoilt = true;
    return device_failed(ps, error);
  }
  if (ps->learner.is_fenced()) return put_out(ps);
  if (ps->clip_norm > 0) {
    for (std::size_t i = 0; i < ps->tensors; ++i)
      ps->parts[i] = {static_cast<unsigned char*>(bellows_ps_gradient(ps, i)), elements_of(ps, i)};
    ps::clip_norm(&ps->parts[0], ps->tensors, ps->type, ps->clip_norm);
  }
  ps->gradient = nullptr;
  ps->learner.push(scale);
  return BELLOWS_PS_OK;
}

int bellows_ps_drain(bellows_ps_t* ps) {
  return wait(ps, [ps](int wait_ms) { return ps->learner.drain(wait_ms); });
}

const char* bellows_ps_error(const bellows_ps_t* ps) {
  return ps ? ps->error : "there is no memory for a handle";
}

int bellows_ps_leave(bellows_ps_t* ps) {
  if (!ps) return BELLOWS_PS_OK;
  int rc = BELLOWS_PS_OK;
  const ps::DeviceError copied = ps->device.await_weights();
  // Of one that could not be mapped there is nothing.
  if (ps->socket.get() >= 0 && ps->learner.geometry().learners > 0) {
    rc = bellows_ps_drain(ps);
    ps->learner.leave();
    PsMessage message;
    message.word = PsWord::leave;
    // Its end would say the same, a little later.
    if (rc == BELLOWS_PS_OK && send(ps, message, -1) == BELLOWS_PS_OK)
      (void)receive(ps, &message, nullptr);
  }
  ps->~bellows_ps();
  free(ps);
  return rc == BELLOWS_PS_OK && copied ? BELLOWS_PS_ERR_DEVICE : rc;
}
