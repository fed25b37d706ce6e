// Ranges of etcd's keys.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/store/cluster_store.h"
#include "services/store/etcd_calls.h"

namespace skein::services {

// The end of the range of all keys that begin with `prefix`, as etcd wants it ("\0": no end).
std::string EtcdRangeEnd(std::string prefix);

// All keys in [key, end); end "": this key only.
absl::StatusOr<StoreSnapshot> ReadEtcdRange(EtcdCalls* calls, const std::string& key,
                                            const std::string& end, int64_t timeout_us);

}  // namespace skein::services
