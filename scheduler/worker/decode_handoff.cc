// How KV comes into a decode-worker: announcement, grant, lease, commit, abort.
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
  const auto announced = announced_.find(id);
  if ((it != sequences_.end() && it->second.epoch > epoch) ||
      (announced != announced_.end() && announced->second.epoch > epoch)) {
    return absl::FailedPreconditionError("epoch: stale");
  }
  if (tombstones_.Covers(id, epoch)) return absl::CancelledError("the request has ended");
  return absl::NotFoundError("no transfer of the request is open here");
}

void DecodeCore::Impl::On(const AnnounceCalled& event) {
  const AnnounceRequest& request = event.request;
  const RequestId id = request.spec->id;
  if (Sequence* known = Find(id, request.epoch);
      known != nullptr && known->phase != Phase::kEnded) {
    known->named.insert(request.writers.begin(), request.writers.end());
    return;
  }
  if (!MayAnnounce(request)) return;
  Announced& announced = announced_[id];
  announced.spec = request.spec;
  announced.epoch = request.epoch;
  announced.checked = event.checked;
  announced.named.insert(request.writers.begin(), request.writers.end());
  membership_.Holds({.id = id, .epoch = request.epoch, .opened = false});
  const TimeUs budget = request.spec->deadline_us;
  announced_ends_.Set(id, now_ + (budget > 0 ? budget : config_.request_deadline_us));
}

// Ends an older epoch of the request, wherever it stands.
bool DecodeCore::Impl::MayAnnounce(const AnnounceRequest& request) {
  const RequestId id = request.spec->id;
  const auto announced = announced_.find(id);
  const auto sequence = sequences_.find(id);
  const bool stale = (announced != announced_.end() && announced->second.epoch > request.epoch) ||
                     (sequence != sequences_.end() && sequence->second.epoch > request.epoch);
  if (stale || tombstones_.Covers(id, request.epoch)) {
    RefuseAnnouncement(request, absl::UnavailableError("epoch: ended already"));
    return false;
  }
  const absl::Status anew = absl::CancelledError("planned anew");
  if (sequence != sequences_.end()) End(sequence->second, FinishReason::kCancelled, anew);
  if (announced != announced_.end() && announced->second.epoch < request.epoch) {
    EndAnnounced(id, FinishReason::kCancelled, anew);
  }
  return true;
}

void DecodeCore::Impl::RefuseAnnouncement(const AnnounceRequest& request, const absl::Status& why) {
  membership_.Ended({.id = request.spec->id,
                     .epoch = request.epoch,
                     .reason = FinishReason::kError,
                     .status = why});
}

// REQUIRES: it is announced.
void DecodeCore::Impl::EndAnnounced(RequestId id, FinishReason reason, const absl::Status& status) {
  const auto it = announced_.find(id);
  tombstones_.Put(id, it->second.epoch, false);
  membership_.Ended({.id = id, .epoch = it->second.epoch, .reason = reason, .status = status});
  announced_.erase(it);
  announced_ends_.Remove(id);
}

void DecodeCore::Impl::On(const WithdrawCalled& event) {
  const WithdrawRequest& request = event.request;
  if (!CheckEpoch(request.epoch).ok()) return;
  const auto it = announced_.find(request.id);
  if (it != announced_.end() && it->second.epoch == request.epoch) {
    announced_.erase(it);
    announced_ends_.Remove(request.id);
    membership_.Gone(request.id, request.epoch);
  } else if (Sequence* sequence = Find(request.id, request.epoch)) {
    End(*sequence, FinishReason::kError, absl::UnavailableError("placed elsewhere"));
  }
}

// RESOURCE_EXHAUSTED: another instance may take it.
absl::Status DecodeCore::Impl::MayOpen(const Announced& announced) const {
  const RequestSpec& spec = *announced.spec;
  if (!announced.checked.ok()) return announced.checked;
  if (!steps_.engine().ok()) return absl::ResourceExhaustedError("the engine has failed");
  if (membership_.draining()) return absl::ResourceExhaustedError("draining");
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  const int64_t tokens = PromptTokens(spec) + spec.max_tokens;
  if (spec.max_tokens < 0 || BlocksFor(spec) > pool_.Counts().total ||
      (config_.max_sequence_tokens > 0 && tokens > config_.max_sequence_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt + max_tokens: ", tokens, " can never fit this instance"));
  }
  if (LiveCount() >= config_.max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("request limit reached (max_requests=", config_.max_requests, ")"));
  }
  return absl::OkStatus();
}

// Of prompt and output, all or none. OK: the request is a sequence from here on.
absl::Status DecodeCore::Impl::TakeBlocks(const Announced& announced) {
  if (absl::Status status = MayOpen(announced); !status.ok()) return status;
  absl::StatusOr<BlockTable> blocks = pool_.Allocate(BlocksFor(*announced.spec));
  if (!blocks.ok()) return blocks.status();
  const RequestId id = announced.spec->id;
  Sequence sequence;
  sequence.spec = announced.spec;
  sequence.epoch = announced.epoch;
  sequence.arrived_us = now_;
  sequence.blocks = *std::move(blocks);
  sequence.named = announced.named;
  sequence.lease_end_us = Listening() + config_.lease_us;
  sequence.attach_end_us = Listening() + config_.attach_lease_us;
  effects_.push_back(TellOpened{{membership_.instance(), id, sequence.epoch}});
  membership_.Holds({.id = id, .epoch = sequence.epoch, .opened = true});
  sequences_.insert_or_assign(id, std::move(sequence));
  announced_.erase(id);
  announced_ends_.Remove(id);
  return absl::OkStatus();
}

void DecodeCore::Impl::On(const GrantCalled& event) {
  GrantReply reply{CheckSameShape(event.request.shape, shape_)};
  if (!reply.status.ok()) {
    effects_.push_back(AnswerGrant{event.call, std::move(reply)});
    return;
  }
  openings_.push_back({event.call, event.request, now_ + config_.open_wait_us});
}

void DecodeCore::Impl::AnswerOpenings() {
  std::erase_if(openings_, [this](const Opening& opening) {
    std::optional<GrantReply> reply = ReplyTo(opening);
    if (!reply.has_value()) return false;
    effects_.push_back(AnswerGrant{opening.call, *std::move(reply)});
    return true;
  });
}

// None: it waits for the announcement that names its writer, or for the blocks of an older epoch.
std::optional<GrantReply> DecodeCore::Impl::ReplyTo(const Opening& opening) {
  const GrantRequest& request = opening.request;
  const bool waits = now_ < opening.until_us;
  const absl::Status not_named = absl::FailedPreconditionError(
      absl::StrCat("prefill_instance: ", request.prefill.value,
                   " is not among the writers that the orchestrator announced"));
  const auto refuse_later = [waits](absl::Status status) {
    return waits ? std::nullopt : std::optional<GrantReply>(GrantReply{std::move(status)});
  };
  if (Sequence* sequence = Find(request.id, request.epoch)) {
    const bool live = sequence->phase == Phase::kGranted;
    if (live && sequence->named.count(request.incarnation) == 0) return refuse_later(not_named);
    return GrantWriting(*sequence, request);
  }
  const auto announced = announced_.find(request.id);
  if (announced == announced_.end() || announced->second.epoch != request.epoch) {
    const absl::Status why = WhyGone(request.id, request.epoch);
    if (!absl::IsNotFound(why)) return GrantReply{why};
    return refuse_later(absl::UnavailableError("the request was not announced here in time"));
  }
  if (announced->second.named.count(request.incarnation) == 0) return refuse_later(not_named);
  const auto older = sequences_.find(request.id);
  if (older != sequences_.end() && older->second.blocks != nullptr) {
    return refuse_later(absl::UnavailableError("an older epoch of the request is still here"));
  }
  if (absl::Status status = TakeBlocks(announced->second); !status.ok()) {
    return GrantReply{std::move(status)};
  }
  return GrantWriting(*Find(request.id, request.epoch), request);
}

GrantReply DecodeCore::Impl::GrantWriting(Sequence& sequence, const GrantRequest& request) {
  if (sequence.phase == Phase::kEnded) return {WhyGone(request.id, request.epoch)};
  if (sequence.phase == Phase::kRunning) {
    return {absl::FailedPreconditionError("the request was committed already")};
  }
  const auto [writer, added] = sequence.writers.try_emplace(request.prefill);
  if (!writer->second.writing) {  // the Grant of before its Commit came once more
    return {absl::FailedPreconditionError("the writer has committed already")};
  }
  sequence.lease_end_us = writer->second.lease_end_us = Listening() + config_.lease_us;
  GrantReply reply;
  reply.lease_us = config_.lease_us;
  reply.layout = LayoutOf(shape_);
  if (backends_.has_value()) {
    reply.staging_slots = config_.staging.slots;
    return reply;
  }
  const int64_t prompt_tokens = PromptTokens(*sequence.spec);
  reply.blocks.assign(sequence.blocks->begin(),
                      sequence.blocks->begin() + BlocksOf(shape_, prompt_tokens));
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
    return;
  }
  const auto announced = announced_.find(abort.id);
  if (announced != announced_.end() && announced->second.epoch == abort.epoch) {
    return EndAnnounced(abort.id, FinishReason::kError, abort.reason);
  }
  tombstones_.Put(abort.id, abort.epoch, false);
}

}  // namespace skein::scheduler
