// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/store_metrics.h"

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bellows {
namespace {

/// Labels need no escapes here: tenants are plain words.
class MetricsText {
 public:
  void begin(const char* name, const char* kind, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP bellows_modeld_{} {}\n# TYPE bellows_modeld_{} {}\n", name, help,
                         name, kind);
  }
  void add(std::uint64_t value, const std::string& labels = "") {
    text_ += fmt::format("bellows_modeld_{}{} {}\n", name_,
                         labels.empty() ? "" : "{" + labels + "}", value);
  }
  void add_counter(const char* name, const char* help, std::uint64_t value) {
    begin(name, "counter", help);
    add(value);
  }
  void add_gauge(const char* name, const char* help, std::uint64_t value) {
    begin(name, "gauge", help);
    add(value);
  }
  const std::string& text() const { return text_; }

 private:
  const char* name_ = "";
  std::string text_;
};

/// A tenant's sizes have names of their own, so that a sum over one name counts nothing twice.
struct Size {
  const char* name;
  const char* of_tenant;
  const char* help;
  std::uint64_t BookRoom::*value;
};

constexpr Size kSizes[] = {
    {"budget_bytes", "tenant_budget_bytes", "Bytes that models may take in a tier",
     &BookRoom::budget},
    {"used_bytes", "tenant_used_bytes",
     "Bytes that models take, with those that are evicted and not yet freed", &BookRoom::used},
    {"evicting_bytes", "tenant_evicting_bytes",
     "Bytes of models that are evicted and not yet freed", &BookRoom::evicting}};

/// A tier's sizes, of all and of each tenant.
struct TierRoom {
  const char* tier;
  BookRoom all;
  std::map<TenantId, BookRoom> of;
};

TierRoom memory_room(const ModelRegistry& registry, const ModelBook& book) {
  TierRoom room{"memory", book.room(), {}};
  std::string name;
  for (auto tenant = registry.tenant_after(name); tenant; tenant = registry.tenant_after(name)) {
    name = registry.tenant_name(*tenant);
    room.of[*tenant] = book.room_of(*tenant);
  }
  return room;
}

void add(BookRoom& sum, const BookRoom& room) {
  sum.budget += room.budget;
  sum.used += room.used;
  sum.evicting += room.evicting;
}

/// Of the GPUs that jobs have. What ended jobs have not freed yet is no tenant's.
TierRoom gpu_room(const GpuTier& gpus, const ClientDesk& clients) {
  TierRoom room{"gpu", {}, {}};
  for (const std::string& name : clients.jobs()) {
    const ServedJob& job = *clients.find_job(name);
    for (const std::uint64_t gpu : job.gpus) {
      add(room.all, gpus.room({name, gpu}));
      add(room.of[job.tenant], gpus.room({name, gpu}));
    }
  }
  for (const auto& [place, bytes] : gpus.left_behind()) add(room.all, {0, bytes, bytes});
  return room;
}

void add_sizes(MetricsText& out, const ModelRegistry& registry,
               const std::vector<TierRoom>& tiers) {
  for (const Size& size : kSizes) {
    out.begin(size.name, "gauge", size.help);
    for (const TierRoom& tier : tiers)
      out.add(tier.all.*size.value, fmt::format("tier=\"{}\"", tier.tier));
    out.begin(size.of_tenant, "gauge", size.help);
    for (const TierRoom& tier : tiers)
      for (const auto& [tenant, room] : tier.of)
        out.add(room.*size.value,
                fmt::format("tier=\"{}\",tenant=\"{}\"", tier.tier, registry.tenant_name(tenant)));
  }
}

/// Copies by the tenants of jobs, and by whether they are on their way, there, or lent.
void add_copies(MetricsText& out, const ModelRegistry& registry, const GpuTier& gpus,
                const ClientDesk& clients) {
  struct Copies {
    std::uint64_t loading = 0, idle = 0, lent = 0;
  };
  std::map<TenantId, Copies> copies;
  for (const std::string& name : clients.jobs()) {
    const ServedJob& job = *clients.find_job(name);
    for (const std::uint64_t gpu : job.gpus) {
      Copies& of = copies[job.tenant];
      for (const GpuModel& model : gpus.models_on({name, gpu})) {
        if (model.state == ModelBook::State::absent) continue;
        ++(model.state != ModelBook::State::resident ? of.loading
           : model.references > 0                    ? of.lent
                                                     : of.idle);
      }
    }
  }
  out.begin("gpu_copies", "gauge", "Copies of models on GPUs, by the tenants of their jobs");
  for (const auto& [tenant, of] : copies)
    for (const auto& [state, count] :
         {std::pair("loading", of.loading), std::pair("idle", of.idle), std::pair("lent", of.lent)})
      out.add(count,
              fmt::format("state=\"{}\",tenant=\"{}\"", state, registry.tenant_name(tenant)));
}

struct GpuCount {
  const char* name;
  const char* help;
  std::uint64_t GpuCounts::*value;
};

constexpr GpuCount kGpuCounts[] = {
    {"gpu_loads_total", "Models that were copied to a GPU, by the tenants of jobs",
     &GpuCounts::loads},
    {"gpu_load_failures_total", "Copies to a GPU that failed, except for lack of room",
     &GpuCounts::failed},
    {"gpu_room_refusals_total", "Copies to a GPU that were refused for lack of room",
     &GpuCounts::no_room}};

void add_gpus(MetricsText& out, const ModelRegistry& registry, const GpuTier& gpus,
              const ClientDesk& clients) {
  for (const GpuCount& count : kGpuCounts) {
    out.begin(count.name, "counter", count.help);
    for (const auto& [tenant, counts] : gpus.counts())
      out.add(counts.*count.value, fmt::format("tenant=\"{}\"", registry.tenant_name(tenant)));
  }
  add_copies(out, registry, gpus, clients);
}

void add_models(MetricsText& out, const ModelRegistry& registry, const ModelBook& book) {
  std::uint64_t absent = 0, loading = 0, resident = 0;
  for (const ModelId id : registry.all()) {
    const auto state = book.state(id);
    ++(state == ModelBook::State::absent     ? absent
       : state == ModelBook::State::resident ? resident
                                             : loading);
  }
  out.begin("models", "gauge", "Models that there are, by where they are");
  out.add(absent, "state=\"absent\"");
  out.add(loading, "state=\"loading\"");
  out.add(resident, "state=\"memory\"");
}

}  // namespace

std::string metrics_text(const ModelRegistry& registry, const MemoryTier& tier, const GpuTier* gpus,
                         const ClientDesk& clients) {
  MetricsText out;
  const TierCounts& counts = tier.counts();
  out.begin("loads_total", "counter", "Models that were loaded, by where they were read");
  out.add(counts.loads, "from=\"source\"");
  out.add(counts.disk_loads, "from=\"disk\"");
  out.add(counts.peer_loads, "from=\"node\"");
  out.add_counter("load_failures_total", "Loads that failed, except for lack of room",
                  counts.failed);
  out.add_counter("room_refusals_total", "Loads that were refused for lack of room",
                  counts.no_room);
  out.add_counter("opens_total", "Opens of models that exist", counts.opens);
  out.add_counter("hits_total", "Opens of models that were in memory", counts.hits);
  out.add_counter("evictions_total", "Models whose memory was given up", counts.evictions);
  std::vector<TierRoom> tiers = {memory_room(registry, tier.book())};
  if (gpus) tiers.push_back(gpu_room(*gpus, clients));
  add_sizes(out, registry, tiers);
  add_models(out, registry, tier.book());
  if (gpus) add_gpus(out, registry, *gpus, clients);
  out.add_gauge("sockets", "Sockets of jobs that are served", clients.jobs().size());
  out.add_gauge("programs", "Programs that are connected", clients.clients());
  return out.text();
}

}  // namespace bellows
