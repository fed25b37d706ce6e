// Helpers of the codec's own .cc files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/peer_build.h"

namespace skein::services {

// Limit for counts and for totals of bytes or tokens on the wire. Sums of these cannot overflow.
// Durations: durations.h.
inline constexpr int64_t kMaxCount = int64_t{1} << 31;
inline constexpr int64_t kMaxTotal = int64_t{1} << 50;

v1::HandoffPath ToProto(const scheduler::HandoffPath& path);
v1::RingPath ToProto(const scheduler::RingPath& path);

v1::PrepareFormation::Own ToProto(scheduler::OwnSequences own);
absl::StatusOr<scheduler::OwnSequences> FromProto(v1::PrepareFormation::Own own);

v1::SharedMode ToProto(scheduler::SharedMode mode);
absl::StatusOr<std::optional<scheduler::SharedMode>> FromProto(v1::SharedMode mode);
// Of a message with `optional uint64 shift_tokens` and `uint32 shift_tp`.
absl::StatusOr<std::optional<scheduler::ShiftRule>> ShiftFrom(std::optional<uint64_t> tokens,
                                                              uint32_t tp);

using RepeatedIds = google::protobuf::RepeatedField<uint64_t>;
void ToProto(const scheduler::FailedEngines& engines, RepeatedIds* out);
absl::StatusOr<scheduler::FailedEngines> FailedEnginesFrom(const RepeatedIds& engines);

// Sets the version and the protocol of a message that has both, as far as the build tells them.
template <typename Message>
void SetBuild(const scheduler::PeerBuild& build, Message* out) {
  if (!build.version.empty()) out->set_version(build.version);
  if (build.protocol == scheduler::ProtocolRange{}) return;
  out->mutable_protocol()->set_oldest(build.protocol.oldest);
  out->mutable_protocol()->set_newest(build.protocol.newest);
}

// INVALID_ARGUMENT: the oldest revision is above the newest.
absl::StatusOr<scheduler::PeerBuild> BuildFrom(const std::string& version,
                                               const v1::ProtocolRange& protocol);

// INVALID_ARGUMENT "field: why".
absl::Status Invalid(std::string_view field, std::string_view why);

// INVALID_ARGUMENT "field: VALUE exceeds the limit of MAX".
absl::Status TooLarge(std::string_view field, uint64_t value, int64_t max);

}  // namespace skein::services
