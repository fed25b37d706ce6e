// KV that comes through staging buffers: parts on their way into the blocks.
#include "absl/strings/str_cat.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::scheduler {

// The writer, as long as it may write.
absl::StatusOr<KvIn::Writer*> KvIn::FindStaged(const StagedWriter& staged) {
  if (!loans_.has_value()) {
    return absl::FailedPreconditionError(
        "handoff: this instance has no staging buffers (--handoff=one-sided)");
  }
  Entry* entry = FindComing(staged.id, staged.epoch);
  if (entry == nullptr) return WhyGone(staged.id, staged.epoch).status;
  const auto it = entry->writers.find(staged.instance);
  if (it == entry->writers.end()) {
    return absl::FailedPreconditionError("no transfer is open for this writer");
  }
  if (!it->second.Writes()) {
    return absl::FailedPreconditionError("the writer has already committed");
  }
  return &it->second;
}

void KvIn::On(const AcquireStagingBufferCalled& event, TimeUs now) {
  const AcquireStagingBufferRequest& request = event.request;
  const StagedWriter staged{request.id, request.epoch, request.prefill};
  const absl::StatusOr<Writer*> writer = FindStaged(staged);
  if (!writer.ok()) return emit_(AnswerAcquireStagingBuffer{event.call, {writer.status(), ""}});
  loans_->Acquire(staged, event.call, request.ask, now);
}

void KvIn::On(const ReleaseStagingBufferCalled& event, TimeUs now) {
  const ReleaseStagingBufferRequest& request = event.request;
  if (loans_.has_value()) {
    loans_->Finish({request.id, request.epoch, request.prefill}, now, request.ask);
  }
  emit_(AnswerReleaseStagingBuffer{event.call, {}});
}

void KvIn::EndLoansOf(const Entry& entry, TimeUs now) {
  if (!loans_.has_value()) return;
  const RequestId id = entry.spec->id;
  loans_->End(id, entry.epoch, now);
  for (const auto& [instance, writer] : entry.writers) {
    loans_->Refuse({id, entry.epoch, instance}, WhyGone(id, entry.epoch).status);
  }
}

// It has committed or aborted, so it needs its buffer no longer.
void KvIn::EndLoanOf(const StagedWriter& writer, TimeUs now) {
  if (!loans_.has_value()) return;
  loans_->Refuse(writer, absl::FailedPreconditionError("the writer has committed or aborted"));
  loans_->Finish(writer, now);
}

absl::Status KvIn::MayTakePart(const TakePartRequest& request, const Entry& entry) const {
  const auto invalid = [](const char* field, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is out of range"));
  };
  absl::Status layout = CheckSameLayout(request.layout, config_.shape.layout, "prefill", "decode");
  if (!layout.ok()) return layout;
  if (request.part != entry.writers.at(request.prefill).parts + 1) {
    return invalid("part", static_cast<int64_t>(request.part));
  }
  if (!loans_->BufferOf({request.id, request.epoch, request.prefill}).has_value()) {
    return absl::FailedPreconditionError("the writer has no staging buffer");
  }
  const int64_t blocks = BlocksOf(config_.shape, PromptTokens(*entry.spec));
  for (const StagedBlock& staged : request.blocks) {
    if (staged.slot < 0 || staged.slot >= config_.staging.slots) {
      return invalid("slot", staged.slot);
    }
    if (staged.layer < 0 || staged.layer >= config_.shape.num_layers) {
      return invalid("layer", staged.layer);
    }
    if (staged.global < 0 || staged.global >= blocks) return invalid("block", staged.global);
  }
  return absl::OkStatus();
}

void KvIn::On(const TakePartCalled& event, TimeUs) {
  const TakePartRequest& request = event.request;
  const auto answer = [&](absl::Status status) {
    emit_(AnswerTakePart{event.call, {std::move(status)}});
  };
  const StagedWriter staged{request.id, request.epoch, request.prefill};
  const absl::StatusOr<Writer*> found = FindStaged(staged);
  if (!found.ok()) return answer(found.status());
  Writer& writer = **found;
  if (request.part < writer.parts) return answer(absl::OkStatus());  // a call that came late
  if (request.part == writer.parts && writer.parts > 0) {            // a retry
    return answer(writer.phase == WriterPhase::kTellingPart
                      ? absl::UnavailableError("the part is still being copied")
                      : absl::OkStatus());
  }
  Entry& entry = entries_.at(request.id);
  if (absl::Status status = MayTakePart(request, entry); !status.ok()) {
    return answer(std::move(status));
  }
  writer.parts = request.part;
  writer.phase = WriterPhase::kTellingPart;
  ++entry.copies;
  const uint64_t copy = next_copy_++;
  copies_[copy] = {event.call, staged};
  emit_(CopyPart{.copy = copy,
                 .id = request.id,
                 .epoch = request.epoch,
                 .buffer = *loans_->BufferOf(staged),
                 .part = request.blocks,
                 .blocks = entry.blocks});
}

void KvIn::On(const PartCopied& event, TimeUs) {
  const auto it = copies_.find(event.copy);
  if (it == copies_.end()) return;
  const Copy copy = it->second;
  copies_.erase(it);
  absl::Status status = event.status;
  const absl::StatusOr<Writer*> writer = FindStaged(copy.writer);
  if (writer.ok()) {
    (*writer)->phase = WriterPhase::kWriting;
    if (!status.ok()) --(*writer)->parts;
  } else if (status.ok()) {
    status = writer.status();
  }
  EndCopy(copy.writer.id, copy.writer.epoch);
  emit_(AnswerTakePart{copy.call, {std::move(status)}});
}

// A sequence that was released and came back has no copies of its own.
void KvIn::EndCopy(RequestId id, Epoch epoch) {
  if (quarantine_.CopyEnded({id, epoch})) return;
  const auto entry = entries_.find(id);
  if (entry != entries_.end() && entry->second.epoch == epoch) --entry->second.copies;
}

}  // namespace skein::scheduler
