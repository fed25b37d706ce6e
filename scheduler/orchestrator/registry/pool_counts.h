// What the instances of one model and role amount to together, kept up to date with each change of
// one of them, so that no question about a pool walks over it. Registry owns it.
#pragma once

#include <cstdint>
#include <set>

namespace skein::scheduler {

// What they can do.
struct PoolCounts {
  int64_t placeable = 0;
  int64_t serving = 0;             // Instance::Serves()
  int64_t taking = 0;              // Instance::TakesAssigns()
  int64_t request_limit = 0;       // of those that serve: the sum of their max_requests
  int64_t unlimited = 0;           // of those that serve: how many tell no max_requests
  int64_t placed_not_serving = 0;  // requests at those that do not serve
  int64_t missed = 0;
  int64_t slow = 0;  // by their pace (pace.h), as are the next two
  int64_t suspect = 0;
  int64_t aside = 0;
  void Add(const PoolCounts& more, int64_t times);
  bool operator==(const PoolCounts&) const = default;
};

// Sums over the instances that do not drain, as they last reported.
struct PoolLoad {
  int64_t instances = 0;
  int64_t running_requests = 0;
  int64_t queued_requests = 0;
  int64_t total_blocks = 0;
  int64_t held_blocks = 0;
  void Add(const PoolLoad& more, int64_t times);
  bool operator==(const PoolLoad&) const = default;
};

// What requests that leave one instance find at the others: of those that take new requests (they
// are placeable, and not closed by a bound group).
struct PoolSpace {
  int64_t request_limit = 0;  // the sum of their max_requests
  int64_t unlimited = 0;      // how many tell no max_requests
  // Blocks that they neither hold nor will when what is placed there opens. A quarter of each pool
  // is left out: instances keep up to that for the growth of their requests
  // (scheduler/worker/README.md).
  int64_t spare_blocks = 0;
  int64_t placed_elsewhere = 0;  // requests at the other instances of the pool
  void Add(const PoolSpace& more, int64_t times);
  bool operator==(const PoolSpace&) const = default;
};

// One instance's part of PoolSums.
struct PoolPart {
  PoolCounts counts;
  PoolLoad load;
  PoolSpace space;
  int64_t max_positions = 0;  // 0: no limit, or it drains
  int64_t open_blocks = 0;    // its KV blocks in all; 0: it takes no new requests
};

struct PoolSums {
  PoolCounts counts;
  PoolLoad load;
  PoolSpace space;
  std::multiset<int64_t> max_positions;  // of those that do not drain and have a limit
  std::multiset<int64_t> open_blocks;    // of those that take new requests
  // An instance's part is `now` from here on; {}: it has none. REQUIRES that `before` is its part.
  void Replace(const PoolPart& before, const PoolPart& now);
  // KV blocks of the largest instance that takes new requests; 0: there is none.
  int64_t LargestOpen() const { return open_blocks.empty() ? 0 : *open_blocks.rbegin(); }
  bool operator==(const PoolSums&) const = default;
};

}  // namespace skein::scheduler
