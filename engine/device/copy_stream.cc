#include "engine/device/copy_stream.h"

#include <thread>

namespace skein::engine {

absl::Status AwaitCopies(CopyStream* copies) {
  const absl::StatusOr<uint64_t> mark = copies->Mark();
  if (!mark.ok()) return mark.status();
  for (;;) {
    const absl::StatusOr<bool> done = copies->Done(*mark);
    if (!done.ok() || *done) return done.status();
    std::this_thread::yield();
  }
}

}  // namespace skein::engine
