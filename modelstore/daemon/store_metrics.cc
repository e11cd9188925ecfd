// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/store_metrics.h"

#include <fmt/core.h>

#include <cstdint>
#include <optional>

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

void add_sizes(MetricsText& out, const ModelRegistry& registry, const ModelBook& book) {
  for (const Size& size : kSizes) {
    out.begin(size.name, "gauge", size.help);
    out.add(book.room().*size.value, "tier=\"memory\"");
    out.begin(size.of_tenant, "gauge", size.help);
    std::string name;
    for (auto tenant = registry.tenant_after(name); tenant; tenant = registry.tenant_after(name)) {
      name = registry.tenant_name(*tenant);
      out.add(book.room_of(*tenant).*size.value,
              fmt::format("tier=\"memory\",tenant=\"{}\"", name));
    }
  }
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

std::string metrics_text(const ModelRegistry& registry, const MemoryTier& tier,
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
  add_sizes(out, registry, tier.book());
  add_models(out, registry, tier.book());
  out.add_gauge("sockets", "Sockets of jobs that are served", clients.jobs().size());
  out.add_gauge("programs", "Programs that are connected", clients.clients());
  return out.text();
}

}  // namespace bellows
