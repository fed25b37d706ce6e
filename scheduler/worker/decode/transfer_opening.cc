#include "scheduler/worker/decode/transfer_opening.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/kv/handoff_shape.h"

namespace skein::scheduler {

using Phase = DecodeSequence::Phase;

namespace {

absl::Status NotNamed(InstanceId writer) {
  return absl::FailedPreconditionError(
      absl::StrCat("prefill_instance: ", writer.value,
                   " is not among the writers that the orchestrator announced"));
}

absl::Status NotPermitted(InstanceId writer) {
  return absl::PermissionDeniedError(
      absl::StrCat("permit: is missing; prefill_instance ", writer.value,
                   " must show the one that the orchestrator signed for it"));
}

}  // namespace

// ---- calls ----

void TransferOpening::Open(const OpenTransferCalled& call, TimeUs until_us) {
  const OpenTransferRequest& request = call.request;
  const absl::Status same = CheckSameShape(request.shape, parts_.membership->identity().shape);
  if (!same.ok()) return Refuse(call, same);
  const DecodeSequence* sequence = parts_.sequences->Find(request.id, request.epoch);
  if (sequence == nullptr) return OpenAnnounced(call, until_us);
  const bool named = sequence->phase != Phase::kReceiving ||
                     parts_.kv_in->IsNamed(request.id, request.incarnation);
  if (!named) return HoldOrRefuse(call, until_us, NotNamed(request.prefill));
  if (!IsPermitted(request)) return Refuse(call, NotPermitted(request.prefill));
  parts_.kv_in->On(call, parts_.clock->Listening());
}

void TransferOpening::OpenAnnounced(const OpenTransferCalled& call, TimeUs until_us) {
  const OpenTransferRequest& request = call.request;
  const DecodeOrders::Announced* announced = parts_.orders->Find(request.id);
  if (announced == nullptr || announced->epoch != request.epoch) {
    const absl::Status why = parts_.orders->WhyGone(request.id, request.epoch).status;
    if (!absl::IsNotFound(why)) return Refuse(call, why);
    if (parts_.orders->HasAborted(request.id, request.epoch, request.incarnation)) {
      return Refuse(call, absl::CancelledError("this writer has aborted the transfer"));
    }
    return HoldOrRefuse(call, until_us,
                        absl::UnavailableError("the request was not announced here in time"));
  }
  if (announced->writers.count(request.incarnation) == 0) {
    return HoldOrRefuse(call, until_us, NotNamed(request.prefill));
  }
  if (!IsPermitted(request)) return Refuse(call, NotPermitted(request.prefill));
  if (parts_.kv_in->Has(request.id)) {
    return HoldOrRefuse(call, until_us,
                        absl::UnavailableError("an older epoch of the request is still here"));
  }
  const bool for_group = announced->formation != 0 && parts_.kv_in->staging_buffers() == nullptr;
  const absl::Status taken = for_group ? ReserveInGroup(*announced) : TakeBlocks(*announced);
  if (for_group && absl::IsUnavailable(taken)) return HoldOrRefuse(call, until_us, taken);
  if (!taken.ok()) return Refuse(call, taken);
  parts_.kv_in->On(call, parts_.clock->Listening());
}

bool TransferOpening::IsPermitted(const OpenTransferRequest& request) const {
  return !request.unpermitted || parts_.orders->IsExcused(request.incarnation);
}

void TransferOpening::Refuse(const OpenTransferCalled& call, const absl::Status& status) {
  parts_.effects->push_back(AnswerOpenTransfer{call.call, {.status = status}});
}

void TransferOpening::HoldOrRefuse(const OpenTransferCalled& call, TimeUs until_us,
                                   const absl::Status& status) {
  if (parts_.clock->now < until_us) return waiting_.Hold(call, until_us);
  Refuse(call, status);
}

void TransferOpening::Retry(RequestId id) {
  for (const auto& [call, until_us] : waiting_.TakeHeld(id)) Open(call, until_us);
}

void TransferOpening::RunTimers() {
  const TimeUs now = parts_.clock->now;
  while (const std::optional<OpenTransferCalled> call = waiting_.TakeOverdue(now)) Open(*call, now);
}

// ---- room ----

absl::Status TransferOpening::CheckTokens(const RequestSpec& spec) const {
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  if (spec.max_tokens < 0) return absl::InvalidArgumentError("max_tokens: negative");
  const int64_t tokens = PromptTokens(spec) + spec.max_tokens;
  if (config_.max_sequence_tokens == 0 || tokens <= config_.max_sequence_tokens) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("prompt + max_tokens: ", tokens,
                                                 " tokens exceed the limit of ",
                                                 config_.max_sequence_tokens));
}

absl::Status TransferOpening::FitsAlone(const RequestSpec& spec) const {
  const int64_t tokens = PromptTokens(spec) + spec.max_tokens;
  const int64_t total = parts_.kv_in->own_blocks();  // extra ones may go before it has ended
  if (parts_.kv_in->BlocksFor(tokens) <= total) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "prompt + max_tokens: ", tokens, " tokens exceed the KV cache of this instance, ",
      total * TokensPerBlock(parts_.membership->identity().shape), " tokens"));
}

absl::Status TransferOpening::MayRun(const DecodeOrders::Announced& announced) const {
  if (!announced.checked.ok()) return announced.checked;
  if (!parts_.steps->engine().ok()) return absl::ResourceExhaustedError("the engine has failed");
  if (parts_.membership->draining()) {
    return absl::ResourceExhaustedError("the instance is draining");
  }
  return CheckTokens(*announced.spec);
}

bool TransferOpening::Full() const { return parts_.sequences->CountLive() >= config_.max_requests; }

absl::Status TransferOpening::MayOpen(const DecodeOrders::Announced& announced,
                                      int64_t blocks) const {
  if (absl::Status status = MayRun(announced); !status.ok()) return status;
  if (!parts_.group->TakesOwn()) {
    return absl::ResourceExhaustedError("the instance is being bound: its own requests end first");
  }
  if (absl::Status status = FitsAlone(*announced.spec); !status.ok()) return status;
  if (absl::Status status = parts_.running->MayEnter(blocks); !status.ok()) return status;
  return NotFull();
}

absl::Status TransferOpening::NotFull() const {
  if (!Full()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("request limit reached (max_requests=", config_.max_requests, ")"));
}

// Those of the prompt, all or none; the rest is taken as tokens come. OK: the request is a sequence
// from here on, and `announced` is gone. REQUIRES: no older epoch of it has blocks.
absl::Status TransferOpening::TakeBlocks(const DecodeOrders::Announced& announced) {
  const RequestId id = announced.spec->id;
  const int64_t blocks = parts_.kv_in->BlocksFor(OpeningTokens(*announced.spec));
  if (absl::Status status = MayOpen(announced, blocks); !status.ok()) return status;
  const std::vector<Incarnation> writers(announced.writers.begin(), announced.writers.end());
  absl::Status status =
      parts_.kv_in->Reserve(announced.spec, announced.epoch, writers, parts_.clock->Listening());
  if (status.ok()) Enter(id);
  return status;
}

// As TakeBlocks, at every rank of the group. UNAVAILABLE: not all have answered.
absl::Status TransferOpening::ReserveInGroup(const DecodeOrders::Announced& announced) {
  if (absl::Status status = MayRun(announced); !status.ok()) return status;
  if (absl::Status status = NotFull(); !status.ok()) return status;
  absl::StatusOr<BoundGroup::Targets> targets = parts_.group->Reserve(
      announced.formation, announced.spec, announced.epoch, parts_.clock->now);
  if (!targets.ok()) return targets.status();
  const std::vector<Incarnation> writers(announced.writers.begin(), announced.writers.end());
  parts_.kv_in->ReserveForGroup(announced.spec, announced.epoch, writers, targets->layout,
                                std::move(targets->others), parts_.clock->Listening());
  Enter(announced.spec->id);
  return absl::OkStatus();
}

DecodeSequence& TransferOpening::Enter(RequestId id) {
  const DecodeOrders::Announced announced = parts_.orders->Take(id);
  DecodeSequences& sequences = *parts_.sequences;
  if (sequences.Find(id) != nullptr) sequences.Erase(id);  // an older epoch, for its router only
  DecodeSequence& sequence = sequences.Add(announced.spec, announced.epoch, parts_.clock->now,
                                           parts_.clock->Listening() + config_.attach_lease_us);
  sequence.suspect = announced.suspect;
  parts_.effects->push_back(TellOpened{{parts_.membership->instance(), id, sequence.epoch}});
  parts_.membership->Holds({.id = id, .epoch = sequence.epoch, .opened = true});
  if (const auto call = parts_.expected_streams->Take(id, sequence.epoch)) {
    sequences.Attach(sequence, *call);
  }
  return sequence;
}

}  // namespace skein::scheduler
