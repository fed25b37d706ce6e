// A limit on the bytes that a server holds for all requests together: arriving bodies, waiting
// bodies, and data made of them. Limits per connection alone do not bound the process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace skein::services::http {

// Any thread.
class ByteBudget {
 public:
  // Leases above kSmallBytes may use only 3/4 of the budget, so that slow large bodies cannot block
  // small requests.
  static constexpr size_t kSmallBytes = 64 << 10;

  explicit ByteBudget(size_t bytes_max) : bytes_max_(bytes_max) {}

  size_t bytes_max() const { return bytes_max_; }
  // The largest possible lease, when nothing else is held.
  size_t LeaseBytesMax() const {
    const size_t large_bytes_max = bytes_max_ - bytes_max_ / 4;
    return std::max(large_bytes_max, std::min(bytes_max_, kSmallBytes));
  }
  size_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  // How many times a lease was refused.
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }

  // The bytes that one request holds; freed with the lease. One thread at a time.
  class Lease {
   public:
    explicit Lease(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
    ~Lease() { Resize(0); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    // Changes the lease to `bytes`. False: no room; nothing has changed.
    bool Resize(size_t bytes);
    const ByteBudget& budget() const { return *budget_; }

   private:
    const std::shared_ptr<ByteBudget> budget_;
    size_t bytes_ = 0;
  };

 private:
  bool Take(size_t more_bytes, size_t total_bytes);

  const size_t bytes_max_;
  std::atomic<size_t> held_bytes_{0};
  std::atomic<uint64_t> refusals_{0};
};

}  // namespace skein::services::http
