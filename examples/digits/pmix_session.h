// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pmix.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

/// What a program without MPI needs to bring its ranks together: who it is, and a few bytes from
/// each rank to all of them, by PMIx's put and fence. For srun --mpi=pmix. To copy as it is:
/// `pkg-config --cflags --libs pmix` is all that it needs. One object at the top of main.
class PmixSession {
 public:
  PmixSession() {
    check(PMIx_Init(&self_, nullptr, 0), "PMIx_Init");
    size_ = number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    local_rank_ = number(self_.rank, PMIX_LOCAL_RANK);
    local_size_ = number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE);
  }
  ~PmixSession() { PMIx_Finalize(nullptr, 0); }
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;

  int rank() const { return static_cast<int>(self_.rank); }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  ///< among the ranks on this node
  int local_size() const { return local_size_; }

  /// The bytes of each rank, on all of them. Collective; each call needs a name of its own.
  std::vector<std::string> gather(const std::string& name, const std::string& mine) {
    exchange(name, mine);
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(bytes_of(rank, name));
    return all;
  }

  /// Rank 0's bytes, on all ranks; what others bring is not used. Collective, as gather().
  std::string from_first(const std::string& name, const std::string& mine) {
    exchange(name, rank() == 0 ? mine : "");
    return bytes_of(0, name);
  }

  /// Ends all ranks at once: otherwise the others would wait for this one forever.
  [[noreturn]] void abort(int status) {
    PMIx_Abort(status, "a rank has failed", nullptr, 0);
    std::_Exit(status);
  }

 private:
  static void check(pmix_status_t code, const char* what) {
    if (code != PMIX_SUCCESS)
      throw std::runtime_error(std::string(what) + ": " + PMIx_Error_string(code) +
                               " (are the ranks started with srun --mpi=pmix?)");
  }

  pmix_proc_t process(pmix_rank_t rank) const {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, self_.nspace, rank);
    return proc;
  }

  // Slurm's server gives local ranks as 16 bits and sizes as 32.
  int number(pmix_rank_t rank, const char* key) const {
    const pmix_proc_t proc = process(rank);
    pmix_value_t* value = nullptr;
    check(PMIx_Get(&proc, key, nullptr, 0, &value), key);
    const int result =
        value->type == PMIX_UINT16 ? value->data.uint16 : static_cast<int>(value->data.uint32);
    PMIX_VALUE_RELEASE(value);
    return result;
  }

  void exchange(const std::string& name, const std::string& mine) {
    std::string bytes = mine;
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes.data();
    value.data.bo.size = bytes.size();
    check(PMIx_Put(PMIX_GLOBAL, name.c_str(), &value), "PMIx_Put");
    check(PMIx_Commit(), "PMIx_Commit");
    pmix_info_t collect;
    bool yes = true;
    PMIX_INFO_CONSTRUCT(&collect);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    const pmix_status_t fenced = PMIx_Fence(nullptr, 0, &collect, 1);
    PMIX_INFO_DESTRUCT(&collect);
    check(fenced, "PMIx_Fence");
  }

  std::string bytes_of(int rank, const std::string& name) const {
    const pmix_proc_t proc = process(static_cast<pmix_rank_t>(rank));
    pmix_value_t* value = nullptr;
    check(PMIx_Get(&proc, name.c_str(), nullptr, 0, &value), "PMIx_Get");
    std::string bytes(value->data.bo.bytes, value->data.bo.size);
    PMIX_VALUE_RELEASE(value);
    return bytes;
  }

  pmix_proc_t self_ = {};
  int size_ = 0;
  int local_rank_ = 0;
  int local_size_ = 0;
};

}  // namespace digits
