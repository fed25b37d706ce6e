// Fiber: a function with a stack of its own that runs until it suspends itself. All on one OS
// thread: whoever resumes a fiber goes on when it suspends or ends. x86-64: a switch is a few
// pushes and pops; elsewhere swapcontext. AddressSanitizer is told of every switch.
#pragma once

#include <cstddef>
#include <memory>

namespace skein::engine::simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume calls body(argument) from the start. REQUIRES: not suspended in a body.
  void Start(void (*body)(void*), void* argument);
  // Runs the body until it suspends or returns.
  void Resume();
  // Called from within the body: back to Resume.
  void Suspend();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace skein::engine::simt
