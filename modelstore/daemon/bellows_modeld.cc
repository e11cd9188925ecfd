// SPDX-License-Identifier: Apache-2.0
// bellows-modeld: lends the memory of models to the jobs of a node. See README.md.
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "common/say_line.h"
#include "common/text.h"
#include "config.h"
#include "modelstore/daemon/model_daemon.h"
#include "modelstore/daemon/model_folder.h"
#include "modelstore/loader/loader_wire.h"
#include "modelstore/loader/model_place.h"
#include "modelstore/wire/gpu_address.h"

namespace bellows {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

void say(const std::string& text) { say_line("bellows-modeld", text); }

struct WrongOption {
  std::string text;
};

std::uint64_t number_of(std::string_view text, std::string_view of) {
  const auto number = parse_uint(text);
  if (!number) throw WrongOption{fmt::format("{}: {} is not a number", of, text)};
  return *number;
}

/// "64G" and the like: powers of 1024.
std::uint64_t bytes_of(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const std::string whole(text);
  const auto unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  if (unit != std::string_view::npos) text.remove_suffix(1);
  const std::uint64_t number = number_of(text, whole);
  const unsigned shift =
      unit == std::string_view::npos ? 0 : 10 * (static_cast<unsigned>(unit) + 1);
  if (number > (UINT64_MAX >> shift)) throw WrongOption{whole + " is too large"};
  return number << shift;
}

/// "WHAT,KEY=VALUE,.."
class Words {
 public:
  explicit Words(const std::string& option) : option_(option) {
    for (std::string_view word : split(option, ',')) words_.emplace_back(word);
  }
  const std::string& what() const { return words_.front(); }
  bool has(std::string_view key) const { return !value(key, "").empty(); }
  std::string value(std::string_view key, const char* otherwise) const {
    const std::string begin = std::string(key) + "=";
    for (const std::string& word : words_)
      if (word.starts_with(begin)) return word.substr(begin.size());
    if (!otherwise) throw WrongOption{fmt::format("{} names no {}", option_, key)};
    return otherwise;
  }
  uid_t uid() const {
    const std::string text = value("uid", "");
    const std::uint64_t uid = text.empty() ? geteuid() : number_of(text, option_);
    // The last one means "no user" to the kernel.
    if (uid >= UINT32_MAX) throw WrongOption{option_ + ": there is no such uid"};
    return static_cast<uid_t>(uid);
  }

 private:
  std::string option_;
  std::vector<std::string> words_;
};

ModelOption model_of(const std::string& option, bool is_folder) {
  const Words words(option);
  const auto [name, path] = [&]() -> std::pair<std::string, std::string> {
    const auto sign = words.what().find('=');
    if (sign == std::string::npos && is_folder) return {"", words.what()};
    if (sign == std::string::npos) throw WrongOption{option + " is not NAME=PATH,tenant=TENANT"};
    return {words.what().substr(0, sign), words.what().substr(sign + 1)};
  }();
  // The comma separates the words here.
  std::string visible = words.value("visible", "");
  std::replace(visible.begin(), visible.end(), ':', ',');
  if (path.size() > LoaderMessage::kMostText) throw WrongOption{"a --model has too long a place"};
  if (is_remote_place(path) && (is_folder || words.has("uid")))
    throw WrongOption{option + ": with a URL there is neither a folder nor a uid"};
  std::optional<ModelDigest> digest;
  if (const std::string text = words.value("digest", ""); !text.empty()) {
    digest = ModelDigest::parse(text);
    if (!digest || is_folder) throw WrongOption{option + ": a digest has 64 hexadecimal digits"};
  }
  return {words.value("tenant", nullptr), name, {path, words.uid(), digest}, visible};
}

EvictionPolicy policy_of(const std::string& text) {
  if (text == "lru") return EvictionPolicy::lru;
  if (text == "lfu") return EvictionPolicy::lfu;
  if (text == "largest") return EvictionPolicy::largest;
  if (text == "cost") return EvictionPolicy::cost;
  throw WrongOption{text + " is none of lru, lfu, largest and cost"};
}

/// "NAME=WHAT"
std::pair<std::string, std::string> named(const std::string& text, const char* what) {
  const auto sign = text.find('=');
  if (sign == std::string::npos) throw WrongOption{fmt::format("{} is not NAME={}", text, what)};
  return {text.substr(0, sign), text.substr(sign + 1)};
}

TenantOption tenant_of(const std::string& text) {
  const auto [name, bytes] = named(text, "BYTES");
  return {name, bytes_of(bytes)};
}

/// As they stand on the command line.
struct Texts {
  std::string run = "/run/bellows-models";
  std::string budget;
  std::string policy = "lru";
  std::string site;
  std::string helpers = PKGLIBEXECDIR;
  bool small_pages = false;
  std::uint64_t ttl = 0;
  double stall = 60;
  double room = 30;
  double alone = 300;
  std::string metrics;
  std::string remote;
  std::string disk;
  std::vector<std::string> disk_tenants;
  std::vector<std::string> peers;
  std::string peer_name;
  std::uint64_t peer_port = 6831;
  double peer_wait = 1;
  std::string munge_socket;
  std::string gpu_memory;
  std::string gpu_driver = "libcuda.so.1";
  std::vector<std::string> tenants, models, folders, sockets;
};

void add_options(CLI::App& app, Texts& t) {
  app.set_version_flag("--version", "bellows-modeld " PACKAGE_VERSION);
  app.add_option("--run", t.run, "The daemon's own folder")->capture_default_str();
  app.add_option("--budget", t.budget, "Bytes of memory for models: 64G")->required();
  app.add_option("--tenant", t.tenants, "NAME=BYTES: how much of it a tenant's models may take");
  app.add_option("--model", t.models,
                 "NAME=PATH|URL,tenant=TENANT[,visible=TENANT:TENANT|*][,uid=UID][,digest=..]");
  app.add_option("--models", t.folders,
                 "[NAME=]FOLDER,tenant=TENANT[,visible=..][,uid=UID]: all that are in a folder");
  app.add_option("--site", t.site,
                 "A bellows.yaml whose models are there too; SIGHUP: read it again");
  app.add_option("--socket", t.sockets,
                 "PATH,tenant=TENANT[,uid=UID][,gpus=ADDRESS+ADDRESS..]: a socket for processes "
                 "of this user");
  app.add_option("--policy", t.policy, "What is evicted first: lru, lfu, largest, cost")
      ->capture_default_str();
  app.add_option("--ttl", t.ttl, "Seconds after which a model that nobody uses is evicted; 0: none")
      ->capture_default_str();
  app.add_flag("--small-pages", t.small_pages, "No huge pages, even where the node has enough");
  app.add_option("--stall", t.stall, "Seconds without progress after which a loader is replaced")
      ->capture_default_str();
  app.add_option("--room", t.room, "Seconds that a load waits for memory that was given back")
      ->capture_default_str();
  app.add_option("--alone", t.alone,
                 "Seconds for which models stay in memory without a bellows-modeld")
      ->capture_default_str();
  app.add_option("--remote", t.remote,
                 "The file that says which URLs may be read, and with which keys");
  app.add_option("--disk", t.disk,
                 "FOLDER=BYTES[,policy=..][,ttl=SECONDS][,files=yes]: keeps models on a disk, too");
  app.add_option("--disk-tenant", t.disk_tenants,
                 "NAME=BYTES: how much of the disk a tenant's models may take");
  app.add_option("--peers", t.peers,
                 "The nodes that ask one another before a server: n[1-100], or NAME=HOST[:PORT]");
  app.add_option("--peer-name", t.peer_name, "This node's name among them, if not the host's");
  app.add_option("--peer-port", t.peer_port, "The port by which they do")->capture_default_str();
  app.add_option("--peer-wait", t.peer_wait,
                 "Seconds after which a node that says nothing is passed over")
      ->capture_default_str();
  app.add_option("--munge-socket", t.munge_socket, "munged's socket, if not the usual one");
  app.add_option("--gpu-memory", t.gpu_memory,
                 "Bytes of each GPU for models of a job that has it; none by default");
  app.add_option("--gpu-driver", t.gpu_driver, "The library of NVIDIA's driver")
      ->capture_default_str();
  app.add_option("--metrics", t.metrics,
                 "A file for Prometheus' node_exporter, written every 15 seconds: *.prom");
  app.add_option("--helpers", t.helpers,
                 "Folder of bellows-model-loader, -keeper, -disk, -peer and -gpu")
      ->capture_default_str();
}

std::chrono::milliseconds ms_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

DiskOption disk_of(const Texts& t, LoadOptions& loads) {
  DiskOption disk;
  if (t.disk.empty()) {
    if (!t.disk_tenants.empty()) throw WrongOption{"--disk-tenant is without a --disk"};
    return disk;
  }
  const Words words(t.disk);
  const auto [folder, bytes] = named(words.what(), "BYTES");
  if (!folder.starts_with('/')) throw WrongOption{t.disk + ": the folder's path is not absolute"};
  const std::string files = words.value("files", "no");
  if (files != "yes" && files != "no") throw WrongOption{t.disk + ": files is yes or no"};
  loads.files_too = files == "yes";
  disk.program = t.helpers + "/bellows-model-disk";
  disk.directory = folder;
  disk.limits = {bytes_of(bytes), policy_of(words.value("policy", "lru")),
                 std::chrono::seconds(number_of(words.value("ttl", "0"), t.disk))};
  for (const std::string& text : t.disk_tenants) disk.tenants.push_back(tenant_of(text));
  return disk;
}

/// Up to its first dot, as Slurm has it.
std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof name - 1) < 0) return "";
  return std::string(name).substr(0, std::string_view(name).find('.'));
}

PeerOption peers_of(const Texts& t) {
  PeerOption peers;
  if (t.peers.empty()) return peers;
  if (t.peer_port == 0 || t.peer_port > UINT16_MAX) throw WrongOption{"--peer-port is no port"};
  // Within it one node connects and another speaks; a loader that says nothing for longer is
  // replaced.
  if (ms_of(t.peer_wait).count() < 1 || t.peer_wait >= t.stall / 2)
    throw WrongOption{
        fmt::format("--peer-wait is {} s: it must be more than none, and less than half of "
                    "--stall, {} s",
                    t.peer_wait, t.stall)};
  std::string list;
  for (const std::string& each : t.peers) list += (list.empty() ? "" : ",") + each;
  auto nodes = parse_peer_nodes(list, static_cast<std::uint16_t>(t.peer_port));
  if (!nodes) throw WrongOption{"--peers: " + nodes.error().text};
  peers.nodes = std::move(*nodes);
  peers.self = t.peer_name.empty() ? host_name() : t.peer_name;
  peers.munge_socket = t.munge_socket;
  peers.first = ms_of(t.peer_wait);
  peers.program = t.helpers + "/bellows-model-peer";
  if (std::none_of(peers.nodes.begin(), peers.nodes.end(),
                   [&](const PeerNode& node) { return node.name == peers.self; }))
    throw WrongOption{
        fmt::format("--peers does not have this node, {}: name it there, or say with "
                    "--peer-name what it is called there",
                    peers.self)};
  return peers;
}

GpuOption gpu_of(const Texts& t) {
  GpuOption gpu;
  if (!t.gpu_memory.empty()) gpu.limits.bytes = bytes_of(t.gpu_memory);
  gpu.limits.policy = policy_of(t.policy);
  gpu.limits.time_to_live = std::chrono::seconds(t.ttl);
  gpu.copies = {t.helpers + "/bellows-model-gpu", t.run + "/mps", t.gpu_driver, ms_of(t.stall)};
  return gpu;
}

std::set<std::uint64_t> gpus_of(const Words& words, const std::string& option) {
  std::set<std::uint64_t> gpus;
  const std::string text = words.value("gpus", "");
  if (text.empty()) return gpus;
  for (std::string_view address : split(text, '+')) {
    std::uint64_t gpu = 0;
    if (!modelwire::read_gpu(address.data(), address.size(), &gpu))
      throw WrongOption{
          fmt::format("{}: {} is no address of a GPU, such as 0000:3b:00.0", option, address)};
    gpus.insert(gpu);
  }
  return gpus;
}

ModelDaemonOptions options_of(const Texts& t) {
  ModelDaemonOptions options;
  options.run = t.run;
  options.site = t.site;
  if (!t.metrics.empty() && !t.metrics.starts_with('/'))
    throw WrongOption{t.metrics + ": the path of the metrics is not absolute"};
  options.metrics = t.metrics;
  options.limits = {bytes_of(t.budget), policy_of(t.policy), std::chrono::seconds(t.ttl)};
  options.keeper = {t.helpers + "/bellows-model-keeper", std::to_string(ms_of(t.alone).count())};
  options.loads.loader = t.helpers + "/bellows-model-loader";
  options.loads.huge = !t.small_pages;
  options.loads.stall = ms_of(t.stall);
  options.loads.room = ms_of(t.room);
  options.loads.remote = t.remote;
  options.disk = disk_of(t, options.loads);
  options.peers = peers_of(t);
  options.gpu = gpu_of(t);
  for (const std::string& text : t.tenants) options.tenants.push_back(tenant_of(text));
  for (const std::string& text : t.models) options.models.push_back(model_of(text, false));
  for (const std::string& text : t.sockets) {
    const Words words(text);
    options.sockets.push_back(
        {words.what(), words.value("tenant", nullptr), words.uid(), gpus_of(words, text)});
  }
  return options;
}

/// Before the daemon has threads. Its own options of the same name come first. One bad folder keeps
/// nobody from the other models.
void add_folders(const std::vector<std::string>& folders, ModelDaemonOptions& options) {
  std::vector<ModelOption> models;
  for (const std::string& text : folders) {
    const auto found = models_in_folder(model_of(text, true), options.loads.stall);
    if (!found) {
      say(found.error().text + ": none of its models are there until bellows-modeld starts again");
      continue;
    }
    if (found->has_more)
      say(fmt::format("{} has more than {} models: those behind are left out", text,
                      kMostOfFolder));
    models.insert(models.end(), found->models.begin(), found->models.end());
  }
  options.models.insert(options.models.begin(), models.begin(), models.end());
}

/// Allows as many descriptors as may be, and gives the part of them that is for jobs and their
/// programs: models, loaders and who administers the daemon must find some too.
std::size_t allow_descriptors() {
  constexpr rlim_t kForOthers = 1024;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return kForOthers;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max - std::min(limit.rlim_max / 2, kForOthers);
}

int run(int argc, char** argv) {
  Texts texts;
  CLI::App app("bellows-modeld: lends the memory of models to the jobs of a node");
  add_options(app, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const Fd signals(signalfd(-1, &taken, SFD_CLOEXEC));
  ModelDaemonOptions options = options_of(texts);
  options.most_sockets = allow_descriptors();
  add_folders(texts.folders, options);
  auto daemon = ModelDaemon::make(options, say);
  if (!daemon) {
    say(daemon.error().text);
    return kFailed;
  }
  say(PACKAGE_VERSION " is ready");
  (*daemon)->run(signals.get());
  say("ends; programs keep what they have");
  // A loader that hangs in a dead file system must not keep its parent: nothing is destroyed.
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace
}  // namespace bellows

int main(int argc, char** argv) {
  try {
    return bellows::run(argc, argv);
  } catch (const bellows::WrongOption& wrong) {
    bellows::say(wrong.text);
    return bellows::kWrongUsage;
  } catch (const std::exception& error) {
    bellows::say(error.what());
    return bellows::kFailed;
  }
}
