#include "scheduler/jobs/job_room.h"

#include <algorithm>

namespace skein::scheduler::jobs {

void JobRoom::See(const ClusterLoad& load, int64_t in_flight, TimeUs now) {
  if (load.instances <= 0) {
    limit_ = 0;
    seen_ = false;
    return;
  }
  if (!seen_) {
    seen_ = true;
    limit_ = std::min(2 * load.instances, config_.limit_max);
    grown_us_ = now;
  }
  if (load.waiting > 0) {
    grown_us_ = now;
    if (now - fallen_us_ < config_.fall_every_us) return;
    fallen_us_ = now;
    limit_ = std::min(limit_, in_flight) / 2;
    return;
  }
  const bool used = in_flight >= limit_;
  if (!used || load.free_kv < config_.free_kv_min) return;
  if (now - grown_us_ < config_.grow_every_us) return;
  grown_us_ = now;
  limit_ = std::min(limit_ + std::max(load.instances, limit_ / 8), config_.limit_max);
}

}  // namespace skein::scheduler::jobs
