// How KV comes into a decode-worker: reservation, grant, lease, commit, abort.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode_impl.h"

namespace skein::scheduler {

int64_t DecodeCore::Impl::BlocksFor(const RequestSpec& spec) const {
  return BlocksOf(shape_, PromptTokens(spec) + spec.max_tokens);
}

absl::Status DecodeCore::Impl::WhyGone(RequestId id, Epoch epoch) const {
  const auto it = sequences_.find(id);
  if (it != sequences_.end() && it->second.epoch > epoch) {
    return absl::FailedPreconditionError("epoch: stale");
  }
  if (tombstones_.Covers(id, epoch)) return absl::CancelledError("the request has ended");
  return absl::NotFoundError("no reservation for the request");
}

void DecodeCore::Impl::On(const ReserveCalled& event) {
  effects_.push_back(AnswerReserve{event.call, Reserve(event.request)});
}

absl::Status DecodeCore::Impl::MayReserve(const ReserveRequest& request) const {
  const RequestSpec& spec = *request.spec;
  if (tombstones_.Covers(spec.id, request.epoch)) {
    return absl::FailedPreconditionError("epoch: ended already");
  }
  if (!steps_.engine().ok()) return absl::UnavailableError("the engine has failed");
  if (membership_.draining()) return absl::UnavailableError("draining");
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  const int64_t tokens = PromptTokens(spec) + spec.max_tokens;
  if (spec.max_tokens < 0 || BlocksFor(spec) > pool_.Counts().total ||
      (config_.max_sequence_tokens > 0 && tokens > config_.max_sequence_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt + max_tokens: ", tokens, " can never fit this instance"));
  }
  if (LiveCount() >= config_.max_requests) {
    return absl::ResourceExhaustedError("the decode instance has its most requests");
  }
  return absl::OkStatus();
}

ReserveReply DecodeCore::Impl::Reserve(const ReserveRequest& request) {
  const RequestId id = request.spec->id;
  if (const auto it = sequences_.find(id); it != sequences_.end()) {
    Sequence& known = it->second;
    if (known.epoch == request.epoch && known.phase != Phase::kEnded) {
      known.named.insert(request.writers.begin(), request.writers.end());
      return {absl::OkStatus(), config_.lease_us};  // a retry, or more writers
    }
    if (known.epoch >= request.epoch) return {absl::FailedPreconditionError("epoch: stale")};
    End(known, FinishReason::kCancelled, absl::CancelledError("planned anew"));
    if (known.blocks != nullptr) return {absl::UnavailableError("an older epoch is still here")};
    sequences_.erase(it);
  }
  if (absl::Status status = MayReserve(request); !status.ok()) return {std::move(status)};
  absl::StatusOr<BlockTable> blocks = pool_.Allocate(BlocksFor(*request.spec));
  if (!blocks.ok()) return {blocks.status()};
  Sequence sequence;
  sequence.spec = request.spec;
  sequence.epoch = request.epoch;
  sequence.arrived_us = now_;
  sequence.blocks = *std::move(blocks);
  sequence.named.insert(request.writers.begin(), request.writers.end());
  sequence.lease_end_us = Listening() + config_.lease_us;
  sequence.attach_end_us = Listening() + config_.attach_lease_us;
  sequences_.emplace(id, std::move(sequence));
  return {absl::OkStatus(), config_.lease_us};
}

void DecodeCore::Impl::On(const GrantCalled& event) {
  effects_.push_back(AnswerGrant{event.call, GrantWriting(event.request)});
}

GrantReply DecodeCore::Impl::GrantWriting(const GrantRequest& request) {
  GrantReply reply;
  reply.status = CheckSameShape(request.shape, shape_);
  if (!reply.status.ok()) return reply;
  Sequence* sequence = Find(request.id, request.epoch);
  if (sequence == nullptr || sequence->phase == Phase::kEnded) {
    reply.status = WhyGone(request.id, request.epoch);
    return reply;
  }
  if (sequence->phase == Phase::kRunning) {
    reply.status = absl::FailedPreconditionError("the request was committed already");
    return reply;
  }
  if (sequence->named.count(request.incarnation) == 0) {
    reply.status = absl::FailedPreconditionError(
        absl::StrCat("prefill_instance: ", request.prefill.value,
                     " is not among the writers that the reservation names"));
    return reply;
  }
  const auto [writer, added] = sequence->writers.try_emplace(request.prefill);
  if (!writer->second.writing) {  // the Grant of before its Commit came once more
    reply.status = absl::FailedPreconditionError("the writer has committed already");
    return reply;
  }
  sequence->phase = Phase::kGranted;
  sequence->lease_end_us = writer->second.lease_end_us = Listening() + config_.lease_us;
  reply.lease_us = config_.lease_us;
  if (backends_.has_value()) {
    reply.staging_slots = config_.staging.slots;
    return reply;
  }
  const int64_t prompt_tokens = PromptTokens(*sequence->spec);
  reply.blocks.assign(sequence->blocks->begin(),
                      sequence->blocks->begin() + BlocksOf(shape_, prompt_tokens));
  reply.memory = config_.memory;
  return reply;
}

void DecodeCore::Impl::On(const RenewCalled& event) {
  effects_.push_back(AnswerRenew{event.call, {RenewLease(event.request), config_.lease_us}});
}

absl::Status DecodeCore::Impl::RenewLease(const RenewRequest& request) {
  Sequence* sequence = Find(request.id, request.epoch);
  if (sequence == nullptr || sequence->phase == Phase::kEnded) {
    return tombstones_.Committed(request.id, request.epoch) ? absl::OkStatus()
                                                            : WhyGone(request.id, request.epoch);
  }
  if (sequence->phase == Phase::kRunning) return absl::OkStatus();
  const auto writer = sequence->writers.find(request.prefill);
  if (writer == sequence->writers.end()) {
    return absl::FailedPreconditionError("nothing was granted to this writer");
  }
  sequence->lease_end_us = writer->second.lease_end_us = Listening() + config_.lease_us;
  if (backends_.has_value()) {
    backends_->Renew({request.id, request.epoch}, request.prefill, Listening());
  }
  return absl::OkStatus();
}

void DecodeCore::Impl::On(const CommitCalled& event) {
  effects_.push_back(AnswerCommit{event.call, {Commit(event.request)}});
}

absl::Status DecodeCore::Impl::Commit(const CommitRequest& request) {
  WriterStopped(request.id, request.epoch, request.prefill);
  if (tombstones_.Committed(request.id, request.epoch)) return absl::OkStatus();  // said again
  Sequence* sequence = Find(request.id, request.epoch);
  if (sequence == nullptr || sequence->phase == Phase::kEnded) {
    return sequence != nullptr && sequence->committed ? absl::OkStatus()
                                                      : WhyGone(request.id, request.epoch);
  }
  if (sequence->committed) return absl::OkStatus();
  const auto writer = sequence->writers.find(request.prefill);
  if (writer == sequence->writers.end()) {
    return absl::FailedPreconditionError("nothing was granted to this writer");
  }
  if (!writer->second.writing) return absl::OkStatus();  // said again, while others write
  writer->second.writing = false;  // whatever becomes of it, it writes no more
  sequence->lease_end_us = Listening() + config_.lease_us;
  absl::Status status = writer->second.part_under_way
                            ? absl::InvalidArgumentError("commit: a part is still being taken")
                            : TakeCommit(*sequence, request);
  if (!status.ok()) {
    End(*sequence, FinishReason::kError, status);
    return status;
  }
  if (Whole(*sequence)) Run(*sequence);
  return absl::OkStatus();
}

absl::Status DecodeCore::Impl::TakeCommit(Sequence& sequence, const CommitRequest& request) const {
  if (absl::Status status = AddBytes(sequence, request.bytes_per_layer); !status.ok()) {
    return status;
  }
  if (!request.prompt_logprobs.empty()) sequence.prompt_logprobs = request.prompt_logprobs;
  AddTimes(sequence, request.times);
  const bool wanted = sequence.spec->max_tokens > 0;
  if (request.has_token && (sequence.has_token || !wanted)) {
    return absl::InvalidArgumentError("first token: once, and only if max_tokens > 0");
  }
  if (request.has_token) {
    sequence.has_token = true;
    sequence.token = request.token;
    sequence.payload = request.payload;
  }
  const bool all =
      sequence.bytes_written.front() == HandoffBytesPerLayer(shape_, PromptTokens(*sequence.spec));
  if (all && wanted && !sequence.has_token) {
    return absl::InvalidArgumentError("first token: no writer brought it");
  }
  return absl::OkStatus();
}

// The writer that computed for longest saw the whole prefill: a plan's lead is in all its chunks.
void DecodeCore::Impl::AddTimes(Sequence& sequence, const PrefillTimes& times) {
  if (!sequence.times.has_value()) sequence.times.emplace();
  const TimeUs handoff_us = std::max(sequence.times->handoff_us, times.handoff_us);
  if (times.prefill_us >= sequence.times->prefill_us) sequence.times = times;
  sequence.times->handoff_us = handoff_us;
}

absl::Status DecodeCore::Impl::AddBytes(Sequence& sequence,
                                        const std::vector<int64_t>& bytes) const {
  if (static_cast<int32_t>(bytes.size()) != shape_.num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers: ", bytes.size(), " written, ", shape_.num_layers, " expected"));
  }
  const int64_t expected = HandoffBytesPerLayer(shape_, PromptTokens(*sequence.spec));
  sequence.bytes_written.resize(bytes.size());
  for (size_t layer = 0; layer < bytes.size(); ++layer) {
    int64_t& written = sequence.bytes_written[layer];
    written += bytes[layer];
    if (bytes[layer] == bytes[0] && bytes[layer] >= 0 && written <= expected) continue;
    return absl::InvalidArgumentError(absl::StrCat("bytes of layer ", layer, ": ", bytes[layer],
                                                   " written, ", written, " of ", expected,
                                                   " in all"));
  }
  return absl::OkStatus();
}

bool DecodeCore::Impl::Whole(const Sequence& sequence) const {
  return sequence.bytes_written.front() ==
         HandoffBytesPerLayer(shape_, PromptTokens(*sequence.spec));
}

void DecodeCore::Impl::Run(Sequence& sequence) {
  const RequestId id = sequence.spec->id;
  sequence.committed = true;
  sequence.phase = Phase::kRunning;
  if (backends_.has_value()) backends_->End({id, sequence.epoch}, Listening());
  membership_.ReportSoon();
  if (!sequence.has_token) {
    return End(sequence, FinishReason::kLength, absl::OkStatus());
  }
  TakeToken(sequence, sequence.token, sequence.payload);
  if (sequence.phase == Phase::kRunning) {
    const int64_t prompt_tokens = PromptTokens(*sequence.spec);
    batch_.Add(id, PlanSequence{sequence.epoch.value}, prompt_tokens + 1, prompt_tokens);
  }
}

void DecodeCore::Impl::WriterStopped(RequestId id, Epoch epoch, InstanceId writer) {
  const auto it = quarantines_.find({id, epoch});
  if (it != quarantines_.end()) it->second.writers.erase(writer);  // EndQuarantines does the rest
  if (backends_.has_value()) backends_->Finished({id, epoch}, writer, Listening());
}

void DecodeCore::Impl::On(const AbortCalled& event) {
  const AbortRequest& abort = event.request;
  if (!CheckEpoch(abort.epoch).ok()) return;
  WriterStopped(abort.id, abort.epoch, abort.prefill);
  if (Sequence* sequence = Find(abort.id, abort.epoch); sequence != nullptr) {
    sequence->writers.erase(abort.prefill);
    End(*sequence, FinishReason::kError,
        abort.reason.ok() ? absl::InternalError("aborted") : abort.reason);
  } else {
    tombstones_.Put(abort.id, abort.epoch, false);
  }
}

}  // namespace skein::scheduler
