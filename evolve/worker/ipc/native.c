/* The few parts of the worker that the interpreter must not slow down or interrupt.
 *
 * - The allocator behind a runner's tensors. torch calls it without the interpreter's lock.
 * - Signals in shared memory: a word is set by one process and waited for by the other, first by
 *   spinning, then by futex.
 * - A timed window on a GPU, from the copy of the inputs to the read of the outputs. In Python
 *   other threads of the referee would take the interpreter in the middle of it.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. The driver is loaded by name, so no CUDA headers are
 * needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- the allocator ---------------------------------------------------------------------------- */

#define STEP ((size_t)2 << 20)
#define MOST (1 << 17)

static uintptr_t base;
static size_t steps;
static unsigned char used[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void evolve_pool(uint64_t address, uint64_t size) {
  base = address;
  steps = size / STEP < MOST ? size / STEP : MOST;
}

void* evolve_allocate(size_t size, int device, void* stream) {
  size_t wanted = (size + STEP - 1) / STEP, free_steps = 0;
  void* found = NULL;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < steps && !found; ++i) {
    free_steps = used[i] ? 0 : free_steps + 1;
    if (free_steps == wanted) {
      memset(used + i + 1 - wanted, 1, wanted);
      found = (void*)(base + (i + 1 - wanted) * STEP);
    }
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void evolve_free(void* block, size_t size, int device, void* stream) {
  pthread_mutex_lock(&lock);
  memset(used + ((uintptr_t)block - base) / STEP, 0, (size + STEP - 1) / STEP);
  pthread_mutex_unlock(&lock);
}

/* --- signals ---------------------------------------------------------------------------------- */

#define SPINS 256
#define NAP_NS 1000000 /* between looks at the deadline and the socket */

enum { SEEN = 1, LATE = 0, SPOKEN = -1 };

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int is_readable(int fd) {
  struct pollfd asked = {fd, POLLIN, 0};
  return fd >= 0 && poll(&asked, 1, 0) > 0;
}

/* Wait until `word` has `value`; SPOKEN where the socket `fd` (if any) has something to read. */
int evolve_wait(_Atomic int64_t* word, int64_t value, int64_t spin_ns, int64_t deadline, int fd) {
  int64_t start = now();
  for (;;) {
    for (int i = 0; i < SPINS; ++i) {
      if (atomic_load_explicit(word, memory_order_acquire) == value) return SEEN;
      relax();
    }
    int64_t time = now();
    int spoken = is_readable(fd);
    int64_t has = atomic_load_explicit(word, memory_order_acquire);
    if (has == value) return SEEN;
    if (spoken) return SPOKEN;
    if (time >= deadline) return LATE;
    if (time - start >= spin_ns) {
      struct timespec nap = {0, NAP_NS};
      syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)has, &nap, NULL, 0);
    }
  }
}

void evolve_signal(_Atomic int64_t* word, int64_t value) {
  atomic_store_explicit(word, value, memory_order_release);
  syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* The same for a spinning receiver: a needless wake-up costs 0.3 us of each call. */
static void tell(_Atomic int64_t* word, int64_t value, int64_t spin_ns) {
  if (spin_ns)
    atomic_store_explicit(word, value, memory_order_release);
  else
    evolve_signal(word, value);
}

/* In a runner: the calls before this one are made, and it waits until this one's inputs are there.
 * The number has that of the window in its upper bits. */
int evolve_turn(_Atomic int64_t* made, _Atomic int64_t* given, int64_t number, int64_t spin_ns,
                int64_t deadline) {
  tell(made, number - 1, spin_ns);
  return evolve_wait(given, number, spin_ns, deadline, -1);
}

/* --- a window on a GPU ------------------------------------------------------------------------ */

typedef uint64_t pointer;

/* 16 bytes a thread and step, past the first-level cache, as streaming data. */
static const char COPY_PTX[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 words)\n{\n"
    "  .reg .pred %p;\n  .reg .b32 %r<8>;\n  .reg .b64 %d<10>;\n"
    "  ld.param.u64 %d1, [to];\n  ld.param.u64 %d2, [from];\n  ld.param.u64 %d3, [words];\n"
    "  mov.u32 %r1, %ntid.x;\n  mov.u32 %r2, %ctaid.x;\n  mov.u32 %r3, %tid.x;\n"
    "  mov.u32 %r4, %nctaid.x;\n"
    "  mul.wide.u32 %d4, %r1, %r2;\n  cvt.u64.u32 %d5, %r3;\n  add.u64 %d4, %d4, %d5;\n"
    "  mul.wide.u32 %d6, %r1, %r4;\n"
    "next:\n  setp.ge.u64 %p, %d4, %d3;\n  @%p bra done;\n"
    "  shl.b64 %d7, %d4, 4;\n  add.u64 %d8, %d2, %d7;\n  add.u64 %d9, %d1, %d7;\n"
    "  ld.global.cs.v4.u32 {%r4, %r5, %r6, %r7}, [%d8];\n"
    "  st.global.cs.v4.u32 [%d9], {%r4, %r5, %r6, %r7};\n"
    "  add.u64 %d4, %d4, %d6;\n  bra next;\n"
    "done:\n  ret;\n}\n";

/* The calls of a driver that a window needs; those that stay NULL it does without. Both drivers'
 * take the same arguments in the same order (`driver_calls.py` has the table and its sources). */
static struct {
  int (*get_context)(void**);
  int (*set_context)(void*);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*make_stream)(void**, unsigned);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*copy)(pointer, pointer, size_t, void*);
  int (*to_host)(void*, pointer, size_t, void*);
  int (*write_value)(void*, pointer, uint32_t, unsigned);
  int (*synchronize)(void*);
  int (*reset_persisting)(void);
} driver;

struct call {
  const char* name;
  void* slot;
};

static const struct call CUDA[] = {
    {"cuCtxGetCurrent", &driver.get_context},
    {"cuCtxSetCurrent", &driver.set_context},
    {"cuModuleLoadData", &driver.load},
    {"cuModuleGetFunction", &driver.function},
    {"cuStreamCreate", &driver.make_stream},
    {"cuLaunchKernel", &driver.launch},
    {"cuMemcpyDtoHAsync_v2", &driver.to_host},
    {"cuStreamWriteValue32_v2", &driver.write_value},
    {"cuStreamSynchronize", &driver.synchronize},
    {"cuCtxResetPersistingL2Cache", &driver.reset_persisting},
    {NULL, NULL}};

/* Each thread's device is the first one, so there is no context to set. Memory of one device is
 * copied by a kernel of the runtime's own. */
static const struct call HIP[] = {{"hipStreamCreateWithFlags", &driver.make_stream},
                                  {"hipMemcpyDtoDAsync", &driver.copy},
                                  {"hipMemcpyDtoHAsync", &driver.to_host},
                                  {"hipStreamWriteValue32", &driver.write_value},
                                  {"hipStreamSynchronize", &driver.synchronize},
                                  {NULL, NULL}};

static void *context, *copy, *stream;
static unsigned grid;

static int open_copy(const char** failed) {
  void* module;
  int code;
  *failed = "cuCtxGetCurrent";
  if ((code = driver.get_context(&context))) return code;
  *failed = "cuModuleLoadData";
  if ((code = driver.load(&module, COPY_PTX))) return code;
  *failed = "cuModuleGetFunction";
  return driver.function(&copy, module, "copy");
}

/* Once, on a thread with a context. Returns the driver's code; -1 where a call is missing. */
int evolve_open_clock(const char* path, int is_hip, unsigned blocks, const char** failed) {
  void* library = dlopen(path, RTLD_NOW);
  for (const struct call* call = is_hip ? HIP : CUDA; call->name; ++call) {
    void* found = library ? dlsym(library, call->name) : NULL;
    *failed = call->name;
    if (!found) return -1;
    memcpy(call->slot, &found, sizeof(found));
  }
  int code = driver.load ? open_copy(failed) : 0;
  if (code) return code;
  grid = blocks;
  *failed = is_hip ? "hipStreamCreateWithFlags" : "cuStreamCreate";
  return driver.make_stream(&stream, 1 /* not blocked by the default stream */);
}

static int copied(pointer to, pointer from, uint64_t bytes) {
  uint64_t words = bytes / 16;
  void* arguments[] = {&to, &from, &words};
  if (!bytes) return 0;
  if (driver.copy) return driver.copy(to, from, 16 * words, stream);
  return driver.launch(copy, grid, 1, 1, 512, 1, 1, 0, stream, arguments, NULL);
}

/* A piece of an output: the word of the page that has its address, and where its bytes go; where
 * its call is followed by a pause (`after` such a number of calls), also as they are then. It may
 * lie in the inputs where the reference's does (`aliased`). */
struct piece {
  int64_t word, start, length, after, aliased;
  void *to, *early;
};

/* A pause after so many calls; only then come the inputs of the next ones, up to a byte. */
struct pause {
  int64_t after;
  uint64_t from, to;
};

#define CALL_BITS 20 /* of a number that tells window and call */

struct window {
  pointer inputs, staged, decoys; /* where inputs go, where they lie, and others that look alike */
  uint64_t bytes, first;  /* of them, and of those that come first; multiples of 16 */
  pointer flush;          /* twice `flush_bytes`: one half is copied to the other */
  uint64_t flush_bytes;
  pointer gate; /* a word of the runner's memory, for which its stream waits */
  _Atomic int64_t *go, *done, *given, *made; /* words of the shared page */
  volatile int64_t* page; /* which the runner may change at any moment */
  int64_t sequence, calls, spin_ns, limit_ns, pause_ns;
  int fd, pid; /* where the runner says that it has failed, and its process */
  struct piece* pieces;
  int64_t count;
  struct pause* pauses;
  int64_t pause_count;
  pointer pool, view; /* where the runner says that its memory lies, and where it lies here */
  uint64_t pool_bytes;
  pointer claimed; /* where it says that its inputs lie */
  int64_t begun, ended; /* filled in */
};

#define ROUSING 4 /* copies of the flush buffer before the clock starts: 0.15 ms on an H100 */

enum { TIMED = 0, AT_LIMIT = 1, WORD = 2, ASTRAY = -10, DRIVER = 1000 };

/* Where a piece lies here; 0 if it is in no memory that it may be in. */
static pointer place_of(const struct window* w, const struct piece* p) {
  pointer said = (pointer)w->page[p->word] + (pointer)p->start;
  uint64_t length = (uint64_t)p->length;
  pointer at = said - w->pool;
  if (at <= w->pool_bytes && length <= w->pool_bytes - at) return w->view + at;
  at = said - w->claimed;
  if (p->aliased && at <= w->bytes && length <= w->bytes - at) return w->inputs + at;
  return 0;
}

static int read_pieces(struct window* w, int64_t after) {
  int code;
  for (int64_t i = 0; i < w->count; ++i) {
    struct piece* p = w->pieces + i;
    if (!p->length) continue; /* an empty output lies nowhere */
    if (after && p->after != after) continue;
    pointer at = place_of(w, p);
    if (!at) return ASTRAY;
    if ((code = driver.to_host(after ? p->early : p->to, at, (size_t)p->length, stream)))
      return DRIVER + code;
  }
  return (code = driver.synchronize(stream)) ? DRIVER + code : TIMED;
}

/* The pieces, as they are now. */
int evolve_read(struct window* w) { return read_pieces(w, 0); }

/* What was launched is over when a window is, however it ends: its memory may go to another. */
static int ended(int outcome) {
  driver.synchronize(stream);
  return outcome;
}

static int awaited(struct window* w, _Atomic int64_t* word, int64_t value) {
  int seen = evolve_wait(word, value, w->spin_ns, w->begun + w->limit_ns, w->fd);
  return seen == SEEN ? TIMED : seen == LATE ? AT_LIMIT : WORD;
}

/* Let what was launched be done, see what it has given, and bring the inputs of the next calls. */
static int pause_for(struct window* w, struct pause* pause) {
  struct timespec nap = {w->pause_ns / 1000000000, w->pause_ns % 1000000000};
  int code = driver.synchronize(stream); /* the pause is for the runner's work, not for copies */
  if (code) return DRIVER + code;
  /* Who sees that the next call does not come could do meanwhile what it has left over. */
  if (w->pid > 0) kill(w->pid, SIGSTOP);
  while (nanosleep(&nap, &nap) && errno == EINTR) {
  }
  code = read_pieces(w, pause->after);
  if (w->pid > 0) kill(w->pid, SIGCONT);
  if (code != TIMED) return code;
  code = copied(w->inputs + pause->from, w->staged + pause->from, pause->to - pause->from);
  code = code ? code : driver.synchronize(stream);
  return code ? DRIVER + code : TIMED;
}

/* Call after call: the next is not made before the one before has returned. */
static int hand_over(struct window* w) {
  struct pause *next = w->pauses, *end = w->pauses + w->pause_count;
  for (int64_t call = 1; call <= w->calls; ++call) {
    int64_t number = (w->sequence << CALL_BITS) + call;
    tell(w->given, number, w->spin_ns);
    int code = awaited(w, w->made, number);
    if (code == TIMED && next < end && next->after == call) code = pause_for(w, next++);
    if (code != TIMED) return code;
  }
  return TIMED;
}

/* Returns TIMED; AT_LIMIT, WORD where the runner has spoken, ASTRAY where an output is not in the
 * runner's memory, DRIVER + its code where the driver fails. */
int evolve_window(struct window* w) {
  int code = driver.set_context ? driver.set_context(context) : 0;
  /* Cache lines that a kernel has asked to keep become ordinary ones. */
  if (!code && driver.reset_persisting) code = driver.reset_persisting();
  if (code) return DRIVER + code;
  /* A GPU that has idled for half a millisecond takes 0.13 ms longer to copy: all begin awake. */
  for (int i = 0; i < ROUSING; ++i)
    if ((code = copied(w->flush + w->flush_bytes, w->flush, w->flush_bytes)))
      return ended(DRIVER + code);
  if ((code = driver.synchronize(stream))) return DRIVER + code;
  w->begun = now();
  code = w->pause_count ? copied(w->inputs, w->decoys, w->bytes) : 0;
  code = code ? code : copied(w->inputs, w->staged, w->first);
  code = code ? code : copied(w->flush + w->flush_bytes, w->flush, w->flush_bytes);
  code = code ? code : driver.write_value(stream, w->gate, (uint32_t)w->sequence, 0);
  if (code) return ended(DRIVER + code);
  evolve_signal(w->go, w->sequence);
  code = hand_over(w);
  if (code == TIMED) code = awaited(w, w->done, w->sequence);
  if (code != TIMED) return ended(code);
  code = evolve_read(w);
  w->ended = now();
  return code == TIMED ? code : ended(code);
}
