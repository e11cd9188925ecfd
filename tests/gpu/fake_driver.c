/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 whose GPUs are memory of the machine, for tests without a GPU. An allocation is a
 * memfd, which the GPU's addresses map as they are allowed to be accessed; copies of a stream
 * happen when somebody waits for it, or for an event in it, as late as real ones may.
 *
 * Compiled with FORGETS, copies lose their last byte; with GPUS, there are so many GPUs, up to
 * four; with MIG, they are divided. With MPS, a path, it fails where a server of MPS waits in that
 * folder, or in the one that the environment names.
 *
 * In the file PROGRAM.faults beside the library lines say what is wrong for that program:
 *   fail N CODE    its Nth call gives this error, counted from 1
 *   hang N         its Nth call never returns
 *   die N          its Nth call kills it
 *   limit BYTES    so much memory each GPU has, for all processes together
 *   writable 1     it page-locks no memory that is to be read only
 *   busy 1         it can't wait for its GPUs, as while a graph is captured
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef GPUS
#define GPUS 1
#endif

enum {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kIllegalAddress = 700,
  kAlreadyLocked = 712,
  kNotLocked = 713,
  kNotSupported = 801,
  kNoConnection = 805,
  kCaptures = 900,
  kMost = 256,
  kUnit = 2 << 20,
};

static const char* const kAddresses[] = {"0000:3B:00.0", "0000:86:00.0", "0000:AF:00.0",
                                         "0000:D8:00.0"};

struct location {
  int type, id;
};
struct properties {
  int type, handle_types;
  struct location location;
};
struct access {
  struct location location;
  int flags;
};

struct range {
  char* begin;
  size_t bytes, mapped;
  int fd, access;
};
struct stream;
struct event {
  void* context;
  struct stream* stream;
  uint64_t number; /* complete when so many copies of the stream are */
};
struct copy {
  void* to;
  const void* from;
  size_t bytes;
  struct event after; /* of another stream; then it copies nothing */
  struct copy* next;
};
struct stream {
  void* context;
  struct copy* first;
  uint64_t asked, done;
};
struct piece {
  char* begin;
  size_t bytes;
  unsigned flags;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int calls;
static int allocations[kMost];
static struct range ranges[kMost];
static struct piece locked[kMost];
static struct stream default_stream;
static _Thread_local int contexts;
static _Thread_local void* stack[16];

static const char* folder(void) {
  static char path[1024];
  Dl_info info;
  if (!path[0] && dladdr((void*)&folder, &info)) {
    snprintf(path, sizeof path, "%s", info.dli_fname);
    char* slash = strrchr(path, '/');
    if (slash) *slash = 0;
  }
  return path;
}

/* Of this program's faults, the one that is called so. */
static long long fault(const char* wanted, long long number) {
  char path[1200], line[128], word[16];
  long long value = 0, more = 0, found = 0;
  snprintf(path, sizeof path, "%s/%s.faults", folder(), program_invocation_short_name);
  FILE* file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file)) {
    more = 0;
    if (sscanf(line, "%15s %lld %lld", word, &value, &more) < 2 || strcmp(word, wanted) != 0)
      continue;
    if (number == 0) found = value;
    if (number == value) found = more ? more : 1;
  }
  if (file) fclose(file);
  return found;
}

/* Counts a call, and gives the error that it is to have. */
static int enter(void) {
  const int number = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  if (fault("die", number)) kill(getpid(), SIGKILL);
  while (fault("hang", number)) pause();
  return (int)fault("fail", number);
}

#define ENTER                 \
  do {                        \
    const int code = enter(); \
    if (code) return code;    \
  } while (0)

/* Memory of a GPU, which is gone with its last descriptor and mapping. Under a limit it is a file
 * beside the library, which is locked as long: so others, who may not look into its holders, can
 * count it. */
static int make_memory(int device, int counted) {
  char name[1200];
  if (!counted) {
    const char* slash = strrchr(folder(), '/');
    snprintf(name, sizeof name, "gpu%d.%s", device, slash ? slash + 1 : "");
    return memfd_create(name, MFD_CLOEXEC);
  }
  snprintf(name, sizeof name, "%s/gpu%d.XXXXXX", folder(), device);
  const int fd = mkostemp(name, O_CLOEXEC);
  if (fd >= 0) flock(fd, LOCK_EX);
  return fd;
}

/* What all processes have of a GPU, under a limit. */
static long long used(int device) {
  char begin[16];
  long long bytes = 0;
  const int length = snprintf(begin, sizeof begin, "gpu%d.", device);
  DIR* files = opendir(folder());
  for (struct dirent* entry; files && (entry = readdir(files));) {
    struct stat s;
    if (strncmp(entry->d_name, begin, (size_t)length) != 0) continue;
    const int fd = openat(dirfd(files), entry->d_name, O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
      unlinkat(dirfd(files), entry->d_name, 0);
    else if (fstat(fd, &s) == 0)
      bytes += s.st_size;
    close(fd);
  }
  if (files) closedir(files);
  return bytes;
}

static struct range* range_of(uint64_t memory) {
  for (int i = 0; i < kMost; ++i)
    if (ranges[i].begin == (char*)(uintptr_t)memory) return &ranges[i];
  return NULL;
}

/* Whether the GPU may do this there. What is not reserved is ordinary memory. */
static int may_access(const void* at, size_t bytes, int access) {
  const char* begin = at;
  for (int i = 0; i < kMost; ++i) {
    const struct range* r = &ranges[i];
    if (!r->begin || begin < r->begin || begin >= r->begin + r->bytes) continue;
    return (r->access & access) == access && bytes <= r->mapped - (size_t)(begin - r->begin);
  }
  return 1;
}

static int copy(void* to, const void* from, size_t bytes) {
#ifdef FORGETS
  --bytes;
#endif
  if (!may_access(to, bytes, 3) || !may_access(from, bytes, 1)) return kIllegalAddress;
  memcpy(to, from, bytes);
  return 0;
}

static void* current_context(void) { return contexts > 0 ? stack[contexts - 1] : NULL; }

static struct stream* stream_of(void* stream) { return stream ? stream : &default_stream; }

static int add_to(struct stream* stream, struct copy what) {
  struct copy* last = calloc(1, sizeof *last);
  if (!last || contexts == 0) return kInvalidContext;
  *last = what;
  struct copy** end = &stream->first;
  while (*end) end = &(*end)->next;
  *end = last;
  ++stream->asked;
  return 0;
}

static int copy_later(void* to, const void* from, size_t bytes, void* stream) {
  ENTER;
  return add_to(stream_of(stream), (struct copy){.to = to, .from = from, .bytes = bytes});
}

/* Completes so many of its copies, counted from the first one ever. */
static int complete(struct stream* stream, uint64_t number) {
  int code = 0;
  while (stream->done < number) {
    struct copy* first = stream->first;
    stream->first = first->next;
    ++stream->done;
    if (first->after.stream)
      code = complete(first->after.stream, first->after.number);
    else if (!code)
      code = copy(first->to, first->from, first->bytes);
    free(first);
  }
  return code;
}

int cuInit(unsigned flags) {
  ENTER;
#ifdef MPS
  char server[1200];
  const char* pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
  snprintf(server, sizeof server, "%s/control", pipes ? pipes : MPS);
  if (access(server, F_OK) == 0) return kNoConnection;
#endif
  return (int)flags;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_TEST";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = GPUS;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  ENTER;
  *device = index;
  return index < 0 || index >= GPUS ? kInvalidDevice : 0;
}
int cuDeviceGetName(char* name, int bytes, int device) {
  snprintf(name, (size_t)bytes, "no real GPU %d", device);
  return 0;
}
int cuDeviceGetByPCIBusId(int* device, const char* address) {
  ENTER;
  for (*device = 0; *device < GPUS; ++*device)
    if (strcasecmp(address, kAddresses[*device]) == 0) return 0;
  return kInvalidDevice;
}
int cuDeviceGetPCIBusId(char* address, int bytes, int device) {
  ENTER;
  snprintf(address, (size_t)bytes, "%s", kAddresses[device]);
  return 0;
}
int cuDeviceGetUuid(void* out, int device) {
  memset(out, device, 16);
  return 0;
}
int cuDeviceGetUuid_v2(void* out, int device) {
#ifdef MIG
  device += GPUS;
#endif
  memset(out, device, 16);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)attribute, (void)device;
  ENTER;
  *value = 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER;
  *context = (void*)&kAddresses[device];
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return 0;
}
int cuCtxSetCurrent(void* context) { return context == NULL; }
int cuCtxPushCurrent_v2(void* context) {
  ENTER;
  if (!context || contexts == (int)(sizeof stack / sizeof *stack)) return kInvalidContext;
  stack[contexts++] = context;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = NULL;
  return contexts-- > 0 ? 0 : kInvalidContext;
}
int cuCtxSynchronize(void) {
  if (contexts <= 0) return kInvalidContext;
  return fault("busy", 0) ? kCaptures : 0;
}

int cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  *memory = (uint64_t)(uintptr_t)calloc(1, bytes);
  return *memory == 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return copy((void*)(uintptr_t)to, from, bytes);
}
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  return copy((void*)(uintptr_t)to, (const void*)(uintptr_t)from, bytes);
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return copy(to, (const void*)(uintptr_t)from, bytes);
}

int cuMemGetInfo_v2(size_t* free_bytes, size_t* all) {
  ENTER;
  const long long limit = fault("limit", 0);
  *all = limit ? (size_t)limit : (size_t)1 << 30;
  *free_bytes = *all - (size_t)used(0);
  return 0;
}
int cuMemGetAllocationGranularity(size_t* unit, const struct properties* wanted, int option) {
  (void)wanted, (void)option;
  ENTER;
  *unit = kUnit;
  return 0;
}
static int take(int fd, uint64_t* allocation) {
  for (int i = 1; fd >= 0 && i < kMost; ++i) {
    if (allocations[i] > 0) continue;
    allocations[i] = fd;
    *allocation = (uint64_t)i;
    return 0;
  }
  return kInvalidValue;
}
int cuMemCreate(uint64_t* allocation, size_t bytes, const struct properties* wanted,
                uint64_t flags) {
  ENTER;
  if (bytes % kUnit || flags || wanted->type != 1 || wanted->handle_types != 1 ||
      wanted->location.type != 1)
    return kInvalidValue;
  const long long limit = fault("limit", 0);
  if (limit && used(wanted->location.id) + (long long)bytes > limit) return kOutOfMemory;
  const int fd = make_memory(wanted->location.id, limit != 0);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return kOutOfMemory;
  pthread_mutex_lock(&mutex);
  const int code = take(fd, allocation);
  pthread_mutex_unlock(&mutex);
  return code;
}
int cuMemRelease(uint64_t allocation) {
  close(allocations[allocation]);
  allocations[allocation] = 0;
  return 0;
}
int cuMemExportToShareableHandle(void* out, uint64_t allocation, int how, uint64_t flags) {
  ENTER;
  if (how != 1 || flags) return kInvalidValue;
  *(int*)out = fcntl(allocations[allocation], F_DUPFD_CLOEXEC, 0);
  return 0;
}
int cuMemImportFromShareableHandle(uint64_t* allocation, void* descriptor, int how) {
  ENTER;
  if (how != 1) return kInvalidValue;
  return take(fcntl((int)(intptr_t)descriptor, F_DUPFD_CLOEXEC, 0), allocation);
}
int cuMemAddressReserve(uint64_t* memory, size_t bytes, size_t alignment, uint64_t wanted,
                        uint64_t flags) {
  (void)alignment;
  ENTER;
  if (bytes % kUnit || wanted || flags) return kInvalidValue;
  char* begin = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return kOutOfMemory;
  for (int i = 0; i < kMost; ++i) {
    if (ranges[i].begin) continue;
    ranges[i] = (struct range){begin, bytes, 0, -1, 0};
    *memory = (uint64_t)(uintptr_t)begin;
    return 0;
  }
  return kInvalidValue;
}
int cuMemAddressFree(uint64_t memory, size_t bytes) {
  struct range* r = range_of(memory);
  if (!r || r->bytes != bytes || r->mapped) return kInvalidValue;
  munmap(r->begin, bytes);
  *r = (struct range){NULL, 0, 0, -1, 0};
  return 0;
}
int cuMemMap(uint64_t memory, size_t bytes, size_t offset, uint64_t allocation, uint64_t flags) {
  ENTER;
  struct range* r = range_of(memory);
  struct stat s;
  if (!r || r->mapped || bytes > r->bytes || offset || flags ||
      fstat(allocations[allocation], &s) != 0 || (size_t)s.st_size < bytes)
    return kInvalidValue;
  r->fd = fcntl(allocations[allocation], F_DUPFD_CLOEXEC, 0);
  if (mmap(r->begin, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, r->fd, 0) == MAP_FAILED)
    return kInvalidValue;
  r->mapped = bytes;
  return 0;
}
int cuMemUnmap(uint64_t memory, size_t bytes) {
  struct range* r = range_of(memory);
  if (!r || r->mapped != bytes) return kInvalidValue;
  mmap(r->begin, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  close(r->fd);
  r->mapped = 0;
  r->access = 0;
  return 0;
}
int cuMemSetAccess(uint64_t memory, size_t bytes, const struct access* access, size_t count) {
  ENTER;
  struct range* r = range_of(memory);
  if (!r || r->mapped != bytes || count != 1 || access->location.type != 1) return kInvalidValue;
  r->access = access->flags;
  return mprotect(r->begin, bytes, access->flags == 3 ? PROT_READ | PROT_WRITE : PROT_READ) != 0;
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  ENTER;
  *memory = calloc(1, bytes);
  return flags || !*memory ? kOutOfMemory : 0;
}
int cuMemFreeHost(void* memory) {
  free(memory);
  return 0;
}
int cuStreamCreate(void** stream, unsigned flags) {
  ENTER;
  struct stream* made = calloc(1, sizeof *made);
  if (made) made->context = current_context();
  *stream = made;
  return flags != 1;
}
int cuStreamGetCtx(void* stream, void** context) {
  ENTER;
  *context = stream ? ((struct stream*)stream)->context : current_context();
  return *context ? 0 : kInvalidContext;
}
int cuStreamSynchronize(void* stream) {
  ENTER;
  struct stream* s = stream_of(stream);
  return complete(s, s->asked);
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  ENTER;
  return flags ? kInvalidValue
               : add_to(stream_of(stream), (struct copy){.after = *(struct event*)event});
}
int cuStreamDestroy_v2(void* stream) {
  free(stream);
  return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return copy_later((void*)(uintptr_t)to, from, bytes, stream);
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return copy_later(to, (const void*)(uintptr_t)from, bytes, stream);
}

int cuEventCreate(void** event, unsigned flags) {
  (void)flags;
  ENTER;
  struct event* made = calloc(1, sizeof *made);
  if (!made || contexts == 0) return kInvalidContext;
  made->context = current_context();
  *event = made;
  return 0;
}
int cuEventDestroy_v2(void* event) {
  free(event);
  return 0;
}
int cuEventRecord(void* event, void* stream) {
  ENTER;
  struct event* e = event;
  if (stream && e->context != ((struct stream*)stream)->context) return kInvalidHandle;
  e->stream = stream_of(stream);
  e->number = e->stream->asked;
  return 0;
}
int cuEventSynchronize(void* event) {
  ENTER;
  const struct event* e = event;
  return e->stream ? complete(e->stream, e->number) : 0;
}

int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  ENTER;
  if (contexts == 0) return kInvalidContext;
  if (flags & 8 && fault("writable", 0)) return kNotSupported;
  char* begin = memory;
  struct piece* unused = NULL;
  for (int i = 0; i < kMost; ++i) {
    if (begin < locked[i].begin + locked[i].bytes && locked[i].begin < begin + bytes)
      return kAlreadyLocked;
    if (!locked[i].begin) unused = &locked[i];
  }
  if (!unused) return kOutOfMemory;
  *unused = (struct piece){begin, bytes, flags};
  return 0;
}
int cuMemHostUnregister(void* memory) {
  if (contexts == 0) return kInvalidContext;
  for (int i = 0; i < kMost; ++i) {
    if (!memory || locked[i].begin != memory) continue;
    /* Memory that is not mapped any more can't be unlocked. */
    if (msync(memory, locked[i].bytes, MS_ASYNC) != 0) return kInvalidValue;
    locked[i] = (struct piece){NULL, 0, 0};
    return 0;
  }
  return kNotLocked;
}

/* For tests: what of the memory there is locked, in bytes, and how; of NULL, of all. */
size_t fake_locked(const void* memory, unsigned* flags) {
  const char* at = memory;
  size_t bytes = 0;
  *flags = 0;
  for (int i = 0; i < kMost; ++i) {
    if (at && (at < locked[i].begin || at >= locked[i].begin + locked[i].bytes)) continue;
    bytes += locked[i].bytes;
    *flags |= locked[i].flags;
  }
  return bytes;
}
/* For tests: how many calls there were. */
int fake_calls(void) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
