// Converts between the wire format (proto/) and the cores' messages (scheduler/base/messages.h).
// The only place that knows both.
//
// FromProto refuses malformed messages: INVALID_ARGUMENT naming the field and the value. Its
// results meet the cores' expectations (ids not zero, counts in range). What only workers use of a
// request is not checked here (services/worker/engine/sampling_codec.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/common.pb.h"
#include "proto/decode_worker.pb.h"
#include "proto/orchestrator.pb.h"
#include "proto/worker_orders.pb.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/token_stream.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "scheduler/worker/prefill/prefill_core.h"

namespace skein::services {

// ---- requests ----

v1::RequestId ToProto(scheduler::RequestId id);
absl::StatusOr<scheduler::RequestId> FromProto(const v1::RequestId& id);

// Token ids in the format of v1::RequestSpec.prompt. UnpackTokens drops an incomplete token at the
// end.
std::string PackTokens(std::span<const int32_t> tokens);
inline std::string PackTokens(std::initializer_list<int32_t> tokens) {
  return PackTokens(std::span(tokens.begin(), tokens.size()));
}
std::vector<int32_t> UnpackTokens(const std::string& bytes);

// A request travels as one string, a serialised v1::RequestSpec: its router makes it (Encode), the
// orchestrator takes the head from it and passes the string on, the workers take the whole spec.
// HeadFrom and SpecFrom check the fields of the head; of the others, SpecFrom checks none.
// `spec.sampling` is a serialised v1::SamplingParams, which the codec does not read.
scheduler::HeadPtr Encode(const scheduler::RequestSpec& spec);
// A further attempt at the request that `asked`, which Encode made, is the first one of: under this
// id, and behind the tokens that its client has. REQUIRES: fewer than max_tokens.
scheduler::HeadPtr EncodeAttempt(const scheduler::RequestHead& asked, scheduler::RequestId id,
                                 std::span<const int32_t> sent);
absl::StatusOr<scheduler::HeadPtr> HeadFrom(const std::string& encoded);
absl::StatusOr<scheduler::SpecPtr> SpecFrom(const std::string& encoded);
// For a string that HeadFrom refuses: whose it is.
absl::StatusOr<scheduler::RequestId> IdOfSpec(const std::string& encoded);
v1::RequestSpec ToProto(const scheduler::RequestSpec& spec);

v1::SubmitRequest ToProto(const scheduler::SubmitCalled& submit);  // without its traceparent
absl::StatusOr<scheduler::SubmitCalled> FromProto(const v1::SubmitRequest& submit);

v1::FinishReason ToProto(scheduler::FinishReason reason);
scheduler::FinishReason FromProto(v1::FinishReason reason);

// ---- orchestrator ----

v1::PlanUpdate ToProto(const scheduler::PlanUpdate& update);
absl::StatusOr<scheduler::PlanUpdate> FromProto(const v1::PlanUpdate& update);

// `identity.details` is a serialised v1::RegisterRequest with the fields that only operators read:
// admin endpoint, device, host, pid. Includes the state that a stream's first message carries.
v1::RegisterRequest ToProto(const scheduler::RegisterRequest& request);
absl::StatusOr<scheduler::RegisterRequest> FromProto(const v1::RegisterRequest& request);

v1::RegisterResponse ToProto(const scheduler::RegisterReply& reply);
absl::StatusOr<scheduler::RegisterReply> FromProto(const v1::RegisterResponse& response);

v1::ReportRequest ToProto(const scheduler::ReportRequest& request);
absl::StatusOr<scheduler::ReportRequest> FromProto(const v1::ReportRequest& request);

v1::PlaceDecodeRequest ToProto(const scheduler::PlaceDecodeRequest& request);
absl::StatusOr<scheduler::PlaceDecodeRequest> FromProto(const v1::PlaceDecodeRequest& request);
v1::PlaceDecodeResponse ToProto(const scheduler::AnswerPlaceDecode& answer);
absl::StatusOr<scheduler::PlaceDecodeReplied> FromProto(const v1::PlaceDecodeResponse& response);

// Worker messages carry no instance id on the wire, so results of FromProto have 0 here.
v1::AssignResult ToProto(const scheduler::AssignReplied& replied);
absl::StatusOr<scheduler::AssignReplied> FromProto(const v1::AssignResult& result);
v1::TransferOpened ToProto(const scheduler::TransferOpened& opened);
absl::StatusOr<scheduler::TransferOpened> FromProto(const v1::TransferOpened& opened);

v1::UnregisterRequest ToProto(const scheduler::UnregisterRequest& request);
absl::StatusOr<scheduler::UnregisterRequest> FromProto(const v1::UnregisterRequest& request);

v1::ReportResponse ToProto(const scheduler::ReportReply& reply);
absl::StatusOr<scheduler::ReportReply> FromProto(const v1::ReportResponse& response);

v1::InstanceStatus ToProto(const scheduler::InstanceStatus& status);

// ---- routers and operators ----

v1::Generation ToProto(const scheduler::Generation& generation);
absl::StatusOr<scheduler::Generation> FromProto(const v1::Generation& generation);

v1::RouterEnded ToProto(const scheduler::RouterEnd& end);
absl::StatusOr<scheduler::RouterEnd> FromProto(const v1::RouterEnded& ended);

// `details` is a serialised v1::RouterIdentity with the fields that only operators read.
v1::RouterIdentity ToProto(const scheduler::RouterIdentity& identity);
v1::RouterLoad ToProto(const scheduler::RouterLoad& load);
absl::StatusOr<scheduler::RouterLoad> FromProto(const v1::RouterLoad& load);

v1::RouterHello ToProto(const scheduler::RouterHello& hello);
absl::StatusOr<scheduler::RouterHello> FromProto(const v1::RouterHello& hello);
v1::CellReport ToProto(const scheduler::CellReport& report);
absl::StatusOr<scheduler::CellReport> FromProto(const v1::CellReport& report);
v1::RouterWelcome ToProto(const scheduler::RouterWelcome& welcome);
absl::StatusOr<scheduler::RouterWelcome> FromProto(const v1::RouterWelcome& welcome);
// Its `call` is the stream's.
v1::RouterDrain ToProto(const scheduler::OrderRouterDrain& order);
absl::StatusOr<scheduler::OrderRouterDrain> FromProto(const v1::RouterDrain& order);
// INVALID_ARGUMENT: the request belongs to another router.
absl::Status IsOfRouter(scheduler::RequestId id, uint64_t router);

v1::RouterStatus ToProto(const scheduler::RouterStatus& status);
v1::GoneStatus ToProto(const scheduler::Gone& gone, scheduler::TimeUs now);
v1::RefusedPeer ToProto(const scheduler::RefusedPeer& peer, scheduler::TimeUs now);
absl::StatusOr<scheduler::DrainRequest> FromProto(const v1::DrainRequest& request);
v1::GroupStatus ToProto(const scheduler::GroupStatus& group);
absl::StatusOr<scheduler::orchestrator::FormationOrder> FromProto(
    const v1::ChangeFormationRequest& request);

v1::RequestExplanation ToProto(const scheduler::Explanation& explanation);

// ---- workers ----

// FromProto checks that members and chunks are in range; PrefillCore checks that they form a plan.
v1::AssignRequest ToProto(const scheduler::AssignOrder& order);
absl::StatusOr<scheduler::AssignRequest> FromProto(const v1::AssignRequest& request);

v1::StartRequest ToProto(const scheduler::StartRequest& request);
absl::StatusOr<scheduler::StartRequest> FromProto(const v1::StartRequest& request);

v1::AnnounceRequest ToProto(const scheduler::AnnounceOrder& order);
absl::StatusOr<scheduler::AnnounceRequest> FromProto(const v1::AnnounceRequest& request);

v1::WithdrawRequest ToProto(const scheduler::WithdrawRequest& request);
absl::StatusOr<scheduler::WithdrawRequest> FromProto(const v1::WithdrawRequest& request);

v1::OpenTransferRequest ToProto(const scheduler::OpenTransferRequest& request);
absl::StatusOr<scheduler::OpenTransferRequest> FromProto(const v1::OpenTransferRequest& request);
v1::OpenTransferResponse ToProto(const scheduler::OpenTransferReply& reply);
absl::StatusOr<scheduler::OpenTransferReply> FromProto(const v1::OpenTransferResponse& response);

v1::RenewRequest ToProto(const scheduler::RenewRequest& request);
absl::StatusOr<scheduler::RenewRequest> FromProto(const v1::RenewRequest& request);
v1::RenewResponse ToProto(const scheduler::RenewReply& reply);
absl::StatusOr<scheduler::RenewReply> FromProto(const v1::RenewResponse& response);

v1::AcquireStagingBufferRequest ToProto(const scheduler::AcquireStagingBufferRequest& request);
absl::StatusOr<scheduler::AcquireStagingBufferRequest> FromProto(
    const v1::AcquireStagingBufferRequest& request);

v1::TakePartRequest ToProto(const scheduler::TakePartRequest& request);
absl::StatusOr<scheduler::TakePartRequest> FromProto(const v1::TakePartRequest& request);

v1::ReleaseStagingBufferRequest ToProto(const scheduler::ReleaseStagingBufferRequest& request);
absl::StatusOr<scheduler::ReleaseStagingBufferRequest> FromProto(
    const v1::ReleaseStagingBufferRequest& request);

// `payload` is a serialised v1::SampledToken or empty, `prompt_logprobs` a serialised
// v1::SampledTokens.
v1::CommitRequest ToProto(const scheduler::CommitRequest& request);
absl::StatusOr<scheduler::CommitRequest> FromProto(const v1::CommitRequest& request);

v1::PrefillTimes ToProto(const scheduler::PrefillTimes& times);
absl::StatusOr<scheduler::PrefillTimes> FromProto(const v1::PrefillTimes& times);

v1::AbortRequest ToProto(const scheduler::AbortRequest& request);
absl::StatusOr<scheduler::AbortRequest> FromProto(const v1::AbortRequest& request);

v1::CancelRequest ToProto(const scheduler::CancelRequest& request);
absl::StatusOr<scheduler::CancelRequest> FromProto(const v1::CancelRequest& request);

v1::PeerOrder ToProto(const scheduler::PeerOrder& order);
absl::StatusOr<scheduler::PeerOrder> FromProto(const v1::PeerOrder& order);
v1::GroupOrder ToProto(const scheduler::GroupOrder& order);
absl::StatusOr<scheduler::GroupOrder> FromProto(const v1::GroupOrder& order);
v1::PrepareFormation ToProto(const scheduler::PrepareFormation& order);
absl::StatusOr<scheduler::PrepareFormation> FromProto(const v1::PrepareFormation& order);
v1::CommitFormation ToProto(const scheduler::CommitFormation& order);
absl::StatusOr<scheduler::CommitFormation> FromProto(const v1::CommitFormation& order);
v1::EndFormation ToProto(const scheduler::EndFormation& order);
absl::StatusOr<scheduler::EndFormation> FromProto(const v1::EndFormation& order);
v1::ModeOrder ToProto(const scheduler::OrderMode& order);
absl::StatusOr<scheduler::OrderMode> FromProto(const v1::ModeOrder& order);
v1::ModeTold ToProto(const scheduler::ModeTold& told);
absl::StatusOr<scheduler::ModeTold> FromProto(const v1::ModeTold& told);
v1::FormationTold ToProto(const scheduler::FormationTold& told);
absl::StatusOr<scheduler::FormationTold> FromProto(const v1::FormationTold& told);
v1::DrainOrder ToProto(const scheduler::DrainOrder& order);
absl::StatusOr<scheduler::DrainOrder> FromProto(const v1::DrainOrder& order);

// ---- token streams ----

// Payloads as in a Commit. Overloads that take their argument by value move from it.
v1::TokenStreamRequest ToProto(scheduler::TokenStreamRequest request);
absl::StatusOr<scheduler::TokenStreamRequest> FromProto(const v1::TokenStreamRequest& request);
v1::TokenBatch ToProto(scheduler::TokenBatch batch);
absl::StatusOr<scheduler::TokenBatch> FromProto(const v1::TokenBatch& batch);

}  // namespace skein::services
