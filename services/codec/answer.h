// The result of a call to a peer: its status, or its answer as the core's type.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"

namespace skein::services {

// The status for an answer that FromProto refused: INTERNAL, because the peer made the mistake, not
// the caller. Example: "the orchestrator's answer is malformed: lease_us: 0 us: a lease must be
// from 1 to 86400000000 us".
inline absl::Status MalformedAnswer(std::string_view peer, const absl::Status& refused) {
  return absl::InternalError(
      absl::StrCat("the ", std::string(peer), "'s answer is malformed: ", refused.message()));
}

// Decodes the answer of a call that ended with `status`. If the result's status is not OK, its
// other fields have no meaning.
template <typename Response>
auto AnswerOf(std::string_view peer, absl::Status status, const Response& response) {
  typename decltype(FromProto(response))::value_type failed;
  failed.status = std::move(status);
  if (!failed.status.ok()) return failed;
  auto decoded = FromProto(response);
  if (decoded.ok()) return *std::move(decoded);
  failed.status = MalformedAnswer(peer, decoded.status());
  return failed;
}

}  // namespace skein::services
