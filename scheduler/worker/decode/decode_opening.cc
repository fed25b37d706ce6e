// Before a request's KV: its announcement, and the first OpenTransfer, which takes blocks.
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

KvIn::Gone DecodeCore::Impl::WhyGone(RequestId id, Epoch epoch) const {
  const Sequence* sequence = sequences_.Find(id);
  if (sequence != nullptr && sequence->epoch == epoch && sequence->phase == Phase::kPreempted) {
    return {absl::FailedPreconditionError("the request was committed already"), true};
  }
  const Announcements::Announced* announced = announcements_.Find(id);
  if ((sequence != nullptr && sequence->epoch > epoch) ||
      (announced != nullptr && announced->epoch > epoch)) {
    return {absl::FailedPreconditionError("epoch: stale"), false};
  }
  if (tombstones_.Covers(id, epoch)) {
    return {absl::CancelledError("the request has ended"), tombstones_.Committed(id, epoch)};
  }
  return {absl::NotFoundError("no transfer of the request is open here"), false};
}

void DecodeCore::Impl::On(const AnnounceCalled& event) {
  const AnnounceRequest& request = event.request;
  const RequestId id = request.spec->id;
  touched_.push_back(id);
  const Sequence* known = sequences_.Find(id, request.epoch);
  if (known != nullptr && known->phase == Phase::kReceiving) {
    return kv_in_.AddWriters(id, request.writers);
  }
  // A whole answer that no router has taken yet is no end: the announcement came once more.
  if ((known != nullptr && !known->told) || !MayAnnounce(request)) return;
  const TimeUs budget = request.spec->deadline_us;
  announcements_.Add(request, event.checked,
                     now_ + (budget > 0 ? budget : config_.request_deadline_us));
  membership_.Holds({.id = id, .epoch = request.epoch, .opened = false});
  if (request.prompt_of.has_value()) AwaitPrompt(id, *request.prompt_of);
}

// Ends an older epoch of the request, wherever it stands.
bool DecodeCore::Impl::MayAnnounce(const AnnounceRequest& request) {
  const RequestId id = request.spec->id;
  const Announcements::Announced* announced = announcements_.Find(id);
  Sequence* sequence = sequences_.Find(id);
  const bool stale = (announced != nullptr && announced->epoch > request.epoch) ||
                     (sequence != nullptr && sequence->epoch > request.epoch);
  if (stale || tombstones_.Covers(id, request.epoch)) {
    membership_.Ended({.id = id,
                       .epoch = request.epoch,
                       .reason = FinishReason::kError,
                       .status = absl::UnavailableError("epoch: ended already")});
    return false;
  }
  const absl::Status anew = absl::CancelledError("planned anew");
  if (sequence != nullptr) End(*sequence, FinishReason::kCancelled, anew);
  if (announced != nullptr && announced->epoch < request.epoch) {
    EndAnnounced(id, FinishReason::kCancelled, anew);
  }
  return true;
}

// REQUIRES: it is announced.
void DecodeCore::Impl::EndAnnounced(RequestId id, FinishReason reason, const absl::Status& status) {
  const Epoch epoch = announcements_.Take(id).epoch;
  Bury(id, epoch, false, status);
  membership_.Ended({.id = id, .epoch = epoch, .reason = reason, .status = status});
  touched_.push_back(id);
  EndSharers(id);
}

void DecodeCore::Impl::On(const WithdrawCalled& event) {
  const WithdrawRequest& request = event.request;
  if (!CheckEpoch(request.epoch).ok()) return;
  if (announcements_.Has(request.id, request.epoch)) {
    announcements_.Take(request.id);
    membership_.Gone(request.id, request.epoch);
    EndSharers(request.id);
  } else if (Sequence* sequence = sequences_.Find(request.id, request.epoch)) {
    End(*sequence, FinishReason::kError, absl::UnavailableError("placed elsewhere"));
  }
}

// All tokens of a sequence must fit the pool: it may have to be recomputed when it is alone.
absl::Status DecodeCore::Impl::CanEverFit(const RequestSpec& spec) const {
  if (spec.max_tokens < 0) return absl::InvalidArgumentError("max_tokens: negative");
  const int64_t tokens = PromptTokens(spec) + spec.max_tokens;
  if (config_.max_sequence_tokens > 0 && tokens > config_.max_sequence_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("prompt + max_tokens: ", tokens,
                                                   " tokens exceed the limit of ",
                                                   config_.max_sequence_tokens));
  }
  const int64_t total = kv_in_.blocks().total;
  if (kv_in_.BlocksFor(tokens) <= total) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "prompt + max_tokens: ", tokens, " tokens exceed the KV cache of this instance, ",
      total * TokensPerBlock(config_.membership.identity.shape), " tokens"));
}

// It takes so many blocks. RESOURCE_EXHAUSTED: another instance may take it.
absl::Status DecodeCore::Impl::MayOpen(const Announcements::Announced& announced,
                                       int64_t blocks) const {
  const RequestSpec& spec = *announced.spec;
  if (!announced.checked.ok()) return announced.checked;
  if (!steps_.engine().ok()) return absl::ResourceExhaustedError("the engine has failed");
  if (membership_.draining()) return absl::ResourceExhaustedError("draining");
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  if (absl::Status status = CanEverFit(spec); !status.ok()) return status;
  if (SomeWaitForBlocks()) {
    return absl::ResourceExhaustedError("KV blocks: sequences that are here wait for them");
  }
  if (absl::Status status = HasRoom(blocks); !status.ok()) return status;
  if (sequences_.CountLive() >= config_.max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("request limit reached (max_requests=", config_.max_requests, ")"));
  }
  return absl::OkStatus();
}

// Those of the prompt, all or none; the rest is taken as tokens come. OK: the request is a sequence
// from here on. REQUIRES: it is announced, and no older epoch of it has blocks.
absl::Status DecodeCore::Impl::TakeBlocks(RequestId id) {
  const Announcements::Announced& announced = *announcements_.Find(id);
  const int64_t blocks = kv_in_.BlocksFor(OpeningTokens(*announced.spec));
  if (absl::Status status = MayOpen(announced, blocks); !status.ok()) return status;
  const std::vector<Incarnation> writers(announced.writers.begin(), announced.writers.end());
  absl::Status status = kv_in_.Reserve(announced.spec, announced.epoch, writers, Listening());
  if (status.ok()) Enter(id);
  return status;
}

// An announced request has blocks now: it becomes a sequence, receiving.
DecodeSequence& DecodeCore::Impl::Enter(RequestId id) {
  const Announcements::Announced announced = announcements_.Take(id);
  if (sequences_.Find(id) != nullptr) sequences_.Erase(id);  // an older epoch, for its router only
  Sequence& sequence =
      sequences_.Add(announced.spec, announced.epoch, now_, Listening() + config_.attach_lease_us);
  effects_.push_back(TellOpened{{membership_.instance(), id, sequence.epoch}});
  membership_.Holds({.id = id, .epoch = sequence.epoch, .opened = true});
  if (const auto call = expected_streams_.Take(id, sequence.epoch)) {
    sequences_.Attach(sequence, *call);
  }
  return sequence;
}

void DecodeCore::Impl::Refuse(const OpenTransferCalled& grant, const absl::Status& status) {
  effects_.push_back(AnswerOpenTransfer{grant.call, {.status = status}});
}

void DecodeCore::Impl::HoldOrRefuse(const OpenTransferCalled& grant, TimeUs until_us,
                                    const absl::Status& status) {
  if (now_ < until_us) return announcements_.Hold(grant, until_us);
  Refuse(grant, status);
}

// Answers OpenTransfer, or holds it until the announcement that names its writer has come, or the
// blocks of an older epoch are free, or `until_us`.
void DecodeCore::Impl::Open(const OpenTransferCalled& grant, TimeUs until_us) {
  const OpenTransferRequest& request = grant.request;
  const RequestId id = request.id;
  const absl::Status same = CheckSameShape(request.shape, membership_.identity().shape);
  if (!same.ok()) return Refuse(grant, same);
  const absl::Status not_named = absl::FailedPreconditionError(
      absl::StrCat("prefill_instance: ", request.prefill.value,
                   " is not among the writers that the orchestrator announced"));
  if (const Sequence* sequence = sequences_.Find(id, request.epoch); sequence != nullptr) {
    const bool named =
        sequence->phase != Phase::kReceiving || kv_in_.IsNamed(id, request.incarnation);
    return named ? kv_in_.On(grant, Listening()) : HoldOrRefuse(grant, until_us, not_named);
  }
  const Announcements::Announced* announced = announcements_.Find(id);
  if (announced == nullptr || announced->epoch != request.epoch) {
    const absl::Status why = WhyGone(id, request.epoch).status;
    if (!absl::IsNotFound(why)) return Refuse(grant, why);
    return HoldOrRefuse(grant, until_us,
                        absl::UnavailableError("the request was not announced here in time"));
  }
  if (announced->writers.count(request.incarnation) == 0) {
    return HoldOrRefuse(grant, until_us, not_named);
  }
  if (kv_in_.Has(id)) {
    return HoldOrRefuse(grant, until_us,
                        absl::UnavailableError("an older epoch of the request is still here"));
  }
  if (absl::Status status = TakeBlocks(id); !status.ok()) return Refuse(grant, status);
  kv_in_.On(grant, Listening());
}

}  // namespace skein::scheduler
