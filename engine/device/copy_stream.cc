#include "engine/device/copy_stream.h"

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace skein::engine {
namespace {

// So many looks at least: a process that stood still takes no device for hung.
constexpr int kLooksMin = 1000;

}  // namespace

absl::Status AwaitMark(CopyStream* copies, uint64_t mark, std::chrono::nanoseconds hung_after) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t looks = 0;; ++looks) {
    const absl::StatusOr<bool> done = copies->Done(mark);
    if (!done.ok() || *done) return done.status();
    if (looks > kLooksMin && std::chrono::steady_clock::now() - start > hung_after) {
      std::fprintf(stderr, "device copies did not end within %lld ms: the process ends\n",
                   static_cast<long long>(
                       std::chrono::duration_cast<std::chrono::milliseconds>(hung_after).count()));
      std::abort();
    }
    std::this_thread::yield();
  }
}

absl::Status AwaitCopies(CopyStream* copies) {
  const absl::StatusOr<uint64_t> mark = copies->Mark();
  if (!mark.ok()) return mark.status();
  return AwaitMark(copies, *mark);
}

}  // namespace skein::engine
