// Requests that share another one's prompt: the choices of an answer with n > 1. How, and why so:
// decode_core.h.
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

// REQUIRES: it is announced.
void DecodeCore::Impl::AwaitPrompt(RequestId id, RequestId from) {
  const Sequence* sequence = sequences_.Find(from);
  const bool coming = sequence != nullptr ? sequence->phase == Phase::kReceiving
                                          : announcements_.Find(from) != nullptr;
  if (coming && from != id) return;
  EndAnnounced(id, FinishReason::kError,
               absl::UnavailableError("prompt_of: that request's KV is not on its way here"));
}

// The KV of `from` is whole.
void DecodeCore::Impl::ShareWithAll(const Sequence& from, const KvIn::Result& result) {
  for (const RequestId id : announcements_.SharersOf(from.id())) {
    absl::Status status = Share(id, from, result);
    if (status.ok()) continue;
    // It is computed elsewhere, or here with KV of its own.
    if (absl::IsResourceExhausted(status)) status = absl::UnavailableError(status.message());
    EndAnnounced(id, FinishReason::kError, status);
  }
}

absl::Status DecodeCore::Impl::Share(RequestId id, const Sequence& from,
                                     const KvIn::Result& result) {
  const Announcements::Announced& announced = *announcements_.Find(id);
  const SpecPtr spec = announced.spec;
  const int64_t shared = SharedBlocks(*spec);
  absl::Status status = MayShare(announced, from);
  if (status.ok()) status = kv_in_.Share(from.id(), shared, spec, announced.epoch);
  if (!status.ok()) return status;
  Sequence& sequence = Enter(id);
  sequences_.Run(sequence, result.prompt_logprobs, result.times);
  block_order_.Add(id, spec->priority, sequence.arrived_us);
  batch_.Add(id, PlanSequence{sequence.epoch.value}, PromptTokens(*spec),
             shared * TokensPerBlock(config_.membership.identity.shape));
  touched_.push_back(id);
  return absl::OkStatus();
}

absl::Status DecodeCore::Impl::MayShare(const Announcements::Announced& announced,
                                        const Sequence& from) const {
  const RequestSpec& spec = *announced.spec;
  if (spec.prompt != from.spec->prompt) {
    return absl::InvalidArgumentError("prompt_of: that request has another prompt");
  }
  if (spec.max_tokens == 0) return absl::InvalidArgumentError("prompt_of: nothing is sampled");
  if (kv_in_.Has(announced.spec->id)) {
    return absl::UnavailableError("an older epoch of the request is still here");
  }
  return MayOpen(announced, kv_in_.BlocksFor(OpeningTokens(spec)) - SharedBlocks(spec));
}

// Those before the block of the prompt's last token, which is computed again to sample from it.
int64_t DecodeCore::Impl::SharedBlocks(const RequestSpec& spec) const {
  return (PromptTokens(spec) - 1) / TokensPerBlock(config_.membership.identity.shape);
}

// The KV that they were to share will not come.
void DecodeCore::Impl::EndSharers(RequestId from) {
  for (const RequestId id : announcements_.SharersOf(from)) {
    if (announcements_.Find(id) == nullptr) continue;  // ended with another one
    EndAnnounced(id, FinishReason::kError,
                 absl::UnavailableError("prompt_of: that request has ended"));
  }
}

}  // namespace skein::scheduler
