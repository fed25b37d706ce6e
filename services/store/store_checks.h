// What both stores refuse alike.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/store/cluster_store.h"

namespace skein::services {

// INVALID_ARGUMENT: an empty key, or one that is written twice.
absl::Status CheckCommit(const StoreCommit& commit);

// INVALID_ARGUMENT: 0 or less.
absl::Status CheckTtl(int64_t ttl_us);

}  // namespace skein::services
