#include "services/codec/durations.h"

#include "absl/strings/str_cat.h"
#include "services/codec/internal.h"

namespace skein::services {
namespace {

absl::StatusOr<int64_t> AtMost(int64_t max_us, std::string_view field, uint64_t value_us) {
  if (value_us <= static_cast<uint64_t>(max_us)) return static_cast<int64_t>(value_us);
  return Invalid(field, absl::StrCat(value_us, " us exceeds the limit of ", max_us, " us"));
}

}  // namespace

absl::StatusOr<int64_t> DurationFrom(std::string_view field, uint64_t value_us) {
  return AtMost(kDurationMaxUs, field, value_us);
}

absl::StatusOr<int64_t> LeaseFrom(std::string_view field, uint64_t value_us) {
  if (value_us == 0) {
    return Invalid(field, absl::StrCat("0 us: a lease must be from 1 to ", kLeaseMaxUs, " us"));
  }
  return AtMost(kLeaseMaxUs, field, value_us);
}

}  // namespace skein::services
