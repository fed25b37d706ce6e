#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/id_and_epoch.h"
#include "services/codec/internal.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

absl::StatusOr<int64_t> CountFrom(const char* field, uint64_t value) {
  if (value <= uint64_t{kMaxCount}) return static_cast<int64_t>(value);
  return Invalid(field, absl::StrCat(value, " exceeds the limit of 2^31"));
}

absl::StatusOr<scheduler::FinishedTokens> FinishedFrom(const v1::TokenBatch::Finished& finished) {
  const auto output_tokens = CountFrom("finished.output_tokens", finished.output_tokens());
  if (!output_tokens.ok()) return output_tokens.status();
  const bool stopped = finished.reason() == v1::FINISH_REASON_STOP;
  return scheduler::FinishedTokens{
      .reason = FromProto(finished.reason()),
      .status = finished.has_failure() ? FromProto(finished.failure()) : absl::OkStatus(),
      .output_tokens = *output_tokens,
      .stop_token = stopped ? finished.stop_token() : -1,
      .engine_failed = finished.engine_failed()};
}

absl::StatusOr<scheduler::SequenceTokens> SequenceFrom(const v1::TokenBatch::Sequence& sequence) {
  scheduler::SequenceTokens out;
  if (absl::Status status = ReadIdAndEpoch(sequence, &out); !status.ok()) return status;
  const auto first_index = CountFrom("first_index", sequence.first_index());
  if (!first_index.ok()) return first_index.status();
  out.first_index = *first_index;
  if (sequence.sampled_size() != 0 && sequence.sampled_size() != sequence.tokens_size()) {
    return Invalid("sampled", absl::StrCat("has ", sequence.sampled_size(), " entries for ",
                                           sequence.tokens_size(), " tokens"));
  }
  for (const int32_t token : sequence.tokens()) {
    if (token < 0) return Invalid("tokens", absl::StrCat(token, " is not a token id"));
  }
  out.tokens.assign(sequence.tokens().begin(), sequence.tokens().end());
  out.payloads.assign(sequence.sampled().begin(), sequence.sampled().end());
  out.prompt_logprobs = sequence.prompt_logprobs();
  if (sequence.has_times()) {
    // An impossible duration is treated as absent.
    if (const auto times = FromProto(sequence.times()); times.ok()) out.times = *times;
  }
  out.leaving = sequence.leaving();
  if (!sequence.has_finished()) return out;
  auto finished = FinishedFrom(sequence.finished());
  if (!finished.ok()) return finished.status();
  out.finished = *std::move(finished);
  return out;
}

void Fill(const scheduler::FinishedTokens& finished, v1::TokenBatch::Finished* out) {
  out->set_reason(ToProto(finished.reason));
  if (!finished.status.ok()) ToProto(finished.status, out->mutable_failure());
  out->set_output_tokens(static_cast<uint64_t>(finished.output_tokens));
  if (finished.stop_token >= 0) out->set_stop_token(finished.stop_token);
  out->set_engine_failed(finished.engine_failed);
}

}  // namespace

v1::TokenStreamRequest ToProto(scheduler::TokenStreamRequest request) {
  v1::TokenStreamRequest out;
  for (scheduler::AttachTokens& attach : request.attach) {
    *out.add_attach() = WithIdAndEpoch<v1::TokenStreamRequest::Attach>(attach);
    out.mutable_attach()->rbegin()->set_credit(static_cast<uint64_t>(attach.credit));
    out.mutable_attach()->rbegin()->set_traceparent(std::move(attach.traceparent));
    out.mutable_attach()->rbegin()->set_ahead(attach.ahead);
    if (attach.from_index.has_value()) {
      out.mutable_attach()->rbegin()->set_from_index(static_cast<uint64_t>(*attach.from_index));
    }
    out.mutable_attach()->rbegin()->set_incarnation(attach.decode.value);
    out.mutable_attach()->rbegin()->set_stream(attach.stream.value);
  }
  for (const scheduler::CreditTokens& credit : request.credit) {
    *out.add_credit() = WithIdAndEpoch<v1::TokenStreamRequest::Credit>(credit);
    out.mutable_credit()->rbegin()->set_more(static_cast<uint64_t>(credit.more));
    out.mutable_credit()->rbegin()->set_received(static_cast<uint64_t>(credit.received));
  }
  for (const scheduler::DetachTokens& detach : request.detach) {
    *out.add_detach() = WithIdAndEpoch<v1::TokenStreamRequest::Detach>(detach);
  }
  return out;
}

absl::StatusOr<scheduler::TokenStreamRequest> FromProto(const v1::TokenStreamRequest& request) {
  scheduler::TokenStreamRequest out;
  for (const v1::TokenStreamRequest::Attach& attach : request.attach()) {
    scheduler::AttachTokens& to = out.attach.emplace_back();
    if (absl::Status status = ReadIdAndEpoch(attach, &to); !status.ok()) return status;
    const auto credit = CountFrom("attach.credit", attach.credit());
    if (!credit.ok()) return credit.status();
    to.credit = *credit;
    to.traceparent = attach.traceparent();
    to.ahead = attach.ahead();
    to.decode = {attach.incarnation()};
    to.stream = {attach.stream()};
    if (!attach.has_from_index()) continue;
    const auto from_index = CountFrom("attach.from_index", attach.from_index());
    if (!from_index.ok()) return from_index.status();
    to.from_index = *from_index;
  }
  for (const v1::TokenStreamRequest::Credit& credit : request.credit()) {
    scheduler::CreditTokens& to = out.credit.emplace_back();
    if (absl::Status status = ReadIdAndEpoch(credit, &to); !status.ok()) return status;
    const auto more = CountFrom("credit.more", credit.more());
    if (!more.ok()) return more.status();
    to.more = *more;
    const auto received = CountFrom("credit.received", credit.received());
    if (!received.ok()) return received.status();
    to.received = *received;
  }
  for (const v1::TokenStreamRequest::Detach& detach : request.detach()) {
    scheduler::DetachTokens& to = out.detach.emplace_back();
    if (absl::Status status = ReadIdAndEpoch(detach, &to); !status.ok()) return status;
  }
  if (out.empty()) return Invalid("attach, credit, detach", "all are empty");
  return out;
}

v1::TokenBatch ToProto(scheduler::TokenBatch batch) {
  v1::TokenBatch out;
  for (scheduler::SequenceTokens& sequence : batch.sequences) {
    v1::TokenBatch::Sequence* to = out.add_sequences();
    *to->mutable_id() = ToProto(sequence.id);
    to->set_epoch(sequence.epoch.value);
    to->set_first_index(static_cast<uint64_t>(sequence.first_index));
    to->mutable_tokens()->Add(sequence.tokens.begin(), sequence.tokens.end());
    for (std::string& payload : sequence.payloads) to->add_sampled(std::move(payload));
    to->set_prompt_logprobs(std::move(sequence.prompt_logprobs));
    if (sequence.times.has_value()) *to->mutable_times() = ToProto(*sequence.times);
    if (sequence.finished.has_value()) Fill(*sequence.finished, to->mutable_finished());
    to->set_leaving(sequence.leaving);
  }
  return out;
}

absl::StatusOr<scheduler::TokenBatch> FromProto(const v1::TokenBatch& batch) {
  scheduler::TokenBatch out;
  out.sequences.reserve(static_cast<size_t>(batch.sequences_size()));
  for (const v1::TokenBatch::Sequence& sequence : batch.sequences()) {
    auto decoded = SequenceFrom(sequence);
    if (!decoded.ok()) return decoded.status();
    out.sequences.push_back(*std::move(decoded));
  }
  return out;
}

}  // namespace skein::services
