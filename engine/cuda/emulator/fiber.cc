#include "engine/cuda/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "scheduler/vocabulary/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace skein::engine::simt {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 << 10;
void LeaveStack(void** fake, const void* bottom, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, bottom, bytes);
}
void EnterStack(void* fake, const void** from_bottom, size_t* from_bytes) {
  __sanitizer_finish_switch_fiber(fake, from_bottom, from_bytes);
}
#else
constexpr size_t kStackBytes = 128 << 10;
void LeaveStack(void**, const void*, size_t) {}
void EnterStack(void*, const void**, size_t*) {}
#endif

constexpr size_t kGuardBytes = 4096;

}  // namespace

struct Fiber::State {
  void* mapping = nullptr;
  std::byte* stack = nullptr;  // kStackBytes, above a page that faults
  void (*body)(void*) = nullptr;
  void* argument = nullptr;
  // AddressSanitizer's: the fake stacks of both sides, and the stack that Resume was called on.
  void* own_fake = nullptr;
  void* resumer_fake = nullptr;
  const void* resumer_stack = nullptr;
  size_t resumer_bytes = 0;

#if defined(__x86_64__)
  void* own_sp = nullptr;
  void* resumer_sp = nullptr;
  void Prepare();
  void ToFiber();
  void ToResumer();
#else
  ucontext_t own_context;
  ucontext_t resumer_context;
  void Prepare();
  void ToFiber() { swapcontext(&resumer_context, &own_context); }
  void ToResumer() { swapcontext(&own_context, &resumer_context); }
#endif

  [[noreturn]] static void Enter(State* state);
};

[[noreturn]] void Fiber::State::Enter(State* state) {
  EnterStack(nullptr, &state->resumer_stack, &state->resumer_bytes);
  state->body(state->argument);
  LeaveStack(nullptr, state->resumer_stack, state->resumer_bytes);
  state->ToResumer();
  std::abort();  // an ended fiber is started anew, never resumed
}

#if defined(__x86_64__)

// SwitchStack(save, load): pushes what the System V ABI says a callee keeps, stores the stack
// pointer in *save, and goes on where `load` was stored. skein_simt_enter: the first switch to a
// fiber "returns" here, with the State in rbx.
extern "C" void skein_simt_switch(void** save, void* load);
extern "C" void skein_simt_enter();
asm(R"(
.text
.globl skein_simt_switch
.hidden skein_simt_switch
.type skein_simt_switch, @function
skein_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size skein_simt_switch, .-skein_simt_switch
.globl skein_simt_enter
.hidden skein_simt_enter
.type skein_simt_enter, @function
skein_simt_enter:
  movq %rbx, %rdi
  callq *%rbp
  ud2
.size skein_simt_enter, .-skein_simt_enter
)");

void Fiber::State::Prepare() {
  // From the top: what skein_simt_switch pops and returns to; then the stack is empty, aligned.
  auto* top = reinterpret_cast<uint64_t*>(stack + kStackBytes);
  *--top = reinterpret_cast<uint64_t>(&skein_simt_enter);
  *--top = reinterpret_cast<uint64_t>(&State::Enter);  // rbp
  *--top = reinterpret_cast<uint64_t>(this);           // rbx
  for (int saved = 0; saved < 4; ++saved) *--top = 0;  // r12 … r15
  own_sp = top;
}

void Fiber::State::ToFiber() { skein_simt_switch(&resumer_sp, own_sp); }
void Fiber::State::ToResumer() { skein_simt_switch(&own_sp, resumer_sp); }

#else

void Fiber::State::Prepare() {
  SKEIN_CHECK(getcontext(&own_context) == 0);
  own_context.uc_stack.ss_sp = stack;
  own_context.uc_stack.ss_size = kStackBytes;
  own_context.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(this);
  using Function = void (*)();
  void (*enter)(uint32_t, uint32_t) = [](uint32_t low, uint32_t high) {
    Enter(reinterpret_cast<State*>((uint64_t{high} << 32) | low));
  };
  makecontext(&own_context, reinterpret_cast<Function>(enter), 2, static_cast<uint32_t>(address),
              static_cast<uint32_t>(uint64_t{address} >> 32));
}

#endif

Fiber::Fiber() : state_(std::make_unique<State>()) {
  state_->mapping = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SKEIN_CHECK(state_->mapping != MAP_FAILED);
  SKEIN_CHECK(mprotect(state_->mapping, kGuardBytes, PROT_NONE) == 0);
  state_->stack = static_cast<std::byte*>(state_->mapping) + kGuardBytes;
}

Fiber::~Fiber() { munmap(state_->mapping, kGuardBytes + kStackBytes); }

void Fiber::Start(void (*body)(void*), void* argument) {
  state_->body = body;
  state_->argument = argument;
  state_->Prepare();
}

void Fiber::Resume() {
  LeaveStack(&state_->resumer_fake, state_->stack, kStackBytes);
  state_->ToFiber();
  EnterStack(state_->resumer_fake, nullptr, nullptr);
}

void Fiber::Suspend() {
  LeaveStack(&state_->own_fake, state_->resumer_stack, state_->resumer_bytes);
  state_->ToResumer();
  EnterStack(state_->own_fake, &state_->resumer_stack, &state_->resumer_bytes);
}

}  // namespace skein::engine::simt
