// SPDX-License-Identifier: Apache-2.0
// Exchange over NCCL, from GPU to GPU. PMIx brings the ranks together; there is no MPI.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "examples/digits/pmix_session.h"
#include "examples/digits/session.h"

namespace digits {
namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(code));
}

void check(ncclResult_t code) {
  if (code != ncclSuccess)
    throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(code));
}

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};

// Numbers on the GPU, for as many as were ever asked for.
class DeviceBuffer {
 public:
  template <typename Number>
  Number* get(std::size_t count) {
    const std::size_t bytes = count * sizeof(Number);
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      void* memory = nullptr;
      check(cudaMalloc(&memory, bytes));
      memory_.reset(memory);
      size_ = bytes;
    }
    return static_cast<Number*>(memory_.get());
  }

 private:
  std::unique_ptr<void, FreeDevice> memory_;
  std::size_t size_ = 0;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }

  template <typename Number>
  void to_device(Number* device, std::span<const Number> host) const {
    check(cudaMemcpyAsync(device, host.data(), host.size_bytes(), cudaMemcpyHostToDevice, stream_));
  }

  template <typename Number>
  void to_host(std::span<Number> host, const Number* device) const {
    check(cudaMemcpyAsync(host.data(), device, host.size_bytes(), cudaMemcpyDeviceToHost, stream_));
    check(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
};

class NcclComm : public Comm {
 public:
  NcclComm(int rank, int size, const ncclUniqueId& id) : Comm(rank, size) {
    check(ncclCommInitRank(&nccl_, size, id, rank));
  }
  ~NcclComm() override { ncclCommDestroy(nccl_); }

  void exchange(std::span<const float> send, std::span<const int> send_counts,
                std::span<float> receive, std::span<const int> receive_counts) override {
    auto* out = send_.get<float>(send.size());
    auto* in = receive_.get<float>(receive.size());
    const std::vector<int> out_offsets = offsets(send_counts);
    const std::vector<int> in_offsets = offsets(receive_counts);
    stream_.to_device(out, send);
    check(ncclGroupStart());
    for (int peer = 0; peer < size(); ++peer) {
      if (send_counts[peer] > 0) {
        check(ncclSend(out + out_offsets[peer], static_cast<std::size_t>(send_counts[peer]),
                       ncclFloat, peer, nccl_, stream_.get()));
      }
      if (receive_counts[peer] > 0) {
        check(ncclRecv(in + in_offsets[peer], static_cast<std::size_t>(receive_counts[peer]),
                       ncclFloat, peer, nccl_, stream_.get()));
      }
    }
    check(ncclGroupEnd());
    stream_.to_host(receive, in);
  }

  // Parts may differ in size, which ncclAllGather cannot do.
  void gather(std::span<float> values, std::span<const int> counts) override {
    auto* device = send_.get<float>(values.size());
    const std::vector<int> starts = offsets(counts);
    const auto own = values.subspan(static_cast<std::size_t>(starts[rank()]),
                                    static_cast<std::size_t>(counts[rank()]));
    stream_.to_device(device + starts[rank()], std::span<const float>(own));
    check(ncclGroupStart());
    for (int root = 0; root < size(); ++root) {
      if (counts[root] == 0) continue;
      float* part = device + starts[root];
      check(ncclBroadcast(part, part, static_cast<std::size_t>(counts[root]), ncclFloat, root,
                          nccl_, stream_.get()));
    }
    check(ncclGroupEnd());
    stream_.to_host(values, device);
  }

  // Each rank's value is in the sum.
  void settle() override { sum(0); }

  double sum(double value) override {
    auto* device = send_.get<double>(1);
    stream_.to_device(device, std::span<const double>(&value, 1));
    check(ncclAllReduce(device, device, 1, ncclDouble, ncclSum, nccl_, stream_.get()));
    stream_.to_host(std::span(&value, 1), device);
    return value;
  }

  int from_first(int value) override {
    auto* device = send_.get<int>(1);
    stream_.to_device(device, std::span<const int>(&value, 1));
    check(ncclBroadcast(device, device, 1, ncclInt, 0, nccl_, stream_.get()));
    stream_.to_host(std::span(&value, 1), device);
    return value;
  }

  const char* name() const override { return "NCCL"; }

 private:
  ncclComm_t nccl_ = nullptr;
  Stream stream_;
  DeviceBuffer send_;
  DeviceBuffer receive_;
};

// This rank's GPU as all ranks can tell it apart, "" without one. Slurm shows a rank either all
// GPUs of the job on this node or its own alone, so the number of a GPU says nothing: its place on
// the bus does.
std::string choose_gpu(const PmixSession& ranks) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  const int device = count >= ranks.local_size() ? ranks.local_rank() : 0;
  std::array<char, 32> bus{};
  std::array<char, 256> host{};
  if (count == 0 || cudaSetDevice(device) != cudaSuccess ||
      cudaDeviceGetPCIBusId(bus.data(), bus.size(), device) != cudaSuccess ||
      gethostname(host.data(), host.size() - 1) != 0)
    return "";
  return std::string(host.data()) + " " + bus.data();
}

class NcclSession : public Session {
 public:
  int rank() const override { return ranks_.rank(); }

  std::unique_ptr<Comm> make_comm() override {
    std::vector<std::string> gpus = ranks_.gather("gpu", choose_gpu(ranks_));
    std::sort(gpus.begin(), gpus.end());
    if (gpus.front().empty() || std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end())
      throw std::runtime_error("each rank needs a GPU of its own; digits over MPI needs none");
    ncclUniqueId id{};
    if (rank() == 0) check(ncclGetUniqueId(&id));
    const std::string bytes(id.internal, sizeof id.internal);
    ranks_.from_first("nccl-id", bytes).copy(id.internal, sizeof id.internal);
    return std::make_unique<NcclComm>(rank(), ranks_.size(), id);
  }

  void abort(int status) override { ranks_.abort(status); }

 private:
  PmixSession ranks_;
};

}  // namespace

std::unique_ptr<Session> Session::begin(int*, char***) { return std::make_unique<NcclSession>(); }

}  // namespace digits
