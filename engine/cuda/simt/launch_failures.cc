#include "engine/cuda/simt/launch_failures.h"

#include <cstdio>
#include <cstdlib>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

thread_local LaunchFailures* of_thread = nullptr;

}  // namespace

LaunchFailures::LaunchFailures() {
  SKEIN_CHECK_MSG(of_thread == nullptr, "a LaunchFailures within another");
  of_thread = this;
}

LaunchFailures::~LaunchFailures() { of_thread = nullptr; }

void LaunchFailed(const std::string& what) {
  if (of_thread != nullptr) {
    if (of_thread->first_.empty()) of_thread->first_ = what;
    return;
  }
  std::fprintf(stderr, "CUDA: %s: the process ends\n", what.c_str());
  std::abort();
}

}  // namespace skein::engine
