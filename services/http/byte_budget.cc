#include "services/http/byte_budget.h"

namespace skein::services::http {

// `total_bytes`: the lease's size after this call.
bool ByteBudget::Take(size_t more_bytes, size_t total_bytes) {
  const size_t limit = total_bytes <= kSmallBytes ? bytes_max_ : LeaseBytesMax();
  size_t held = held_bytes_.load(std::memory_order_relaxed);
  do {
    if (held > limit || more_bytes > limit - held) {
      refusals_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!held_bytes_.compare_exchange_weak(held, held + more_bytes, std::memory_order_relaxed));
  return true;
}

bool ByteBudget::Lease::Resize(size_t bytes) {
  if (bytes > bytes_ && !budget_->Take(bytes - bytes_, bytes)) return false;
  if (bytes < bytes_) budget_->held_bytes_.fetch_sub(bytes_ - bytes, std::memory_order_relaxed);
  bytes_ = bytes;
  return true;
}

}  // namespace skein::services::http
