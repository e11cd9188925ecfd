// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/size_text.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/model/commands.h"
#include "launcher/model/gpu_list.h"
#include "launcher/model/node_store.h"

namespace bellows {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const StoredModel& model) {
  Json json = {{"tenant", model.tenant},
               {"name", model.name},
               {"state", place_word(model.place)},
               {"source", model.source},
               {"visible", model.visible},
               {"digest", nullptr},
               {"bytes", model.bytes},
               {"read_bytes", model.read_bytes},
               {"references", model.references},
               {"waiting", model.waiting},
               {"uses", model.uses},
               {"idle_s", nullptr},
               {"pinned", model.pinned},
               {"configured", model.configured},
               {"trouble", nullptr}};
  if (!model.digest.empty()) json["digest"] = model.digest;
  if (model.idle) json["idle_s"] = static_cast<double>(model.idle->count()) / 1000;
  if (model.trouble) json["trouble"] = model.trouble->text;
  return json;
}

Json json_of(const StoreTenant& tenant) {
  Json json = {{"budget", tenant.budget}, {"used", tenant.used}, {"evicting", tenant.evicting}};
  if (!tenant.name.empty()) json["tenant"] = tenant.name;
  return json;
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

std::string ago(const StoredModel& model) {
  if (!model.idle) return "-";
  if (model.references > 0) return "now";
  const auto s = model.idle->count() / 1000;
  if (s < 120) return fmt::format("{} s ago", s);
  if (s < 7200) return fmt::format("{} min ago", s / 60);
  return s < 172800 ? fmt::format("{} h ago", s / 3600) : fmt::format("{} days ago", s / 86400);
}

std::string room_text(const StoreTenant& room) {
  std::string text = fmt::format("{} of {} are used", size_text(room.used), size_text(room.budget));
  if (room.evicting > 0)
    text += fmt::format(", {} of them until they are freed", size_text(room.evicting));
  return text;
}

std::string disk_text(const StoreDisk& disk) {
  return fmt::format("{} in {} of {}{}", counted(disk.images, "image"), size_text(disk.used),
                     size_text(disk.budget),
                     disk.answers ? "" : ", as it was before the disk ceased to answer");
}

Json json_of(const std::optional<StoreDisk>& disk) {
  if (!disk) return nullptr;
  return {{"budget", disk->budget},
          {"used", disk->used},
          {"images", disk->images},
          {"answers", disk->answers}};
}

std::string text_of(const StoreView& store, const std::vector<GpuForModels>& gpus,
                    const std::string& tenant) {
  Table table({{"NAME"},
               {"TENANT"},
               {"STATE"},
               {"SIZE", true},
               {"USERS", true, 0, 1},
               {"USED", false, 0, 2},
               {"FROM"}});
  for (const StoredModel& model : store.models)
    if (tenant.empty() || model.tenant == tenant)
      table.add({model.name, model.tenant, state_text(model),
                 model.bytes > 0 ? size_text(model.bytes) : "-",
                 std::to_string(model.references + model.waiting), ago(model),
                 one_line(model.source)});
  std::string text = fmt::format(
      "{}\nmemory for models: {}; {} with {}\n"
      "loaded: {} from their sources, {} from the disk, {} from other nodes\n",
      table.text(terminal_width(STDOUT_FILENO)), room_text(store.all),
      counted(store.jobs, "socket"), counted(store.programs, "program"), store.loads,
      store.disk_loads, store.peer_loads);
  if (store.disk) text += fmt::format("disk for models: {}\n", disk_text(*store.disk));
  for (const StoreTenant& each : store.tenants)
    if (tenant.empty() || each.name == tenant)
      text += fmt::format("tenant {}: {}\n", each.name, room_text(each));
  return text + gpu_text(gpus_of(gpus, tenant), false);
}

/// What is used most comes first.
void sort_by_use(std::vector<StoredModel>& models) {
  const auto rank = [](const StoredModel& model) {
    return std::tuple(model.references + model.waiting, model.bytes, model.uses);
  };
  std::stable_sort(models.begin(), models.end(),
                   [&](const auto& a, const auto& b) { return rank(a) > rank(b); });
}

Result<std::string> top_text(const ModelOptions& options) {
  auto daemon = connect_to_store(options.run);
  if (!daemon) return daemon.error();
  auto store = read_store(*daemon);
  if (!store) return store.error();
  const auto gpus = read_gpus(*daemon);
  if (!gpus) return gpus.error();
  sort_by_use(store->models);
  return text_of(*store, *gpus, options.tenant);
}

void print_model(const StoredModel& model, const std::string& holders,
                 const std::optional<StoreDisk>& disk, const std::vector<GpuForModels>& gpus) {
  const auto line = [](const char* key, const std::string& value) {
    if (!value.empty()) fmt::print("{:<11}{}\n", key, one_line(value));
  };
  line("model", model.name);
  line("tenant", model.tenant);
  line("from", model.source);
  line("visible", model.visible + (model.more_visible ? ", ..." : ""));
  line("state", state_text(model));
  line("trouble", model.trouble ? model.trouble->text : "");
  line("size", model.bytes > 0 ? size_text(model.bytes) : "");
  line("digest", model.digest);
  line("opened", counted(model.uses, "time"));
  line("used", ago(model));
  line("users", holders);
  line("disk", disk ? disk_text(*disk) : "");
  for (const std::string& copy : copy_texts(gpus, model.tenant, model.name)) line("on GPU", copy);
}

}  // namespace

int model_list(const ModelOptions& options) {
  if (const std::string socket = job_socket(options.run); !socket.empty())
    return job_model_list(options, socket);
  auto daemon = connect_to_store(options.run);
  if (!daemon) return model_failed("list", daemon.error());
  const auto store = read_store(*daemon);
  if (!store) return model_failed("list", store.error());
  const auto gpus = read_gpus(*daemon);
  if (!gpus) return model_failed("list", gpus.error());
  if (!options.json) {
    fmt::print("{}", text_of(*store, *gpus, options.tenant));
    return kOk;
  }
  Json json = json_of(store->all);
  json.update(
      {{"jobs", store->jobs},
       {"programs", store->programs},
       {"loads",
        {{"source", store->loads}, {"disk", store->disk_loads}, {"node", store->peer_loads}}}});
  json["disk"] = json_of(store->disk);
  json["tenants"] = Json::array();
  json["models"] = Json::array();
  for (const StoreTenant& tenant : store->tenants)
    if (options.tenant.empty() || tenant.name == options.tenant)
      json["tenants"].push_back(json_of(tenant));
  for (const StoredModel& model : store->models)
    if (options.tenant.empty() || model.tenant == options.tenant)
      json["models"].push_back(json_of(model));
  json["gpus"] = gpu_json(gpus_of(*gpus, options.tenant), false);
  print_json(json);
  return kOk;
}

int model_top(const ModelOptions& options) {
  const auto first = top_text(options);
  if (!first) return model_failed("top", first.error());
  if (options.once) {
    fmt::print("{}", *first);
    return kOk;
  }
  // A terminal shows each table in the place of the one before.
  const char* before = isatty(STDOUT_FILENO) == 1 ? "\033[H\033[2J" : "";
  for (auto text = first;; text = top_text(options)) {
    // bellows-modeld may be starting again.
    fmt::print("{}{}\n", before, text ? *text : one_line(text.error().text) + "\n");
    if (std::fflush(stdout) != 0) return kFailed;
    std::this_thread::sleep_for(std::chrono::seconds(options.interval));
  }
}

int model_show(const ModelOptions& options) {
  if (const std::string socket = job_socket(options.run); !socket.empty())
    return job_model_show(options, socket);
  auto daemon = connect_to_store(options.run);
  if (!daemon) return model_failed("show", daemon.error());
  const auto model = find_model(*daemon, options.tenant, options.name);
  if (!model) return model_failed("show", model.error());
  const auto disk = read_disk(*daemon);
  if (!disk) return model_failed("show", disk.error());
  const auto gpus = read_gpus(*daemon);
  if (!gpus) return model_failed("show", gpus.error());
  if (!options.json) {
    print_model(*model, holders_text(*daemon, *model), *disk, *gpus);
    return kOk;
  }
  const auto holders = read_holders(*daemon, model->tenant, model->name);
  if (!holders) return model_failed("show", holders.error());
  Json json = json_of(*model);
  json["disk"] = json_of(*disk);
  json["gpus"] = copies_json(*gpus, model->tenant, model->name);
  json["holders"] = Json::array();
  for (const ModelHolder& holder : *holders)
    json["holders"].push_back({{"job", holder.job},
                               {"tenant", holder.tenant},
                               {"uid", holder.uid},
                               {"count", holder.count}});
  print_json(json);
  return kOk;
}

}  // namespace bellows
