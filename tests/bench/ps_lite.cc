// SPDX-License-Identifier: Apache-2.0
// An update of all parameters by way of ps-lite (github.com/dmlc/ps-lite): a gradient pushed and
// applied, and the new weights pulled, in one request. Prints the microseconds of each, one a line,
// of the first worker.
//
//   ps_lite KIB COUNT     with the variables DMLC_ that ps-lite takes its roles from
//
// It is built with PS_LITE, a folder with ps-lite's source and build/libps.a, by
// parts/paramserver_peers.py.
#include <cstdio>
#include <cstdlib>

#include "ps/ps.h"
#include "tests/bench/timed.h"

namespace {

constexpr int kWarm = 8;
constexpr ps::Key kOnly = 1;

/// Plain SGD, in place: ps-lite's server handles one request after another.
void update(const ps::KVMeta& meta, const ps::KVPairs<float>& gradient, ps::KVServer<float>* server,
            ps::SArray<float>& weights) {
  ps::KVPairs<float> answer;
  if (meta.push) {
    if (weights.empty()) weights.resize(gradient.vals.size(), 0);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.01F * gradient.vals[i];
  }
  if (meta.pull) {
    answer.keys = gradient.keys;
    answer.vals = weights;
    answer.lens.push_back(static_cast<int>(weights.size()));
  }
  server->Response(meta, answer);
}

void work(std::size_t floats, int count) {
  ps::KVWorker<float> worker(0, 0);
  const ps::SArray<ps::Key> keys(1, kOnly);
  const ps::SArray<float> gradient(floats, 0);
  ps::SArray<int> lens(1, static_cast<int>(floats));
  ps::SArray<float> weights(floats, 0);
  for (int i = 0; i < count + kWarm; ++i) {
    const double took =
        timed([&] { worker.Wait(worker.ZPushPull(keys, gradient, &weights, &lens)); });
    if (i >= kWarm && ps::MyRank() == 0) std::printf("%.3f\n", took * 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ps::StartAsync(0);
  ps::SArray<float> weights;
  if (ps::IsServer()) {
    auto* const server = new ps::KVServer<float>(0);
    server->set_request_handle(
        [&weights](const ps::KVMeta& meta, const ps::KVPairs<float>& data,
                   ps::KVServer<float>* self) { update(meta, data, self, weights); });
    ps::RegisterExitCallback([server] { delete server; });
  }
  // Start() has this barrier before a server can say what it does with requests.
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup + ps::kServerGroup + ps::kScheduler);
  if (ps::IsWorker()) work(std::strtoull(argv[1], nullptr, 10) * 256, std::atoi(argv[2]));
  ps::Finalize(0, true);
  return 0;
}
