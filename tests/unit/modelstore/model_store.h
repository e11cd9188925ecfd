// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/child.h"
#include "common/plain/packet.h"
#include "modelstore/include/bellows_model.h"
#include "modelstore/wire/control_wire.h"
#include "tests/unit/modelstore/model_files.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

namespace bellows::model_test {

inline bool eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// A process that ends with the test, however that ends.
inline pid_t fork_child() {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  return child;
}

/// A model that a program has open.
class OpenModel {
 public:
  /// `device`: of CUDA; -1: in memory.
  OpenModel(const std::string& socket, const std::string& name, int wait_ms = 20000,
            int device = -1) {
    bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
    config.socket = socket.c_str();
    config.wait_ms = wait_ms;
    config.flags = device < 0 ? 0 : BELLOWS_MODEL_ON_GPU;
    config.device = device;
    code_ = bellows_model_open(name.c_str(), &config, &model_);
  }
  OpenModel(OpenModel&& other) noexcept
      : code_(other.code_), model_(std::exchange(other.model_, nullptr)) {}
  OpenModel& operator=(OpenModel&&) = delete;
  ~OpenModel() { close(); }

  void close() { bellows_model_close(std::exchange(model_, nullptr)); }
  bool ok() const { return code_ == BELLOWS_MODEL_OK; }
  int code() const { return code_; }
  const bellows_model_t* get() const { return model_; }
  std::string error() const { return bellows_model_error(model_); }
  std::string digest() const { return bellows_model_digest(model_); }
  /// The bytes of a tensor.
  std::string data(const std::string& tensor) const {
    bellows_tensor found = BELLOWS_TENSOR_INIT;
    if (bellows_model_find(model_, tensor.c_str(), &found) != BELLOWS_MODEL_OK) return "";
    return {static_cast<const char*>(found.data), found.bytes};
  }

 private:
  int code_;
  bellows_model_t* model_ = nullptr;
};

/// A bellows-modeld with files of its own. Tenant "a" has a socket, and so has "b".
class ModelStore {
 public:
  explicit ModelStore(std::vector<std::string> options = {}) : options_(std::move(options)) {}
  ~ModelStore() { stop(); }

  /// A file of one tensor "w", and its option.
  std::string add(const std::string& name, const std::string& data,
                  const std::string& more = "tenant=a") {
    write_file(file(name), one_tensor("w", data));
    options_.push_back("--model=" + name + "=" + file(name) + "," + more);
    return file(name);
  }
  std::string file(const std::string& name) const {
    std::string plain = name;
    std::replace(plain.begin(), plain.end(), '/', '_');
    return scratch_.path() + "/" + plain + ".st";
  }
  void option(const std::string& text) { options_.push_back(text); }
  void forget_options() { options_.clear(); }

  /// How to start one with this budget and these helpers.
  std::vector<std::string> command() const {
    std::vector<std::string> words = {MODELD,
                                      "--run=" + run(),
                                      "--budget=" + budget_,
                                      "--helpers=" + helpers_,
                                      "--alone=" + std::to_string(keeper_alone_s),
                                      "--socket=" + socket("a") + ",tenant=a,gpus=" + gpus_of_a,
                                      "--socket=" + socket("b") + ",tenant=b"};
    words.insert(words.end(), options_.begin(), options_.end());
    return words;
  }

  void start(const std::string& budget = "1G", const std::string& helpers = HELPERS) {
    budget_ = budget;
    helpers_ = helpers;
    ready_ = said("is ready");
    ChildOptions child;
    child.command = command();
    child.pipe_err = true;
    child.death_signal = SIGKILL;
    auto started = Child::start(child);
    cr_assert(started.ok(), "%s", started.error().text.c_str());
    child_.emplace(std::move(*started));
    cr_assert(eventually([&] { return said("is ready") > ready_; }), "%s", said_.c_str());
  }
  /// One that refuses to start; why.
  std::string start_in_vain() const {
    ChildOptions options;
    options.command = command();
    options.pipe_err = true;
    options.death_signal = SIGKILL;
    auto child = Child::start(options);
    cr_assert(child.ok(), "%s", child.error().text.c_str());
    cr_assert(eventually([&] { return child->poll_exit().has_value(); }));
    cr_expect(!child->poll_exit()->ok());
    char said[4096];
    const ssize_t got = read(child->err(), said, sizeof said);
    return {said, got > 0 ? static_cast<std::size_t>(got) : 0};
  }
  void stop(int signal = SIGKILL) {
    if (!child_) return;
    kill(child_->pid(), signal);
    cr_expect(eventually([&] { return child_->poll_exit().has_value(); }));
    (void)read_more();
    child_.reset();
  }

  /// Killed, and started with the same options.
  void restart() {
    stop();
    start(budget_, helpers_);
  }
  /// The processes that it has started; of this program only.
  std::vector<pid_t> helpers(const std::string& program = "") const {
    std::vector<pid_t> found;
    std::ifstream children("/proc/" + std::to_string(pid()) + "/task/" + std::to_string(pid()) +
                           "/children");
    for (pid_t child = 0; children >> child;) {
      std::error_code gone;
      const auto exe =
          std::filesystem::read_symlink("/proc/" + std::to_string(child) + "/exe", gone);
      if (program.empty() || exe.filename() == program) found.push_back(child);
    }
    return found;
  }
  /// 0: it has started none.
  pid_t keeper() const {
    const auto keepers = helpers("bellows-model-keeper");
    return keepers.empty() ? 0 : keepers.front();
  }

  /// Waits until its log has this.
  bool says(const std::string& text) {
    return eventually([&] { return has(read_more(), text); });
  }
  /// How often its log has this by now.
  std::size_t said(const std::string& text) {
    std::size_t times = 0;
    const std::string& log = read_more();
    for (auto at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++times;
    return times;
  }
  const std::string& log() { return read_more(); }

  int keeper_alone_s = 3;
  std::string gpus_of_a;

  std::string run() const { return scratch_.path() + "/run"; }
  std::string socket(const std::string& tenant) const {
    return scratch_.path() + "/" + tenant + ".sock";
  }
  const std::string& path() const { return scratch_.path(); }
  pid_t pid() const { return child_->pid(); }
  OpenModel open(const std::string& name, const std::string& tenant = "a", int wait_ms = 20000) {
    return {socket(tenant), name, wait_ms};
  }

 private:
  const std::string& read_more() {
    char chunk[4096];
    ssize_t got;
    while (child_ && (got = read(child_->err(), chunk, sizeof chunk)) > 0)
      said_.append(chunk, static_cast<std::size_t>(got));
    return said_;
  }

  ScratchDir scratch_;
  std::vector<std::string> options_;
  std::optional<Child> child_;
  std::string said_;
  std::string budget_ = "1G", helpers_ = HELPERS;
  std::size_t ready_ = 0;
};

/// What a program says that doesn't use the library.
class RawClient {
 public:
  explicit RawClient(const std::string& path) {
    cr_assert_eq(plain::connect_to(path.c_str(), &socket_), 0);
  }

  bool send(const void* bytes, std::size_t size) {
    const iovec part = {const_cast<void*>(bytes), size};
    return plain::send_packet(socket_.get(), &part, 1, -1, MSG_DONTWAIT) == 0;
  }
  bool send(const modelwire::ModelRequest& request) { return send(&request, sizeof request); }
  /// With a descriptor. False: errno says why not.
  bool send_with(const modelwire::ModelRequest& request, int passed) {
    const iovec part = {const_cast<modelwire::ModelRequest*>(&request), sizeof request};
    errno = plain::send_packet(socket_.get(), &part, 1, passed, MSG_DONTWAIT);
    return errno == 0;
  }

  /// Nothing: the daemon has closed the socket.
  std::optional<modelwire::ModelReply> receive(plain::Handle* passed = nullptr) {
    pollfd p = {socket_.get(), POLLIN, 0};
    cr_assert_eq(poll(&p, 1, 20000), 1, "no answer");
    modelwire::ModelReply reply;
    const iovec part = {&reply, sizeof reply};
    std::size_t got = 0;
    if (plain::receive_packet(socket_.get(), &part, 1, &got, passed, 0) != 0) return std::nullopt;
    cr_assert_null(modelwire::check(reply, got));
    return reply;
  }
  bool has_answer() {
    pollfd p = {socket_.get(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  }

  static modelwire::ModelRequest request(modelwire::Op op, std::uint64_t handle,
                                         const std::string& name) {
    modelwire::ModelRequest request;
    request.op = op;
    request.handle = handle;
    request.name_length = static_cast<std::uint32_t>(name.size());
    std::memcpy(request.name, name.data(), name.size());
    return request;
  }

 private:
  plain::Handle socket_;
};

/// A listening socket, as SPANK's prolog would bind it.
inline void listen_at(const std::string& path, plain::Handle* out) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  out->reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  cr_assert_eq(bind(out->get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  cr_assert_eq(listen(out->get(), 16), 0);
}

/// Speaks on the daemon's own socket.
class ControlClient {
 public:
  explicit ControlClient(const ModelStore& store) {
    cr_assert_eq(plain::connect_to((store.run() + "/control").c_str(), &socket_), 0);
  }

  modelwire::ControlRequest request(modelwire::ControlOp op, const std::string& tenant,
                                    const std::string& name) {
    modelwire::ControlRequest request;
    request.op = op;
    request.uid = geteuid();
    request.tenant_length = put(request.tenant, tenant);
    request.name_length = put(request.name, name);
    return request;
  }

  /// "" or the error.
  std::string call(const modelwire::ControlRequest& request, int passed = -1) {
    const iovec part = {const_cast<modelwire::ControlRequest*>(&request), sizeof request};
    cr_assert_eq(plain::send_packet(socket_.get(), &part, 1, passed, 0), 0);
    pollfd p = {socket_.get(), POLLIN, 0};
    cr_assert_eq(poll(&p, 1, 20000), 1, "no answer");
    modelwire::ControlReply reply;
    const iovec into = {&reply, sizeof reply};
    std::size_t got = 0;
    cr_assert_eq(plain::receive_packet(socket_.get(), &into, 1, &got, nullptr, 0), 0);
    cr_assert_null(modelwire::check(reply, got));
    return reply.text;
  }
  std::string call(modelwire::ControlOp op, const std::string& tenant, const std::string& name) {
    return call(request(op, tenant, name));
  }
  /// Has a job served on this socket, and on these GPUs.
  std::string serve(const std::string& job, const std::string& tenant, int listener,
                    const std::string& gpus) {
    const std::string error = call(request(modelwire::ControlOp::serve, tenant, job), listener);
    auto added = request(modelwire::ControlOp::gpus, "", job);
    added.path_length = put(added.path, gpus);
    return error.empty() ? call(added) : error;
  }
  std::string end(const std::string& job) { return call(modelwire::ControlOp::end, "", job); }
  std::string add(const std::string& tenant, const std::string& name, const std::string& path,
                  const std::string& visible = "") {
    auto added = request(modelwire::ControlOp::add, tenant, name);
    added.path_length = put(added.path, path);
    added.visible_length = put(added.visible, visible);
    return call(added);
  }

 private:
  template <std::size_t kBytes>
  static std::uint32_t put(char (&field)[kBytes], const std::string& text) {
    std::memcpy(field, text.data(), text.size());
    return static_cast<std::uint32_t>(text.size());
  }

  plain::Handle socket_;
};

}  // namespace bellows::model_test
