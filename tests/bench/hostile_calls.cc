// SPDX-License-Identifier: Apache-2.0
// The slowest call of job_submit and job_modify over requests that users could send to hold
// slurmctld up: hostile_calls PLUGIN POLICY ACCOUNT ROUNDS. Each field at its bound with the text
// that is most work, mixtures of these, and what is as large as a message may be. Writes a line of
// JSON for each round: the milliseconds of the slowest request, of the processor, and its name.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "slurm/gres.h"
#include "tests/bench/plugin_host.h"

using bellows::HostJob;
using bellows::PluginHost;

namespace {

constexpr std::size_t kRepeats = 3;
constexpr std::size_t kMixtures = 200;
constexpr std::size_t kMostMessage = std::size_t{1} << 30;
const std::string kOption = "_SLURM_SPANK_OPTION_bellows_";

std::string repeated(const std::string& text, std::size_t bytes) {
  std::string all;
  while (all.size() + text.size() <= bytes) all += text;
  return all;
}

/// "1,3,5,...": as many numbers as fit.
std::string numbers(std::size_t bytes, unsigned step) {
  std::string all = "1";
  for (unsigned n = 1 + step; all.size() + 8 < bytes; n += step) all += "," + std::to_string(n);
  return all;
}

using Entries = std::vector<std::string>;

/// A request in the making; the texts are copied into Slurm's heap at the end.
struct Request {
  std::vector<std::pair<char * job_desc_msg_t::*, std::string>> texts;
  Entries spank;
  Entries environment;
  std::size_t spank_entries = 0;  ///< more of them than could be copied
  std::size_t variables = 0;
  bool with_bellows = false;
};

struct Trait {
  std::string name;
  std::function<void(Request&)> add;
};

using D = job_desc_msg_t;

void add_texts(std::vector<Trait>& traits) {
  const std::pair<const char*, char * D::*> fields[] = {
      {"account", &D::account},
      {"partition", &D::partition},
      {"qos", &D::qos},
      {"reservation", &D::reservation},
      {"tres_per_job", &D::tres_per_job},
      {"tres_per_node", &D::tres_per_node},
      {"tres_per_task", &D::tres_per_task},
      {"tres_per_socket", &D::tres_per_socket},
      {"cpus_per_tres", &D::cpus_per_tres},
      {"mem_per_tres", &D::mem_per_tres},
      {"features", &D::features},
      {"comment", &D::comment},
  };
  for (const auto& [name, field] : fields)
    for (const char* piece :
         {",", "a,b,", "gpu:0,", "gpu:1,", BELLOWS_GRES "gpu:a:1,", "m,", "(&", "x"})
      traits.push_back({std::string(name) + "=" + piece + "...", [=, f = field](Request& request) {
                          request.texts.emplace_back(f, repeated(piece, 1024));
                        }});
}

void add_options(std::vector<Trait>& traits) {
  const std::size_t most = 64 * 1024 - 64;
  const std::pair<const char*, std::string> values[] = {
      {"framework", repeated("x", most)},
      {"framework", repeated(":", most)},
      {"framework", "framework7:" + repeated("1.", most)},
      {"gpus_range", numbers(most, 1)},
      {"gpus_range", numbers(most, 13)},
      {"gpus_range", repeated("1,", most)},
      {"gpus_range", "1-1048576"},
      {"gpus_range", "1-1048576:2"},
      {"batch_range", "1-1048576"},
      {"batch_range", repeated("1-", most)},
      {"job_class", repeated("x", most)},
      {"container", repeated("mount:/a:/b,", most)},
      {"container", repeated("mount:/a/../b:/b,", most)},
      {"container", repeated("env:A,", most)},
      {"container", "image:/" + repeated("a/", most)},
      {"container", repeated(",", most)},
  };
  for (const auto& [option, value] : values)
    traits.push_back({std::string(option) + "=" + value.substr(0, 24) + "...",
                      [entry = kOption + option + "=" + value](Request& request) {
                        request.with_bellows = true;
                        request.spank.push_back(entry);
                      }});
}

void add_lists(std::vector<Trait>& traits) {
  traits.push_back({"250 doubled options", [](Request& request) {
                      for (int i = 0; i < 250; ++i)
                        request.spank.push_back(kOption + std::to_string(i) + repeated("x", 800));
                    }});
  traits.push_back({"250 forged variables", [](Request& request) {
                      for (int i = 0; i < 250; ++i)
                        request.spank.push_back("BELLOWS_" + repeated("x", 800));
                    }});
  traits.push_back({"16384 variables", [](Request& request) {
                      for (int i = 0; i < 16384; ++i)
                        request.environment.push_back("BELLOWS_CONTRACT=" + std::to_string(i) +
                                                      repeated("x", 100));
                    }});
}

/// What is refused by its size alone, however large it is.
void add_huge(std::vector<Trait>& traits) {
  for (char* D::*field : {&D::partition, &D::req_nodes, &D::tres_per_node})
    traits.push_back({"a text as large as a message", [=](Request& request) {
                        request.texts.emplace_back(field, std::string(kMostMessage, ','));
                      }});
  traits.push_back(
      {"100 million options", [](Request& request) { request.spank_entries = 100'000'000; }});
  traits.push_back(
      {"100 million variables", [](Request& request) { request.variables = 100'000'000; }});
}

/// As many entries as a message could hold: all are one text, which only counts as long as nobody
/// frees them.
struct Borrowed {
  char text[8] = "A=b";
  std::vector<char*> entries;

  char** of(std::size_t count) {
    entries.assign(count, text);
    return entries.data();
  }
};

HostJob make(const Request& request, const std::string& account) {
  HostJob job = request.with_bellows ? bellows::sample_job(account) : bellows::plain_job();
  for (const auto& [field, text] : request.texts) bellows::put(job.get()->*field, text);
  if (!request.spank.empty())
    bellows::put(job->spank_job_env, job->spank_job_env_size, request.spank);
  if (!request.environment.empty())
    bellows::put(job->environment, job->env_size, request.environment);
  return job;
}

double cpu_ms() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// The least of some calls: what is more is the machine's.
double time_of(const PluginHost& host, const Request& request, const std::string& account,
               bool update) {
  double least = 1e9;
  for (std::size_t i = 0; i < kRepeats; ++i) {
    HostJob job = make(request, account);
    Borrowed borrowed;
    if (request.spank_entries > 0) {
      job->spank_job_env = borrowed.of(request.spank_entries);
      job->spank_job_env_size = static_cast<std::uint32_t>(request.spank_entries);
    }
    if (request.variables > 0) {
      job->environment = borrowed.of(request.variables);
      job->env_size = static_cast<std::uint32_t>(request.variables);
    }
    char* message = nullptr;
    const double begin = cpu_ms();
    if (update)
      host.modify(*job, account);
    else
      host.submit(*job, &message);
    least = std::min(least, cpu_ms() - begin);
    if (message) bellows::release(message);
    if (request.spank_entries > 0) job->spank_job_env = nullptr, job->spank_job_env_size = 0;
    if (request.variables > 0) job->environment = nullptr, job->env_size = 0;
  }
  return least;
}

struct Slowest {
  double ms = 0;
  std::string name;

  void take(double found, const std::string& of) {
    if (found > ms) *this = {found, of};
  }
};

void measure(const PluginHost& host, const std::string& account, const std::vector<Trait>& traits,
             bool huge, unsigned seed) {
  Slowest slowest;
  const auto time = [&](const Request& request, const std::string& name) {
    for (bool update : {false, true})
      slowest.take(time_of(host, request, account, update),
                   (update ? "update " : "submission ") + name);
  };
  for (const Trait& trait : traits) {
    Request request;
    trait.add(request);
    time(request, trait.name);
    if (request.with_bellows) continue;
    request.with_bellows = true;
    time(request, trait.name + " of a job of Bellows");
  }
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < kMixtures; ++i) {
    Request request;
    std::string name;
    for (int n = 0; n < 4; ++n) {
      const Trait& trait = traits[random() % traits.size()];
      trait.add(request);
      name += (name.empty() ? "" : " and ") + trait.name;
    }
    time(request, name);
  }
  std::vector<Trait> large;
  if (huge) add_huge(large);
  for (const Trait& trait : large) {
    Request request;
    trait.add(request);
    time(request, trait.name);
  }
  std::replace(slowest.name.begin(), slowest.name.end(), '"', '\'');
  std::printf("{\"ms\": %.4f, \"name\": \"%s\"}\n", slowest.ms, slowest.name.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: hostile_calls PLUGIN POLICY ACCOUNT ROUNDS\n");
    return 2;
  }
  const PluginHost host(argv[1], argv[2]);
  if (host.init() != SLURM_SUCCESS) return 1;
  std::vector<Trait> traits;
  add_texts(traits);
  add_options(traits);
  add_lists(traits);
  for (int round = 0; round < std::atoi(argv[4]); ++round)
    measure(host, argv[3], traits, round == 0, static_cast<unsigned>(round));
  return host.fini() == SLURM_SUCCESS ? 0 : 1;
}
