// The only place that converts durations from peers into a core's TimeUs.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein::services {

// One week: no request, chunk or deadline lasts longer.
inline constexpr int64_t kDurationMaxUs = int64_t{7} * 24 * 3600 * 1'000'000;
// One day: no flag allows a lease of more than an hour.
inline constexpr int64_t kLeaseMaxUs = int64_t{24} * 3600 * 1'000'000;

// INVALID_ARGUMENT "FIELD: VALUE us exceeds the limit of 604800000000 us" (kDurationMaxUs).
absl::StatusOr<int64_t> DurationFrom(std::string_view field, uint64_t value_us);

// The same for leases: at most kLeaseMaxUs, and not 0, which would cause renewal without a pause.
absl::StatusOr<int64_t> LeaseFrom(std::string_view field, uint64_t value_us);

}  // namespace skein::services
