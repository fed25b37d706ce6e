// For tests: a process that has no descriptors left.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

// While it lives, this process can open nothing.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    SKEIN_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = dup(0);
    SKEIN_CHECK(next >= 0 && close(next) == 0);
    const rlimit none = {static_cast<rlim_t>(next), before_.rlim_max};
    SKEIN_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptorsLeft() { SKEIN_CHECK(setrlimit(RLIMIT_NOFILE, &before_) == 0); }
  NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;

 private:
  rlimit before_{};
};

}  // namespace skein::engine
