// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "examples/digits/mpi_comm.h"

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
  void operator()(float* memory) const { cudaFree(memory); }
};

// Floats on the GPU, for as many as were ever asked for.
class DeviceBuffer {
 public:
  float* get(std::size_t floats) {
    if (floats > size_) {
      memory_.reset();
      size_ = 0;
      void* memory = nullptr;
      check(cudaMalloc(&memory, floats * sizeof(float)));
      memory_.reset(static_cast<float*>(memory));
      size_ = floats;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<float, FreeDevice> memory_;
  std::size_t size_ = 0;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }

  void to_device(float* device, std::span<const float> host) const {
    check(cudaMemcpyAsync(device, host.data(), host.size_bytes(), cudaMemcpyHostToDevice, stream_));
  }

  void to_host(std::span<float> host, const float* device) const {
    check(cudaMemcpyAsync(host.data(), device, host.size_bytes(), cudaMemcpyDeviceToHost, stream_));
    check(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// The data goes from GPU to GPU; what is small and rare stays with MPI.
class NcclComm : public MpiComm {
 public:
  explicit NcclComm(const ncclUniqueId& id) { check(ncclCommInitRank(&nccl_, size(), id, rank())); }
  ~NcclComm() override { ncclCommDestroy(nccl_); }

  void exchange(std::span<const float> send, std::span<const int> send_counts,
                std::span<float> receive, std::span<const int> receive_counts) override {
    float* out = send_.get(send.size());
    float* in = receive_.get(receive.size());
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
    float* device = send_.get(values.size());
    const std::vector<int> starts = offsets(counts);
    stream_.to_device(device + starts[rank()],
                      values.subspan(static_cast<std::size_t>(starts[rank()]),
                                     static_cast<std::size_t>(counts[rank()])));
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

  const char* name() const override { return "NCCL"; }

 private:
  ncclComm_t nccl_ = nullptr;
  Stream stream_;
  DeviceBuffer send_;
  DeviceBuffer receive_;
};

using BusId = std::array<char, 32>;

// The ranks on this node.
class NodeRanks {
 public:
  NodeRanks() {
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm_);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~NodeRanks() { MPI_Comm_free(&comm_); }
  NodeRanks(const NodeRanks&) = delete;
  NodeRanks& operator=(const NodeRanks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  std::vector<BusId> gather(const BusId& mine) const {
    std::vector<BusId> all(static_cast<std::size_t>(size_));
    MPI_Allgather(mine.data(), sizeof(BusId), MPI_CHAR, all.data(), sizeof(BusId), MPI_CHAR, comm_);
    return all;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
};

// Chooses this rank's GPU. Slurm shows a rank either all GPUs of the job on this node or its own
// alone, so the number of a GPU says nothing: its place on the bus does.
bool choose_gpu() {
  const NodeRanks node;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  const int device = count >= node.size() ? node.rank() : 0;
  BusId mine{};
  if (count > 0 && (cudaSetDevice(device) != cudaSuccess ||
                    cudaDeviceGetPCIBusId(mine.data(), sizeof(BusId), device) != cudaSuccess)) {
    mine = {};
  }
  const std::vector<BusId> all = node.gather(mine);
  return mine[0] != '\0' && std::count(all.begin(), all.end(), mine) == 1;
}

}  // namespace

std::unique_ptr<Comm> make_nccl_comm() {
  int usable = choose_gpu() ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (usable == 0) return nullptr;
  ncclUniqueId id{};
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) check(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  return std::make_unique<NcclComm>(id);
}

}  // namespace digits
