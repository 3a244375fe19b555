#include "core/emulated/fiber.h"

#include "base/error.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// Switching between stacks. On x86-64 by a few instructions of our own: the system's swapcontext() asks the kernel for
// the signal mask each time, and is slower by a factor of fifteen. There are thousands of switches in a test.

#if defined(__x86_64__)
// norma_switch_stack(save, load): keeps the registers that a call must not change on the old stack, and takes those of
// the new one.
asm(R"(
.text
.globl norma_switch_stack
.hidden norma_switch_stack
.type norma_switch_stack, @function
norma_switch_stack:
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
.size norma_switch_stack, .-norma_switch_stack
)");
extern "C" void norma_switch_stack(void** save, void* load);
#endif

namespace norma::emulated {

namespace {
constexpr size_t kStackBytes = size_t{128} << 10;
constexpr size_t kGuardBytes = 4096;  // below the stack: an overflow ends the program
}  // namespace

struct Fiber::Stack {
  std::byte* memory;
#if defined(__x86_64__)
  void* inside = nullptr;
  void* outside = nullptr;
#else
  ucontext_t inside;
  ucontext_t outside;
#endif
  // The address sanitizer is told of each switch with these.
  void* outside_fake = nullptr;
  void* inside_fake = nullptr;
  const void* outside_bottom = nullptr;
  size_t outside_size = 0;

  [[nodiscard]] std::byte* bottom() const {
    return memory + kGuardBytes;
  }
};

Fiber::Fiber() : stack_(new Stack) {
  void* memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    delete stack_;
    fail("launch", "the system has no memory left for the stack of a thread");
  }
  mprotect(memory, kGuardBytes, PROT_NONE);
  stack_->memory = static_cast<std::byte*>(memory);
}

Fiber::~Fiber() {
  munmap(stack_->memory, kStackBytes + kGuardBytes);
  delete stack_;
}

bool Fiber::has_on_stack(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  return byte >= stack_->memory && byte < stack_->bottom() + kStackBytes;
}

void Fiber::run(Fiber* fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->stack_->outside_bottom, &fiber->stack_->outside_size);
#endif
  fiber->body_(fiber->context_);
  fiber->ended_ = true;
  fiber->switch_out();
}

#if defined(__x86_64__)
namespace {

/// A new stack begins here; start() puts values for rbx and r12 on it.
extern "C" void norma_fiber_entry();
asm(R"(
.text
.globl norma_fiber_entry
.hidden norma_fiber_entry
.type norma_fiber_entry, @function
norma_fiber_entry:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size norma_fiber_entry, .-norma_fiber_entry
)");

}  // namespace

void Fiber::start(Body body, void* context) {
  body_ = body;
  context_ = context;
  ended_ = false;
  stack_->inside_fake = nullptr;
  // The registers that norma_switch_stack loads: r15, r14, r13, r12, rbx, rbp, and the address it returns to. Stacks do
  // not begin at the same place of their pages: the cache has few places for equal addresses.
  const size_t skipped = reinterpret_cast<uintptr_t>(this) / 64 % 32 * 64;
  auto** top = reinterpret_cast<void**>(stack_->bottom() + kStackBytes - skipped);
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&norma_fiber_entry);
  *--top = nullptr;
  *--top = this;
  *--top = reinterpret_cast<void*>(&Fiber::run);
  for (int i = 0; i < 3; ++i) {
    *--top = nullptr;
  }
  stack_->inside = top;
}

void Fiber::switch_in() {
  norma_switch_stack(&stack_->outside, stack_->inside);
}
void Fiber::switch_out() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ended_ ? nullptr : &stack_->inside_fake, stack_->outside_bottom, stack_->outside_size);
#endif
  norma_switch_stack(&stack_->inside, stack_->outside);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(stack_->inside_fake, &stack_->outside_bottom, &stack_->outside_size);
#endif
}
#else
void Fiber::start(Body body, void* context) {
  body_ = body;
  context_ = context;
  ended_ = false;
  getcontext(&stack_->inside);
  stack_->inside.uc_stack.ss_sp = stack_->bottom();
  stack_->inside.uc_stack.ss_size = kStackBytes;
  stack_->inside.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(this);
  makecontext(&stack_->inside, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
    run(reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32U | low));
  }),
              2, static_cast<unsigned>(address >> 32U), static_cast<unsigned>(address));
}
void Fiber::switch_in() {
  swapcontext(&stack_->outside, &stack_->inside);
}
void Fiber::switch_out() {
  swapcontext(&stack_->inside, &stack_->outside);
}
#endif

void Fiber::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&stack_->outside_fake, stack_->bottom(), kStackBytes);
#endif
  switch_in();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(stack_->outside_fake, nullptr, nullptr);
#endif
}

void Fiber::leave() {
  switch_out();
}

void Fiber::hand_over_to(Fiber& next) {
  if constexpr (kHandsOver) {
    next.stack_->outside = stack_->outside;
    norma_switch_stack(&stack_->inside, next.stack_->inside);
  }
}

}  // namespace norma::emulated
