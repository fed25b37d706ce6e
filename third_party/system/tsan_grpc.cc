// Tells ThreadSanitizer what gRPC promises: that whatever came before a batch of operations was
// started comes before its completion. Only in --config=tsan.
//
// Debian's gRPC and Abseil are not instrumented, and their locks and queues are not pthread's, so
// ThreadSanitizer sees gRPC's threads touch messages and callbacks as if at the same time as the
// thread that made the call. Every crossing of the callback and completion queue APIs is a batch:
// grpc_call_start_batch(tag), then either tag->functor_run() on one of gRPC's threads or an event
// with that tag. OnDone and OnCancel of a server come when a count in the call reaches 0, through
// the executor's queue, which a gpr_mu guards; the last count may be taken in the library.
// These functions stand before libgrpc's in the order of symbol lookup, release the tag there and
// acquire it here. Nothing is suppressed: what gRPC does not order is still reported.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/support/sync.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

// libgrpc's own function.
template <typename F>
F* Next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<F*>(found);
}

// ---- functors: one wrapper for each of the few functions that gRPC's headers use ----

using Run = void (*)(grpc_completion_queue_functor*, int);
constexpr size_t kKinds = 8;
std::atomic<Run> g_runs[kKinds];

template <size_t kKind>
void AcquireAndRun(grpc_completion_queue_functor* functor, int ok) {
  __tsan_acquire(functor);
  g_runs[kKind].load()(functor, ok);
}

template <size_t... kKind>
Run WrapperOf(Run run, std::index_sequence<kKind...>) {
  constexpr Run kWrappers[] = {AcquireAndRun<kKind>...};
  for (const Run wrapper : kWrappers) {
    if (run == wrapper) return run;
  }
  for (size_t i = 0; i < kKinds; ++i) {
    Run known = nullptr;
    if (g_runs[i].compare_exchange_strong(known, run) || known == run) return kWrappers[i];
  }
  std::abort();
}

// ---- is a tag a functor, or an object for a completion queue, which begins with its vtable? ----

using Range = std::pair<uintptr_t, uintptr_t>;

int AddCode(dl_phdr_info* info, size_t, void* ranges) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    static_cast<std::vector<Range>*>(ranges)->emplace_back(begin, begin + segment.p_memsz);
  }
  return 0;
}

bool IsFunctor(const void* tag) {
  static const std::vector<Range> code = [] {
    std::vector<Range> ranges;
    dl_iterate_phdr(AddCode, &ranges);
    return ranges;
  }();
  const auto first_word = *static_cast<const uintptr_t*>(tag);
  for (const auto& [begin, end] : code) {
    if (first_word >= begin && first_word < end) return true;
  }
  return false;
}

grpc_event Acquired(const grpc_event& event) {
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

// ServerCallbackCall of gRPC 1.51 is a vtable and two atomic counts. Those who count in our code
// have released them.
void AcquireCounts(void* call) {
  __tsan_acquire(static_cast<char*>(call) + sizeof(void*));
  __tsan_acquire(static_cast<char*>(call) + sizeof(void*) + sizeof(int));
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  static auto* const next = Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  if (tag != nullptr) {
    if (IsFunctor(tag)) {
      auto* functor = static_cast<grpc_completion_queue_functor*>(tag);
      functor->functor_run = WrapperOf(functor->functor_run, std::make_index_sequence<kKinds>());
    }
    __tsan_release(tag);
  }
  return next(call, ops, nops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static auto* const next =
      Next<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  return Acquired(next(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const next =
      Next<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  return Acquired(next(queue, tag, deadline, reserved));
}

void gpr_mu_lock(gpr_mu* mu) {
  static auto* const next = Next<decltype(gpr_mu_lock)>("gpr_mu_lock");
  next(mu);
  __tsan_acquire(mu);
}

int gpr_mu_trylock(gpr_mu* mu) {
  static auto* const next = Next<decltype(gpr_mu_trylock)>("gpr_mu_trylock");
  const int locked = next(mu);
  if (locked != 0) __tsan_acquire(mu);
  return locked;
}

void gpr_mu_unlock(gpr_mu* mu) {
  static auto* const next = Next<decltype(gpr_mu_unlock)>("gpr_mu_unlock");
  __tsan_release(mu);
  next(mu);
}

int gpr_cv_wait(gpr_cv* cv, gpr_mu* mu, gpr_timespec deadline) {
  static auto* const next = Next<decltype(gpr_cv_wait)>("gpr_cv_wait");
  __tsan_release(mu);
  const int timed_out = next(cv, mu, deadline);
  __tsan_acquire(mu);
  return timed_out;
}

// absl::Mutex, as gRPC's headers use it in our code.
void _ZN4absl7debian35Mutex4LockEv(void* mutex) {
  static auto* const next = Next<void(void*)>("_ZN4absl7debian35Mutex4LockEv");
  next(mutex);
  __tsan_acquire(mutex);
}

void _ZN4absl7debian35Mutex6UnlockEv(void* mutex) {
  static auto* const next = Next<void(void*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(mutex);
  next(mutex);
}

// grpc_cq_end_op(queue, tag, error, done, done_arg, storage, internal): what the library itself
// completes, such as a server's new call. `error` is passed by reference.
void _Z14grpc_cq_end_opP21grpc_completion_queuePvN4absl7debian36StatusEPFvS1_P18grpc_cq_completionES1_S6_b(
    void* queue, void* tag, void* error, void* done, void* done_arg, void* storage, bool internal) {
  static auto* const next = Next<void(void*, void*, void*, void*, void*, void*, bool)>(
      "_Z14grpc_cq_end_opP21grpc_completion_queuePvN4absl7debian36StatusEPFvS1_P18grpc_cq_"
      "completionES1_S6_b");
  __tsan_release(tag);
  next(queue, tag, error, done, done_arg, storage, internal);
}

// grpc::internal::ServerCallbackCall::ScheduleOnDone(bool) and CallOnCancel(ServerReactor*).
void _ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb(void* call, bool inline_ondone) {
  static auto* const next =
      Next<void(void*, bool)>("_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
  AcquireCounts(call);
  next(call, inline_ondone);
}

void _ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE(void* call,
                                                                               void* reactor) {
  static auto* const next = Next<void(void*, void*)>(
      "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE");
  AcquireCounts(call);
  next(call, reactor);
}

}  // extern "C"
