#include "scheduler/worker/decode/prompt_sharing.h"

namespace skein::scheduler {

void PromptSharing::ShareWithAll(const DecodeSequence& from, const KvIn::Result& result) {
  for (const RequestId id : parts_.orders->SharersOf(from.id())) {
    absl::Status status = Share(id, from, result);
    if (status.ok()) continue;
    // It is computed elsewhere, or here with KV of its own.
    if (absl::IsResourceExhausted(status)) status = absl::UnavailableError(status.message());
    parts_.orders->EndAnnounced(id, FinishReason::kError, status);
  }
}

absl::Status PromptSharing::Share(RequestId id, const DecodeSequence& from,
                                  const KvIn::Result& result) {
  const DecodeOrders::Announced& announced = *parts_.orders->Find(id);
  const SpecPtr spec = announced.spec;
  const int64_t shared = SharedBlocks(*spec);
  absl::Status status = MayShare(announced, from);
  if (status.ok()) status = parts_.kv_in->Share(from.id(), shared, spec, announced.epoch);
  if (!status.ok()) return status;
  DecodeSequence& sequence = parts_.opening->Enter(id);
  parts_.sequences->Run(sequence, result.prompt_logprobs, result.times);
  parts_.running->Add(sequence, shared * block_tokens_);
  parts_.ends->Touch(id);
  return absl::OkStatus();
}

absl::Status PromptSharing::MayShare(const DecodeOrders::Announced& announced,
                                     const DecodeSequence& from) const {
  const RequestSpec& spec = *announced.spec;
  if (spec.prompt != from.spec->prompt) {
    return absl::InvalidArgumentError("prompt_of: that request has another prompt");
  }
  if (spec.max_tokens == 0) {
    return absl::InvalidArgumentError("prompt_of: max_tokens is 0, so no prompt is shared");
  }
  if (parts_.kv_in->Has(spec.id)) {
    return absl::UnavailableError("an older epoch of the request is still here");
  }
  const int64_t blocks = parts_.kv_in->BlocksFor(OpeningTokens(spec));
  return parts_.opening->MayOpen(announced, blocks - SharedBlocks(spec));
}

// Those before the block of the prompt's last token, which is computed again to sample from it.
int64_t PromptSharing::SharedBlocks(const RequestSpec& spec) const {
  return (PromptTokens(spec) - 1) / block_tokens_;
}

}  // namespace skein::scheduler
